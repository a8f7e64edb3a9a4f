#pragma once

#include "runtime/admin/command.hpp"
#include "runtime/admin/snapshot.hpp"
#include "runtime/cache/measure/reuse_curve.hpp"
#include "runtime/cache/measure/trace_span.hpp"
#include "terrace/clock.hpp"
#include "terrace/waker.hpp"

#include <boost/json/fwd.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace terrace::admin {

/// The reply to an HTTP request.
struct Reply {
  unsigned status = 200;
  std::string body{};
  std::string type = "application/json";
  std::shared_ptr<const std::string> capture{};  ///< in place of `body`, for a large text that several replies share
};

/// A reply whose body is this value.
[[nodiscard]] Reply answer(const boost::json::value& body, unsigned status = 200);
/// The reply to a resize that does not fit.
[[nodiscard]] Reply too_large(Tier tier, std::uint64_t blocks, std::uint64_t largest, Bytes block, std::string_view why);

/// The time that is captured.
struct Capture {
  std::uint64_t number = 0;  ///< 0: nothing was captured yet; the next capture of this kind has the next number
  TimePoint begin{};
  TimePoint end{};

  friend bool operator==(const Capture&, const Capture&) = default;
};

/// A request that has ended, or that was under way when the capture ended.
struct RecordedRequest {
  TimePoint at{};
  std::vector<std::uint64_t> prompt{};  ///< its blocks, by BlockKey::prefix64
  std::uint32_t output_blocks = 0;      ///< shared after the prompt
};

/// A portion of what the thread of a cache has observed, for the endpoint.
struct Observed {
  TimePoint made{};
  bool gap = false;  ///< portions before this one were lost
  std::vector<ReuseSample> samples{};
  std::vector<std::uint32_t> ends{};              ///< the requests in `samples`: each ends where the next one begins
  std::array<Capture, capture_kinds> captures{};  ///< by CaptureKind
  std::vector<TraceSpan> spans{};                 ///< spans of the trace capture
  std::vector<RecordedRequest> requests{};

  [[nodiscard]] bool is_empty() const { return samples.empty() && spans.empty() && requests.empty(); }
};

/// Passes commands to the thread of a cache, and replies and snapshots from it to other threads. The same is used for a
/// TierStore. No call waits long for another thread: the lock is held only for a few instructions.
///
/// Threads: post(), withdraw(), latest(), waiting() and observed() from any; take(), give() and publish() from the thread of the
/// cache; close() from the thread that ends it.
class Mailbox {
 public:
  /// Upper bound of the commands that wait for the cache; more are refused.
  static constexpr std::size_t commands_max = 64;
  /// Upper bound of the portions of observations that wait for the endpoint.
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

  /// Returns nothing if too many commands wait, or if the cache has ended.
  [[nodiscard]] std::optional<CommandId> post(Command command, Done done);
  /// Withdraws a command. Returns true if it has had no effect and will have none; `done` is not called then. Returns false if
  /// the cache has taken it; `done` has been called, or will be called.
  [[nodiscard]] bool withdraw(CommandId id);
  /// The last snapshot; null before the first one.
  [[nodiscard]] SharedSnapshot latest() const;
  /// Returns true if a command waits for the cache. Costs one load.
  [[nodiscard]] bool waiting() const noexcept { return waiting_.load(std::memory_order_acquire); }

  [[nodiscard]] std::optional<Posted> take();
  void publish(SharedSnapshot snapshot);
  /// Passes observations of the thread of the cache to the endpoint. If too many wait, the oldest are dropped. Empty portions in
  /// a row take the place of one, so what an idle cache has passed stays.
  void give(Observed observed);
  /// Takes the observations, the oldest first.
  [[nodiscard]] std::deque<Observed> observed();
  /// Refuses all commands from now on. Waiting commands get a reply.
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
