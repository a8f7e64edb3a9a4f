#pragma once

#include "base/clock.hpp"
#include "base/completion_queue.hpp"
#include "base/waker.hpp"
#include "transfer/device/device.hpp"
#include "transfer/engine/transfer_port.hpp"
#include "transfer/engine/transfer_scheduler.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace terrace {

/// A transfer scheduler, a device and a clock: takes transfers, keeps the device busy with their pieces, and says what became of
/// them.
///
/// Destruction drops what is queued and waits for nothing: pieces under way are the device's, which may move their bytes until
/// it is destroyed itself. Who needs to know that none moves any more cancels and polls until idle(). Threads: one.
class TransferEngine {
 public:
  /// Device and clock outlive the engine, and `waker`, told when poll() has something to do, does too. A config without
  /// block_bytes takes the device's; layers are always the device's. Throws as TransferScheduler, and
  /// std::invalid_argument where the config's are not the device's.
  TransferEngine(TransferSchedulerConfig config, Device& device, const Clock& clock, Waker& waker);
  ~TransferEngine();
  TransferEngine(const TransferEngine&) = delete;
  TransferEngine& operator=(const TransferEngine&) = delete;

  /// As TransferPort. Nothing starts before poll(), so that of transfers submitted together the most urgent goes first.
  void submit(Transfer transfer);
  void raise(TransferId id, Urgency urgency);
  void cancel(TransferId id);
  void cancel_all();
  void limit(Urgency urgency, Bytes per_second);
  /// Collects what the device has done, resolves deadlines, starts what may start; appends the events, returns how many.
  std::size_t poll(std::vector<TransferEvent>& out);
  /// When poll() has something to do though the waker is not told: long past where it has now.
  [[nodiscard]] TimePoint next_deadline() const { return changed_ ? TimePoint::min() : scheduler_.next_deadline(); }
  /// Nothing queued, under way, or unreported.
  [[nodiscard]] bool idle() const { return scheduler_.idle() && !changed_; }
  [[nodiscard]] const Device& device() const { return device_; }
  void check_invariants() const { scheduler_.check_invariants(); }

 private:
  TransferScheduler scheduler_;
  Device& device_;
  const Clock& clock_;
  bool changed_ = false;  ///< something was asked for since the last poll()
  std::vector<TransferEvent> refused_;
  std::vector<CopyDone> done_;  ///< poll()'s, kept for its memory
};

/// A transfer engine on the caller's own thread, at work in poll(). Destruction: as the engine's. Threads: one.
class DirectTransfers final : public TransferPort {
 public:
  /// As TransferEngine; `waker` is told when the device has something for poll().
  DirectTransfers(TransferSchedulerConfig config, Device& device, const Clock& clock, Waker& waker)
      : engine_{std::move(config), device, clock, waker} {}

  void submit(Transfer transfer) override { engine_.submit(std::move(transfer)); }
  void raise(TransferId id, Urgency urgency) override { engine_.raise(id, urgency); }
  void cancel(TransferId id) override { engine_.cancel(id); }
  void limit(Urgency urgency, Bytes per_second) override { engine_.limit(urgency, per_second); }
  std::size_t poll(std::vector<TransferEvent>& out) override { return engine_.poll(out); }
  [[nodiscard]] TimePoint next_deadline() const override { return engine_.next_deadline(); }
  [[nodiscard]] Fence reached() const override { return engine_.device().reached(); }
  [[nodiscard]] Fence after_all_work() const override { return engine_.device().after_all_work(); }
  [[nodiscard]] bool idle() const { return engine_.idle(); }
  void check_invariants() const { engine_.check_invariants(); }

 private:
  TransferEngine engine_;
};

/// A transfer engine on a thread of its own, which sleeps until it is asked for something, the device has something, or a
/// deadline comes. Lock-free queues lead to it and back.
///
/// Stops in two steps. stop() refuses new transfers and cancels what has not started; events go on coming through poll(). The
/// destructor does the same, drops events not collected, and waits for the pieces under way and for no others: as long as the
/// device needs for pieces_in_flight of them in each direction, so for ever if a stream of the device never moves again.
///
/// Bounds: transfers_in_flight_max between submit() and the engine, beyond which a transfer is refused; raise and cancel come a
/// few times a transfer; events are at most two a transfer, and of a transfer by layer one more a layer. Threads: one, the
/// control plane's.
class ThreadedTransfers final : public TransferPort {
 public:
  static constexpr std::size_t transfers_in_flight_max = 4096;

  /// As TransferEngine, with a clock of real time; `waker` is told when poll() has events. Throws std::system_error where there
  /// is no thread or descriptor to be had.
  ThreadedTransfers(TransferSchedulerConfig config, Device& device, const Clock& clock, Waker& waker);
  ~ThreadedTransfers() override;
  ThreadedTransfers(const ThreadedTransfers&) = delete;
  ThreadedTransfers& operator=(const ThreadedTransfers&) = delete;

  /// After stop(): comes back with error `stopped`.
  void submit(Transfer transfer) override;
  void raise(TransferId id, Urgency urgency) override;
  void cancel(TransferId id) override;
  void limit(Urgency urgency, Bytes per_second) override;
  std::size_t poll(std::vector<TransferEvent>& out) override;
  [[nodiscard]] TimePoint next_deadline() const override { return never; }
  [[nodiscard]] Fence reached() const override { return engine_.device().reached(); }
  [[nodiscard]] Fence after_all_work() const override { return engine_.device().after_all_work(); }
  void stop();

 private:
  struct Raise {
    TransferId id;
    Urgency urgency;
  };
  struct Cancel {
    TransferId id;
  };
  struct CancelAll {};
  struct Limit {
    Urgency urgency;
    Bytes per_second;
  };
  struct EndWhenIdle {};
  using Command = std::variant<Transfer, Raise, Cancel, CancelAll, Limit, EndWhenIdle>;
  using Commands = CompletionQueue<Command>;
  using Events = CompletionQueue<TransferEvent>;

  void run();
  void apply(Command command);

  // The control plane's.
  Waker& waker_;
  bool stopped_ = false;
  std::vector<TransferEvent> refused_;

  // Between the two.
  EventFdWaker engine_waker_;
  Commands commands_;
  Commands::Producer command_in_;
  Events events_;
  Events::Producer event_in_;
  std::atomic<std::size_t> transfers_in_flight_{0};

  // The engine thread's.
  const Clock& clock_;
  TransferEngine engine_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace terrace
