#pragma once

#include "base/completion_queue.hpp"
#include "base/waker.hpp"
#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "transfer/engine/open_pieces.hpp"
#include "transfer/engine/transfer_port.hpp"
#include "transfer/engine/transfer_scheduler.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace terrace {

/// Runs transfers on a device, on the caller's thread: a transfer scheduler orders them, the device copies their pieces, and
/// events report their results. Nothing starts before poll(), so that the most urgent of several transfers that are submitted
/// together starts first.
///
/// Ownership: device, clock and waker must outlive the engine. The destructor drops queued transfers and does not wait: the
/// device may still copy pieces under way, until the device is destroyed. A caller that must know that all copies have ended
/// calls cancel_all() and polls until idle(). Threads: one; open_pieces() from any; await() from one thread, which may be a
/// different one.
class TransferEngine final : public TransferPort {
 public:
  /// `waker` is woken when poll() has something to do. The pools are those of the device. Throws as TransferScheduler does.
  TransferEngine(TransferSchedulerConfig config, Device& device, const Clock& clock, Waker& waker);
  ~TransferEngine() override;
  TransferEngine(const TransferEngine&) = delete;
  TransferEngine& operator=(const TransferEngine&) = delete;

  void submit(Transfer transfer) override;
  void raise(TransferId id, Urgency urgency) override { changing().raise(id, urgency); }
  void postpone(TransferId id, TimePoint deadline) override { changing().postpone(id, deadline); }
  void cancel(TransferId id) override { changing().cancel(id); }
  void cancel_all() { changing().cancel_all(); }
  void limit(Urgency urgency, BytesPerSecond per_second) override { changing().limit(urgency, per_second); }
  /// Collects the pieces that have ended, handles deadlines, and starts the pieces that may start. Appends the events, and
  /// returns their number.
  std::size_t poll(std::vector<TransferEvent>& out) override;
  [[nodiscard]] Result<void> await(TransferId id, std::uint32_t layers, StreamRef stream, std::uint32_t rank) override;
  [[nodiscard]] Result<Fence> signal(StreamRef stream, std::uint32_t rank) override {
    return rank == 0 ? device_.signal(stream) : Result<Fence>{no_such_rank};
  }
  /// Returns the time at which poll() has something to do even if the waker is not woken; TimePoint{}, which is in the past, if
  /// it has something to do now.
  [[nodiscard]] TimePoint next_deadline() const override { return changed_ ? TimePoint{} : scheduler_.next_deadline(); }
  [[nodiscard]] TimePoint oldest_copy() const override { return scheduler_.oldest_piece(); }
  [[nodiscard]] Fence reached() const override { return device_.reached(); }
  [[nodiscard]] Fence after_all_work() const override { return device_.after_all_work(); }
  [[nodiscard]] bool given_out(Fence point) const override { return device_.given_out(point); }
  /// Returns true if nothing is queued, under way, or unreported.
  [[nodiscard]] bool idle() const { return scheduler_.idle() && !changed_; }
  void check_invariants() const { scheduler_.check_invariants(); }

  /// submit() and poll() in two parts, for ThreadedTransfers. The control plane calls begin() of the open pieces before start(),
  /// and forget_ended() for the events that it has collected from work().
  [[nodiscard]] OpenPieces& open_pieces() { return pieces_; }
  void start(Transfer transfer);
  std::size_t work(std::vector<TransferEvent>& out);

 private:
  /// The scheduler, for a call after which poll() may have something to do.
  [[nodiscard]] TransferScheduler& changing() {
    changed_ = true;
    return scheduler_;
  }

  TransferScheduler scheduler_;
  Device& device_;
  const Clock& clock_;
  bool changed_ = false;  ///< a call was made since the last poll()
  std::vector<TransferEvent> refused_;
  std::vector<CopyDone> done_;  ///< scratch memory of poll()
  OpenPieces pieces_;
  std::vector<std::uint64_t> awaited_;  ///< scratch memory of await()
};

/// A transfer engine on its own thread. The thread sleeps until the device has something, a deadline comes, or it is woken.
/// Lock-free queues connect it with the caller.
///
/// After each call the thread *dozes* for some time: it checks for calls every millisecond. A call does not wake a dozing thread,
/// which would cost a system call on the thread of the engine's scheduler; wake_transfers() wakes it once for all earlier calls.
/// A call wakes a sleeping thread.
///
/// Ownership: device, clock and waker must outlive this object. It stops in two steps. stop() refuses new transfers and cancels
/// those that have not started; events still come through poll(). The destructor does the same, drops events that were not
/// collected, and waits for the pieces under way. It waits forever if a stream of the device never continues.
///
/// Threads: one, the control plane's. Bounds: at most submitted_max transfers are between submit() and the engine, and
/// further ones are refused. For each transfer there are a few calls of raise() and cancel(), at most one call of postpone() for
/// each request that waits for it, and at most two events, in a transfer by layer one more for each layer.
class ThreadedTransfers final : public TransferPort {
 public:
  static constexpr std::size_t submitted_max = 4096;
  /// How often a dozing thread checks for calls, and how long it dozes after the last call, which is some steps of an engine.
  static constexpr Duration doze_interval = std::chrono::milliseconds{1};
  static constexpr Duration dozes_for = std::chrono::milliseconds{100};

  /// The same as for TransferEngine. The clock must be a real clock. `waker` is woken when poll() has events. Throws
  /// std::system_error if no thread can be started or there is no file descriptor left.
  ThreadedTransfers(TransferSchedulerConfig config, Device& device, const Clock& clock, Waker& waker);
  ~ThreadedTransfers() override;
  ThreadedTransfers(const ThreadedTransfers&) = delete;
  ThreadedTransfers& operator=(const ThreadedTransfers&) = delete;

  /// After stop(), the transfer comes back with the error `stopped`.
  void submit(Transfer transfer) override;
  void raise(TransferId id, Urgency urgency) override { push({Command::Kind::raise, {.id = id, .urgency = urgency}}); }
  void postpone(TransferId id, TimePoint deadline) override { push({Command::Kind::postpone, {.id = id, .deadline = deadline}}); }
  void cancel(TransferId id) override { push({Command::Kind::cancel, {.id = id}}); }
  void limit(Urgency urgency, BytesPerSecond per_second) override {
    push({Command::Kind::limit, {.urgency = urgency}, per_second});
  }
  void wake_transfers() override;
  std::size_t poll(std::vector<TransferEvent>& out) override;
  [[nodiscard]] Result<void> await(TransferId id, std::uint32_t layers, StreamRef stream, std::uint32_t rank) override {
    return engine_.await(id, layers, stream, rank);
  }
  [[nodiscard]] Result<Fence> signal(StreamRef stream, std::uint32_t rank) override { return engine_.signal(stream, rank); }
  [[nodiscard]] TimePoint next_deadline() const override { return never; }
  [[nodiscard]] TimePoint oldest_copy() const override { return oldest_copy_.load(std::memory_order_relaxed); }
  [[nodiscard]] Fence reached() const override { return engine_.reached(); }
  [[nodiscard]] Fence after_all_work() const override { return engine_.after_all_work(); }
  [[nodiscard]] bool given_out(Fence point) const override { return engine_.given_out(point); }
  /// Refuses new transfers from now on, and cancels those that have not started.
  void stop();

 private:
  /// A call for the engine's thread. Only a new transfer is complete; for other calls it has the members that they name.
  struct Command {
    enum class Kind : std::uint8_t { start, raise, postpone, cancel, cancel_all, limit, end_when_idle };
    Kind kind = Kind::start;
    Transfer transfer{};
    BytesPerSecond per_second{};
  };

  void push(Command command);
  void run();
  void sleep();
  void apply(Command command);

  // Used by the control plane.
  Waker& waker_;
  bool stopped_ = false;
  bool unseen_ = false;  ///< a call has not woken the engine's thread, because the thread dozes
  std::vector<TransferEvent> refused_;

  // Used by both threads.
  std::atomic<bool> dozes_{false};
  EventFdWaker engine_waker_;
  /// Calls for the engine's thread. With a thread of its own, the engine starts the next piece as soon as the device has room,
  /// even if the control plane does not poll.
  CompletionQueue<Command> commands_;
  CompletionQueue<Command>::Producer command_in_;
  CompletionQueue<TransferEvent> events_;  ///< for the control plane's next poll()
  CompletionQueue<TransferEvent>::Producer event_in_;
  std::atomic<std::size_t> submitted_{0};      ///< transfers that the engine's thread has not taken yet
  std::atomic<TimePoint> oldest_copy_{never};  ///< value when the engine's thread last went to sleep

  // Used by the engine's thread.
  const Clock& clock_;
  TransferEngine engine_;
  bool ending_ = false;
  TimePoint last_call_{};
  std::thread thread_;
};

}  // namespace terrace
