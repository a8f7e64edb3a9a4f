#pragma once

#include "runtime/admin/command.hpp"
#include "runtime/admin/observed.hpp"
#include "runtime/admin/snapshot.hpp"
#include "terrace/waker.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace terrace::admin {

/// The answer to a request, as HTTP has it.
struct Reply {
  unsigned status = 200;
  std::string body{};
  std::string type = "application/json";
  std::shared_ptr<const std::string> capture{};  ///< in place of `body`: large, and shared by all who read it
};

/// Stands between the thread of a cache and the threads that ask about it: commands go in, replies and snapshots come out. A
/// TierStore in place of the cache is the same.
/// No call waits for another thread: the lock is held for a few instructions only.
///
/// Threads: post(), withdraw(), latest(), waiting() and observed() from any; take(), give() and publish() from that of the cache;
/// close() from the one that ends it.
class Mailbox {
 public:
  /// At most so many commands wait for the cache; more are refused.
  static constexpr std::size_t commands_max = 64;
  /// At most so many portions of observations wait for the endpoint.
  static constexpr std::size_t observed_max = 256;
  using CommandId = std::uint64_t;
  /// Called once with the reply, on the thread of the cache, unless the command is withdrawn before. Must not block or throw.
  using Done = std::function<void(Reply)>;

  struct Posted {
    CommandId id = 0;
    Command command;
    Done done;
  };

  /// The waker makes the cache take commands. It must outlive this object.
  explicit Mailbox(Waker& cache) : cache_{cache} {}

  /// Nothing: too many commands wait, or the cache has ended.
  [[nodiscard]] std::optional<CommandId> post(Command command, Done done);
  /// Takes a command back. True: it has had no effect and will have none, and `done` is not called. False: the cache has taken
  /// it, and `done` has been called or is about to be.
  [[nodiscard]] bool withdraw(CommandId id);
  /// The last snapshot; null before the first one.
  [[nodiscard]] SharedSnapshot latest() const;
  /// True if a command waits for the cache. Costs one load.
  [[nodiscard]] bool waiting() const noexcept { return waiting_.load(std::memory_order_acquire); }

  [[nodiscard]] std::optional<Posted> take();
  void publish(SharedSnapshot snapshot);
  /// Hands over what the thread of the cache has observed. If nobody takes it for long, the oldest is dropped.
  void give(Observed observed);
  /// Takes what was handed over, the oldest first.
  [[nodiscard]] std::deque<Observed> observed();
  /// Refuses all commands from now on. Those that wait get a reply.
  void close();

 private:
  Waker& cache_;
  mutable std::mutex mutex_;
  std::deque<Posted> posted_;
  SharedSnapshot latest_;
  std::deque<Observed> observed_;
  CommandId last_ = 0;
  bool closed_ = false;
  std::atomic<bool> waiting_{false};
};

}  // namespace terrace::admin
