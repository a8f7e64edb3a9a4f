#pragma once

#include "terrace/device.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace terrace {

/// A device's commands between submit() and poll(). Each has an event that happens when its copy has ended, so that streams of
/// the caller can wait for it (Device::await). `Event` is a shared pointer; null is no event.
///
/// Threads: any. There is no bound: the callers of submit() limit the number of commands; a transfer engine has a few under way.
template <class Event>
class OpenCopies {
 public:
  struct Copy {
    std::uint64_t token = 0;
    /// Null: the command is not on its stream yet.
    Event ended;
    /// If set, the copy could not be put on its stream.
    ErrorCode error;
    /// The command is put on its stream only when launched work up to this point is done.
    Fence after;
  };

  void add(Copy copy) {
    const std::lock_guard lock{mutex_};
    copies_.push_back(std::move(copy));
  }
  /// Records that the command is on its stream, or could not be put there.
  void put(std::uint64_t token, Event ended, ErrorCode error) {
    const std::lock_guard lock{mutex_};
    const auto found = std::ranges::find(copies_, token, &Copy::token);
    if (found == copies_.end()) return;
    found->ended = std::move(ended);
    found->error = error;
  }
  /// Removes the commands that poll() reports.
  void remove(std::span<const CopyDone> done) {
    if (done.empty()) return;
    const std::lock_guard lock{mutex_};
    for (const CopyDone& each : done) {
      const auto found = std::ranges::find(copies_, each.token, &Copy::token);
      if (found != copies_.end()) copies_.erase(found);
    }
  }
  [[nodiscard]] bool empty() const {
    const std::lock_guard lock{mutex_};
    return copies_.empty();
  }
  [[nodiscard]] std::vector<Copy> all() const {
    const std::lock_guard lock{mutex_};
    return copies_;
  }
  /// Appends the copies of these commands, for which a stream has to wait. Fails as Device::await does, and appends nothing then.
  [[nodiscard]] Result<void> find(std::span<const std::uint64_t> tokens, std::vector<Copy>& out) const {
    const std::size_t before = out.size();
    const auto fail = [&](ErrorCode why) -> Result<void> {
      out.resize(before);
      return why;
    };
    const std::lock_guard lock{mutex_};
    for (const std::uint64_t token : tokens) {
      const auto found = std::ranges::find(copies_, token, &Copy::token);
      if (found == copies_.end()) return fail(Errc::not_found);
      if (found->error) return fail(found->error);
      if (!found->ended) return fail(Errc::not_ready);
      out.push_back(*found);
    }
    return {};
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Copy> copies_;
};

}  // namespace terrace
