#include "storage/io/uring_ring.hpp"

#include "base/check.hpp"
#include "base/fork.hpp"
#include "base/thread.hpp"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

namespace terrace {
namespace {

/// Setup flags, in order of preference. They prevent completions from interrupting a computing thread. Older kernels support
/// fewer.
constexpr std::array<unsigned, 3> setup_flags{
    // Linux 6.1: the one thread that waits for completions also finishes them, when it asks for them.
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_R_DISABLED,
    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,  // Linux 5.19
    0};

/// Makes the ring with the best flags that the kernel accepts. Stores the flags in `params`. Returns an errno, or 0.
int make_ring(UringCalls& calls, unsigned entries, io_uring& ring, io_uring_params& params) {
  int error = 0;
  for (const unsigned flags : setup_flags) {
    params = {};
    params.flags = flags;
    error = calls.setup(entries, ring, params);
    if (error != -EINVAL) break;
  }
  return -error;
}

/// Makes the calling thread the only one that may use the ring. liburing 2.3 does not export its function for this.
void enable(io_uring& ring) {
  TERRACE_CHECK(::syscall(__NR_io_uring_register, ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0) == 0);
}

bool can_do_what_we_need(io_uring& ring) {
  struct Free {
    void operator()(io_uring_probe* probe) const { ::io_uring_free_probe(probe); }
  };
  const std::unique_ptr<io_uring_probe, Free> probe{::io_uring_get_probe_ring(&ring)};
  if (!probe) return false;
  return std::ranges::all_of(
      std::array{IORING_OP_READ, IORING_OP_WRITE, IORING_OP_FSYNC, IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED},
      [&](int op) { return ::io_uring_opcode_supported(probe.get(), op) != 0; });
}

}  // namespace

int UringCalls::setup(unsigned entries, io_uring& ring, io_uring_params& params) {
  return ::io_uring_queue_init_params(entries, &ring, &params);
}

int UringCalls::register_buffer(io_uring& ring, unsigned place, const iovec& memory) {
  const __u64 no_tag = 0;
  return ::io_uring_register_buffers_update_tag(&ring, place, &memory, &no_tag, 1);
}

int UringCalls::ended(const IoOperation&, int, std::uint64_t, int result) { return result; }

UringCalls& UringCalls::system() {
  static UringCalls calls;
  return calls;
}

UringMemory::UringMemory(unsigned places) {
  free_.reserve(places);
  for (unsigned place = places; place > 0; --place) free_.push_back(place - 1);
}

std::optional<unsigned> UringMemory::free_place() const {
  if (free_.empty()) return std::nullopt;
  return free_.back();
}

void UringMemory::add(std::span<std::byte> memory) {
  TERRACE_CHECK(!free_.empty());
  pieces_[memory.data()] = {memory.size(), free_.back()};
  free_.pop_back();
}

std::optional<unsigned> UringMemory::remove(std::span<std::byte> memory) {
  const auto piece = pieces_.extract(memory.data());
  if (piece.empty()) return std::nullopt;
  free_.push_back(piece.mapped().place);
  return piece.mapped().place;
}

std::optional<unsigned> UringMemory::find(const std::byte* begin, std::size_t bytes) const {
  const auto after = pieces_.upper_bound(begin);
  if (after == pieces_.begin()) return std::nullopt;
  const auto& [start, piece] = *std::prev(after);
  const auto offset = static_cast<std::size_t>(begin - start);
  if (offset >= piece.bytes || piece.bytes - offset < bytes) return std::nullopt;
  return piece.place;
}

int UringRing::probe(UringCalls& calls) {
  io_uring ring{};
  io_uring_params params{};
  if (const int error = make_ring(calls, 8, ring, params)) return error;
  const bool able = can_do_what_we_need(ring);
  ::io_uring_queue_exit(&ring);
  return able ? 0 : ENOSYS;
}

UringRing::UringRing(unsigned depth, std::size_t in_flight_max, UringCalls& calls, CompletionQueue<IoCompletion>& completions)
    : calls_{calls},
      arriving_queue_{in_flight_max, 1, null_waker_},
      arriving_{arriving_queue_},
      completions_{completions},
      moving_(depth),
      memory_{memory_places} {
  free_.reserve(depth);
  for (std::uint32_t slot = depth; slot > 0; --slot) free_.push_back(slot - 1);
  io_uring_params params{};
  if (const int error = make_ring(calls, depth, ring_, params)) {
    throw std::system_error{error, std::generic_category(), "io_uring"};
  }
  starts_disabled_ = (params.flags & IORING_SETUP_R_DISABLED) != 0;
  // The descriptor must be blocking. io_uring would complete a read of a non-blocking descriptor at once, without data.
  bell_ = close_in_children(::eventfd(0, EFD_CLOEXEC));
  if (bell_ < 0) {
    const int error = errno;
    ::io_uring_queue_exit(&ring_);
    throw std::system_error{error, std::generic_category(), "eventfd"};
  }
  close_in_children(ring_.ring_fd);
  memory_error_ = -::io_uring_register_buffers_sparse(&ring_, memory_places);
  if (::io_uring_register_files_sparse(&ring_, file_places) == 0) {
    for (unsigned place = file_places; place > 0; --place) free_file_places_.push_back(static_cast<int>(place - 1));
  }
  thread_ = start_thread<std::jthread>("terrace-uring", [this] { run(); });
}

UringRing::~UringRing() {
  (void)carry_out([this] {
    ending_ = true;
    return 0;
  });
  thread_.join();
  leave_to_children(ring_.ring_fd);
  leave_to_children(bell_);
  ::io_uring_queue_exit(&ring_);
  ::close(bell_);
}

int UringRing::carry_out(std::function<int()> order) {
  std::packaged_task<int()> task{std::move(order)};
  std::future<int> done = task.get_future();
  {
    const std::lock_guard lock{ordering_};
    orders_.push_back(std::move(task));
  }
  ring_bell();
  return done.get();
}

int UringRing::register_memory(std::span<std::byte> memory) {
  return carry_out([this, memory] {
    if (memory_error_ != 0) return memory_error_;
    const std::optional<unsigned> place = memory_.free_place();
    if (!place) return ENOSPC;
    const int result = calls_.register_buffer(ring_, *place, {memory.data(), memory.size()});
    if (result < 0) return -result;
    memory_.add(memory);
    return 0;
  });
}

void UringRing::forget_memory(std::span<std::byte> memory) {
  (void)carry_out([this, memory] {
    const iovec nothing{};
    const std::optional<unsigned> place = memory_.remove(memory);
    if (place) TERRACE_CHECK(UringCalls::system().register_buffer(ring_, *place, nothing) >= 0);
    return 0;
  });
}

void UringRing::leave_place(FileId file, int instead) {
  (void)carry_out([this, file, instead] {
    if (file.value() >= file_places_.size()) file_places_.resize(file.value() + std::size_t{1}, not_registered);
    const int place = std::exchange(file_places_[file.value()], instead);
    if (place < 0) return 0;
    const int nothing = -1;
    TERRACE_CHECK(::io_uring_register_files_update(&ring_, static_cast<unsigned>(place), &nothing, 1) >= 0);
    free_file_places_.push_back(place);
    return 0;
  });
}

/// Wakes the ring's thread if it sleeps. Either this thread sees that the ring's thread sleeps, or the ring's thread sees the new
/// value of arrivals_ before it sleeps.
void UringRing::ring_bell() noexcept {
  arrivals_.fetch_add(1);
  if (!asleep_.load() || !asleep_.exchange(false)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(bell_, &one, sizeof one);  // cannot fail, because the counter stays small
}

void UringRing::run() {
  if (starts_disabled_) enable(ring_);
  for (;;) {
    const bool arrived = take_arrivals();
    begin_waiting();
    submit();
    const bool reaped = reap();
    const bool sealed = checksum_a_piece();
    wake_owner();
    if (arrived || reaped || sealed) continue;
    if (ending_ && idle()) break;
    if (found_no_work()) sleep();
  }
  // The kernel must have finished with our memory and files before the thread that waits for the end continues.
  if (bell_armed_) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(bell_, &one, sizeof one);
    while (bell_armed_) {
      ::io_uring_submit_and_wait(&ring_, 1);
      (void)reap();
    }
  }
  if (memory_error_ == 0) ::io_uring_unregister_buffers(&ring_);
  if (!free_file_places_.empty() || !file_places_.empty()) ::io_uring_unregister_files(&ring_);
}

bool UringRing::take_arrivals() {
  const std::uint64_t arrivals = arrivals_.load();
  if (arrivals == arrivals_seen_) return false;
  arrivals_seen_ = arrivals;
  arriving_queue_.drain(arrived_);
  // Take the orders after the work: an order to register memory was given before the work that uses the memory, so it is in
  // orders_ now. The orders are done before the work begins.
  {
    const std::lock_guard lock{ordering_};
    taken_orders_.swap(orders_);
  }
  for (auto& order : taken_orders_) order();
  taken_orders_.clear();
  for (Work& work : arrived_) (work.operation.ahead ? ahead_ : waiting_).push_back(std::move(work));
  arrived_.clear();
  return true;
}

std::optional<int> UringRing::place_of(FileId id, int fd) {
  if (id.value() >= file_places_.size()) file_places_.resize(id.value() + std::size_t{1}, not_registered);
  int& place = file_places_[id.value()];
  if (place >= 0) return place;
  if (place == never_registered || free_file_places_.empty()) return std::nullopt;
  const int wanted = free_file_places_.back();
  if (::io_uring_register_files_update(&ring_, static_cast<unsigned>(wanted), &fd, 1) < 0) return std::nullopt;
  free_file_places_.pop_back();
  return place = wanted;
}

void UringRing::begin_waiting() {
  while (!free_.empty()) {
    Fifo<Work>& from = ahead_.empty() ? waiting_ : ahead_;
    if (from.empty()) return;
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    const Work work = from.front();
    from.pop_front();
    begin(slot, work);
  }
}

void UringRing::begin(std::uint32_t slot, const Work& work) {
  const IoOperation& operation = work.operation;
  const bool reading = operation.kind == IoOperation::Kind::read;
  Moving& moving = moving_[slot];
  moving = Moving{};
  moving.work = work;
  // Nothing writes to the buffer of a write operation. The cast lets one pointer serve both directions.
  moving.buffer = reading ? operation.into.data() : const_cast<std::byte*>(operation.from.data());
  moving.length = reading ? operation.into.size() : operation.from.size();
  if (operation.kind != IoOperation::Kind::sync && work.file->direct && !io_aligned(moving.buffer)) {
    try {
      moving.copy = AlignedBuffer{moving.length};
    } catch (const std::bad_alloc&) {
      moving.error = ENOMEM;
      io_ended(slot);
      return;
    }
    if (!reading) std::memcpy(moving.copy.data(), moving.buffer, moving.length);
    moving.buffer = moving.copy.data();
  }
  if (operation.kind == IoOperation::Kind::write && operation.fingerprint != nullptr) {
    moving.to_seal = true;
    to_checksum_.push_back(slot);
  }
  request(slot);
}

io_uring_sqe* UringRing::next_sqe() {
  io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
  while (sqe == nullptr) {
    submit();
    sqe = ::io_uring_get_sqe(&ring_);
  }
  return sqe;
}

/// Submits a request for the part of the operation that has not been moved yet.
void UringRing::request(std::uint32_t slot) {
  Moving& moving = moving_[slot];
  const IoOperation& operation = moving.work.operation;
  const int fd = moving.work.file->fd;
  const std::optional<int> place = place_of(operation.file, fd);
  io_uring_sqe* const sqe = next_sqe();
  const int target = place.value_or(fd);
  moving.direct = moving.work.file->direct;
  moving.asked = std::min(moving.length - moving.moved, request_bytes_max);
  std::byte* const at = moving.buffer + moving.moved;
  const auto bytes = static_cast<unsigned>(moving.asked);
  const std::uint64_t offset = operation.offset + moving.moved;
  switch (operation.kind) {
    case IoOperation::Kind::sync: ::io_uring_prep_fsync(sqe, target, IORING_FSYNC_DATASYNC); break;
    case IoOperation::Kind::read:
      if (const auto registered = memory_.find(at, bytes)) {
        ::io_uring_prep_read_fixed(sqe, target, at, bytes, offset, static_cast<int>(*registered));
      } else {
        ::io_uring_prep_read(sqe, target, at, bytes, offset);
      }
      break;
    case IoOperation::Kind::write:
      if (const auto registered = memory_.find(at, bytes)) {
        ::io_uring_prep_write_fixed(sqe, target, at, bytes, offset, static_cast<int>(*registered));
      } else {
        ::io_uring_prep_write(sqe, target, at, bytes, offset);
      }
      break;
    default: TERRACE_CHECK(false);  // other kinds never reach a ring
  }
  if (place) sqe->flags |= IOSQE_FIXED_FILE;
  if (moving.may_block) sqe->flags |= IOSQE_ASYNC;
  ::io_uring_sqe_set_data64(sqe, slot);
}

/// Submits all prepared requests to the kernel. Requests that it cannot take now stay for the next call.
void UringRing::submit() {
  if (::io_uring_sq_ready(&ring_) == 0) return;
  const int result = ::io_uring_submit(&ring_);
  if (result >= 0) return;
  TERRACE_CHECK(result == -EINTR || result == -EAGAIN || result == -EBUSY || result == -ENOMEM);
  std::this_thread::yield();
}

bool UringRing::reap() {
  std::array<io_uring_cqe*, 32> completed;
  const unsigned count = ::io_uring_peek_batch_cqe(&ring_, completed.data(), completed.size());
  struct Ended {
    std::uint64_t data;
    int result;
  };
  std::array<Ended, completed.size()> ended;
  for (unsigned n = 0; n < count; ++n) ended[n] = {completed[n]->user_data, completed[n]->res};
  ::io_uring_cq_advance(&ring_, count);
  for (unsigned n = 0; n < count; ++n) {
    if (ended[n].data == bell_data) {
      bell_armed_ = false;
    } else {
      request_ended(static_cast<std::uint32_t>(ended[n].data), ended[n].result);
    }
  }
  return count > 0;
}

void UringRing::request_ended(std::uint32_t slot, int result) {
  Moving& moving = moving_[slot];
  const IoOperation& operation = moving.work.operation;
  result = calls_.ended(operation, moving.work.file->fd, moving.asked, result);
  if (result > 0) {
    moving.moved += static_cast<std::uint64_t>(result);
    if (moving.moved < moving.length) return request(slot);
  } else if (result == -EINTR) {
    return request(slot);
  } else if (result == -EAGAIN && !moving.may_block) {
    moving.may_block = true;
    return request(slot);
  } else if (result == -EINVAL && moving.direct && moving.moved == 0 && PosixFiles::leave_direct(*moving.work.file)) {
    return request(slot);
  } else {
    moving.error = -result;  // 0 is the end of the file, or a device that accepts no more; another try would not help
  }
  io_ended(slot);
}

void UringRing::io_ended(std::uint32_t slot) {
  Moving& moving = moving_[slot];
  const IoOperation& operation = moving.work.operation;
  moving.io_ended = true;
  if (operation.kind == IoOperation::Kind::read && moving.error == 0 && moving.moved == moving.length) {
    if (moving.copy.data() != nullptr) std::memcpy(operation.into.data(), moving.copy.data(), moving.length);
    if (operation.fingerprint != nullptr) {
      moving.to_seal = true;
      to_checksum_.push_back(slot);
    }
  }
  if (!moving.to_seal) complete(slot);
}

bool UringRing::checksum_a_piece() {
  if (to_checksum_.empty()) return false;
  const std::uint32_t slot = to_checksum_.front();
  Moving& moving = moving_[slot];
  const IoOperation& operation = moving.work.operation;
  const std::span<const std::byte> all = operation.kind == IoOperation::Kind::read ? operation.into : operation.from;
  if (summed_ == 0) sum_.begin(operation.key, *operation.fingerprint, all.size());
  const std::uint64_t piece = std::min<std::uint64_t>(all.size() - summed_, checksum_piece_bytes);
  sum_.add(all.subspan(summed_, piece));
  summed_ += piece;
  checksummed_since_wake_ += piece;
  if (summed_ < all.size()) return true;
  summed_ = 0;
  to_checksum_.pop_front();
  moving.checksum = sum_.value();
  moving.to_seal = false;
  if (moving.io_ended) complete(slot);
  return true;
}

void UringRing::complete(std::uint32_t slot) {
  Moving& moving = moving_[slot];
  const bool whole = moving.error == 0 && moving.moved == moving.length;
  const IoCompletion completion{moving.work.operation.token, moving.error, moving.moved, whole ? moving.checksum : 0};
  moving.copy = {};
  free_.push_back(slot);
  completions_.push_quietly(completion);
  wake_pending_ = true;
}

/// Wakes the owner for several completions at once. Devices complete several operations at a time. If the owner were woken for
/// each of them when its checksum is ready, it would submit each following operation alone, with five times as many system calls.
void UringRing::wake_owner() {
  if (!wake_pending_ || (!to_checksum_.empty() && checksummed_since_wake_ < wake_after_bytes)) return;
  wake_pending_ = false;
  checksummed_since_wake_ = 0;
  completions_.wake();
}

/// Polls for work for a short time before the thread sleeps. The owner often submits the next operation soon after a completion,
/// and waking this thread would take longer. Returns true if no work has come.
bool UringRing::found_no_work() {
  const auto until = std::chrono::steady_clock::now() + spin_time;
  do {
    if (arrivals_.load(std::memory_order_relaxed) != arrivals_seen_) return false;
    const unsigned flags = __atomic_load_n(ring_.sq.kflags, __ATOMIC_RELAXED);  // written by the kernel
    if (::io_uring_cq_ready(&ring_) > 0 || (flags & IORING_SQ_TASKRUN) != 0) return false;
  } while (std::chrono::steady_clock::now() < until);
  return true;
}

void UringRing::sleep() {
  if (!bell_armed_) {
    io_uring_sqe* const sqe = next_sqe();
    ::io_uring_prep_read(sqe, bell_, &bell_value_, sizeof bell_value_, 0);
    ::io_uring_sqe_set_data64(sqe, bell_data);
    bell_armed_ = true;
  }
  asleep_.store(true);
  if (arrivals_.load() == arrivals_seen_) {
    const int result = ::io_uring_submit_and_wait(&ring_, 1);
    TERRACE_CHECK(result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY || result == -ENOMEM);
  }
  asleep_.store(false);
}

}  // namespace terrace
