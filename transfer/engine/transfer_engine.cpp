#include "transfer/engine/transfer_engine.hpp"

#include "base/thread.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <iterator>
#include <new>
#include <span>
#include <utility>

namespace terrace {
namespace {

TransferSchedulerConfig for_device(const Device& device, TransferSchedulerConfig config) {
  config.pools = device.info().pools;
  return config;
}

std::size_t take(std::vector<TransferEvent>& from, std::vector<TransferEvent>& out) {
  const std::size_t taken = from.size();
  std::ranges::move(from, std::back_inserter(out));
  from.clear();
  return taken;
}

/// Sleeps until the waker is woken or until `time`. EventFdWaker::wait() counts in milliseconds, which is too coarse for a rate
/// limit.
void wait_until(const EventFdWaker& waker, TimePoint time, TimePoint now) {
  pollfd entry{waker.fd(), POLLIN, 0};
  if (time == never) {
    ::ppoll(&entry, 1, nullptr, nullptr);
    return;
  }
  if (time <= now) return;
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(time - now);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
  const timespec timeout{static_cast<std::time_t>(seconds.count()), static_cast<long>((left - seconds).count())};
  ::ppoll(&entry, 1, &timeout, nullptr);
}

}  // namespace

TransferEngine::TransferEngine(TransferSchedulerConfig config, Device& device, const Clock& clock, Waker& waker)
    : scheduler_{for_device(device, std::move(config))}, device_{device}, clock_{clock} {
  device_.set_waker(waker);
}

TransferEngine::~TransferEngine() {
  // The device may outlive its waker. It may even be in use while the process destroys its static objects.
  alignas(NullWaker) static std::byte memory[sizeof(NullWaker)];
  static NullWaker& null_waker = *new (memory) NullWaker;
  device_.set_waker(null_waker);
}

void TransferEngine::submit(Transfer transfer) {
  pieces_.begin(transfer.id);
  start(std::move(transfer));
}

void TransferEngine::start(Transfer transfer) {
  const Result<void> taken = changing().submit(std::move(transfer));
  // NOLINTNEXTLINE(bugprone-use-after-move): a transfer that is refused is still its caller's
  if (!taken) refused_.push_back(not_taken(std::move(transfer), taken.error()));
}

std::size_t TransferEngine::poll(std::vector<TransferEvent>& out) {
  const std::size_t polled = work(out);
  pieces_.forget_ended(std::span{out}.last(polled));
  return polled;
}

std::size_t TransferEngine::work(std::vector<TransferEvent>& out) {
  changed_ = false;
  const TimePoint now = clock_.now();
  device_.poll(done_);
  for (const CopyDone& done : done_) {
    pieces_.finish(scheduler_.finish(done.token, done.error, now, done.took), done.token, done.error);
  }
  done_.clear();
  // next() handles the deadlines, too.
  for (const Direction direction : {Direction::swap_out, Direction::swap_in}) {
    while (std::optional<Piece> piece = scheduler_.next(direction, now)) {
      pieces_.start(*piece);
      try {
        device_.submit(static_cast<CopyCommand&&>(*piece));
      } catch (const std::bad_alloc&) {
        pieces_.finish(scheduler_.finish(piece->token, Errc::io_failed, now), piece->token, Errc::io_failed);
      }
    }
  }
  const std::size_t before = out.size();
  take(refused_, out);
  scheduler_.take_events(out);
  for (const TransferEvent& event : std::span{out}.subspan(before)) {
    if (event.kind == TransferEvent::Kind::finished) pieces_.end(event.id, event.error);
  }
  return out.size() - before;
}

Result<void> TransferEngine::await(TransferId id, std::uint32_t layers, StreamRef stream, std::uint32_t rank) {
  if (rank != 0) return no_such_rank;
  if (const Result<void> found = pieces_.find(id, layers, awaited_); !found) return found.error();
  if (awaited_.empty()) return {};
  const Result<void> ordered = device_.await(stream, awaited_);
  // A piece is recorded directly before it is submitted to the device, and removed directly after the device has reported it.
  if (!ordered && ordered.error() == Errc::not_found) return Errc::not_ready;
  return ordered;
}

ThreadedTransfers::ThreadedTransfers(TransferSchedulerConfig config, Device& device, const Clock& clock, Waker& waker)
    : waker_{waker},
      commands_{submitted_max, 1, engine_waker_},
      command_in_{commands_},
      events_{submitted_max, 1, waker},
      event_in_{events_},
      clock_{clock},
      engine_{std::move(config), device, clock, engine_waker_},
      thread_{start_thread("terrace-xfer", [this] { run(); })} {}

ThreadedTransfers::~ThreadedTransfers() {
  stop();
  push({Command::Kind::end_when_idle});
  wake_transfers();
  thread_.join();
}

void ThreadedTransfers::submit(Transfer transfer) {
  const bool full = submitted_.load(std::memory_order_relaxed) >= submitted_max;
  if (stopped_ || full) {
    const Errc why = stopped_ ? Errc::stopped : Errc::refused;
    refused_.push_back(not_taken(std::move(transfer), why));
    waker_.wake();
    return;
  }
  submitted_.fetch_add(1, std::memory_order_relaxed);
  engine_.open_pieces().begin(transfer.id);
  push({Command::Kind::start, std::move(transfer)});
}

void ThreadedTransfers::push(Command command) {
  command_in_.push_quietly(std::move(command));
  // This exchange does not change the value, but it is ordered with the exchanges in sleep(): either the thread sleeps and is
  // woken here, or it finds the command before it sleeps.
  bool dozes = true;
  dozes_.compare_exchange_strong(dozes, true, std::memory_order_acq_rel, std::memory_order_acquire);
  unseen_ |= dozes;
  if (!dozes) command_in_.wake();
}

void ThreadedTransfers::wake_transfers() {
  if (std::exchange(unseen_, false)) command_in_.wake();
}

std::size_t ThreadedTransfers::poll(std::vector<TransferEvent>& out) {
  const std::size_t refused = take(refused_, out);
  const std::size_t drained = events_.drain(out);
  engine_.open_pieces().forget_ended(std::span{out}.last(drained));
  return refused + drained;
}

void ThreadedTransfers::stop() {
  if (std::exchange(stopped_, true)) return;
  push({Command::Kind::cancel_all});
  wake_transfers();
}

void ThreadedTransfers::run() {
  std::vector<Command> commands;
  std::vector<TransferEvent> events;
  while (!ending_ || !engine_.idle()) {
    sleep();
    engine_waker_.acknowledge();  // before collecting, so that a later push wakes this thread again
    if (commands_.drain(commands) > 0) last_call_ = clock_.now();
    for (Command& command : commands) apply(std::move(command));
    commands.clear();
    engine_.work(events);
    oldest_copy_.store(engine_.oldest_copy(), std::memory_order_relaxed);
    for (TransferEvent& event : events) event_in_.push(std::move(event));
    events.clear();
  }
}

/// Sleeps until there may be something to do.
void ThreadedTransfers::sleep() {
  const TimePoint now = clock_.now();
  if (now - last_call_ < dozes_for) {
    if (!dozes_.load(std::memory_order_relaxed)) dozes_.exchange(true, std::memory_order_acq_rel);
    return wait_until(engine_waker_, std::min(engine_.next_deadline(), now + doze_interval), now);
  }
  // After dozing, check for commands once more, because the last calls have not woken this thread.
  if (dozes_.exchange(false, std::memory_order_acq_rel)) return;
  wait_until(engine_waker_, engine_.next_deadline(), now);
}

void ThreadedTransfers::apply(Command command) {
  Transfer& given = command.transfer;
  switch (command.kind) {
    case Command::Kind::start: submitted_.fetch_sub(1, std::memory_order_relaxed); return engine_.start(std::move(given));
    case Command::Kind::raise: return engine_.raise(given.id, given.urgency);
    case Command::Kind::postpone: return engine_.postpone(given.id, given.deadline);
    case Command::Kind::cancel: return engine_.cancel(given.id);
    case Command::Kind::cancel_all: return engine_.cancel_all();
    case Command::Kind::limit: return engine_.limit(given.urgency, command.per_second);
    case Command::Kind::end_when_idle: ending_ = true;
  }
}

}  // namespace terrace
