#pragma once

#include "runtime/admin/mailbox.hpp"
#include "runtime/admin/snapshot.hpp"
#include "terrace/clock.hpp"

#include <cstdint>
#include <functional>

namespace terrace::admin {

/// Publishes snapshots and carries out commands, on the thread of the cache or store that the endpoint serves.
///
/// Ownership: the mailbox must outlive it, and so must everything that the subject uses. Threads: the thread of the subject.
class Publisher {
 public:
  /// The cache or store.
  struct Subject {
    std::function<void(AdminSnapshot&)> describe{};  ///< sets all members but `made` and `number`
    std::function<Reply(const Command&)> carry_out{};
  };

  /// Publishes a snapshot every `interval`, and after each command.
  Publisher(Mailbox& mailbox, Duration interval) : mailbox_{mailbox}, interval_{interval} {}

  /// Publishes the first snapshot.
  void begin(Subject subject, TimePoint now);
  /// The subject ends: the commands that wait are refused. Nothing happens afterwards.
  void end();

  /// Call it at the end of each poll. Carries out the commands that wait, and publishes a snapshot if one is due; `changed`:
  /// publish now. If nothing is due, the call costs two comparisons.
  void on_polled(TimePoint now, bool changed = false);
  /// The time at which on_polled() must be called; `never` before begin() and after end().
  [[nodiscard]] TimePoint next_deadline() const { return next_; }

 private:
  void publish(TimePoint now);

  Mailbox& mailbox_;
  Duration interval_;
  Subject subject_;  ///< empty before begin() and after end()
  TimePoint next_ = never;
  std::uint64_t number_ = 0;  ///< number of the last snapshot
  bool running_ = false;      ///< a command is being carried out
};

}  // namespace terrace::admin
