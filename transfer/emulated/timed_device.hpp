#pragma once

#include "terrace/clock.hpp"
#include "terrace/device.hpp"

#include <array>
#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

namespace terrace {

/// A device in virtual time: its copies take the time that a link needs for their bytes, but move no bytes. It simulates waits
/// for the link with blocks of any size, without memory for the blocks.
///
/// The end of a copy is noticed some time later, as through an interrupt and a thread. Compute takes no time: launched work is
/// done at once. The device wakes no waker; next_notice() says when poll() has something. Ownership: the clock must outlive the
/// device. Threads: one.
class TimedDevice final : public Device {
 public:
  struct Link {
    BytesPerSecond bytes_per_second{};  ///< in each direction; more than 0
    Duration notice{};                  ///< from the end of a copy until poll() reports it
  };

  TimedDevice(std::vector<DevicePool> pools, Link link, const Clock& clock)
      : info_{.name = "timed", .pools = std::move(pools)}, link_{link}, clock_{clock} {}

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  void set_waker(Waker&) override {}
  void submit(CopyCommand command) override;
  std::size_t poll(std::vector<CopyDone>& done) override;
  Fence launch(ComputeWork) override { return {}; }
  [[nodiscard]] Fence reached() const override { return {}; }
  [[nodiscard]] Fence after_all_work() const override { return {}; }

  /// Returns the next time at which poll() has something; `never` if no copy is under way.
  [[nodiscard]] TimePoint next_notice() const;
  /// Returns the time that the link needs for this many bytes.
  [[nodiscard]] Duration time_for(Bytes bytes) const;
  /// Returns the sum of the times of all copies.
  [[nodiscard]] Duration busy(Direction direction) const { return streams_[static_cast<std::size_t>(direction)].busy; }

 private:
  struct Command {
    TimePoint ends;
    CopyDone done;
  };
  struct Stream {
    TimePoint free_at{};
    Duration busy{};
    std::deque<Command> commands;
  };

  DeviceInfo info_;
  Link link_;
  const Clock& clock_;
  std::array<Stream, direction_count> streams_;
};

}  // namespace terrace
