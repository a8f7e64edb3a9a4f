#pragma once

#include "terrace/clock.hpp"
#include "terrace/device.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace terrace {

/// A device in virtual time: its copies take the time of their bytes on a link, but move no bytes. It shows what waits for the
/// link, with blocks of any size, without their memory.
///
/// The end of a copy is noticed some time later, as through an interrupt and a thread. Compute takes no time: everything that is
/// launched is done. It wakes nobody; next_notice() says when poll() has something. Ownership: the clock outlives the device.
/// Threads: one.
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

  /// When poll() has something next; `never`: nothing is under way.
  [[nodiscard]] TimePoint next_notice() const;
  /// The time that the link takes for so many bytes.
  [[nodiscard]] Duration time_for(Bytes bytes) const;
  /// The sum of the times of all copies so far.
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
