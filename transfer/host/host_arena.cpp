#include "transfer/host/host_arena.hpp"

#include "base/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace terrace {
namespace {

std::uint32_t slots_in_a_chunk(Bytes block_bytes, Bytes chunk_bytes) {
  if (count(block_bytes) == 0) throw std::invalid_argument{"host arena: the block size must not be 0"};
  if (block_bytes > chunk_bytes) {
    throw std::invalid_argument{
        fmt::format("host arena: a block of {} does not fit a chunk of {}", to_string(block_bytes), to_string(chunk_bytes))};
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(chunk_bytes / block_bytes, 1U << 31));
}

/// Returns the distance between slots. Throws if the rows of the options cannot hold the slots.
Bytes checked_stride(const HostArenaOptions& options) {
  if (!options.rows) return options.block_bytes;
  const HostRows& rows = *options.rows;
  if (!check_rows(rows)) throw std::invalid_argument{"host arena: the given rows have no address, no size, or overlap"};
  if (rows.row_bytes != options.block_bytes || rows.count < options.slots) {
    throw std::invalid_argument{fmt::format("host arena: {} slots of {} cannot lie in {} rows of {}", options.slots,
                                            to_string(options.block_bytes), rows.count, to_string(rows.row_bytes))};
  }
  return rows.stride();
}

HostArenaOptions all_ready(std::uint32_t slots, Bytes block_bytes, Bytes chunk_bytes) {
  HostArenaOptions options;
  options.slots = options.ready_slots = slots;
  options.block_bytes = block_bytes;
  options.chunk_bytes = chunk_bytes;
  // Tests and tools make many small arenas, for which a thread is not worthwhile.
  options.touch.threads = 1;
  return options;
}

}  // namespace

HostArena::HostArena(std::uint32_t slots, Bytes block_bytes, Bytes chunk_bytes)
    : HostArena{all_ready(slots, block_bytes, chunk_bytes)} {}

HostArena::HostArena(HostArenaOptions options)
    : block_bytes_{options.block_bytes},
      stride_{checked_stride(options)},
      slots_per_chunk_{slots_in_a_chunk(options.block_bytes, options.chunk_bytes)},
      options_{std::move(options)},
      pages_{options_.touch.huge_pages},
      done_{64, 1, options_.waker == nullptr ? null_waker_ : *options_.waker},
      ended_{done_} {
  worker_ = std::move(options_.worker);
  const auto ask_for_rest = [this](std::uint32_t made) {
    if (!options_.limits || options_.rows) return;
    const MemoryRequest rest{.bytes = block_bytes_ * (options_.slots - made), .unit = block_bytes_, .spare = options_.spare};
    if (const auto refusal = preflight(rest, options_.limits())) {
      const std::string there = made > 0 ? fmt::format(", of which {} are there", made) : "";
      throw std::runtime_error{
          fmt::format("host arena of {} slots of {}{}: {}", options_.slots, to_string(block_bytes_), there, *refusal)};
    }
  };
  ask_for_rest(0);
  std::uint32_t made = 0;
  while (made < std::min(options_.ready_slots, options_.slots)) {
    // Other processes may have taken memory meanwhile, for example ranks that start at the same time.
    if (made > 0) ask_for_rest(made);
    const std::uint32_t here = std::min(slots_per_chunk_, options_.slots - made);
    const std::uint32_t chunk = new_chunk(here);
    Place& p = place(chunk);
    map(chunk, fmt::format("host arena of {} slots of {}, at slot {}", options_.slots, to_string(block_bytes_), made));
    p.got = touch(p);
    if (p.got.error != 0) {
      throw std::system_error{p.got.error, std::generic_category(),
                              fmt::format("host arena of {} slots of {}: cannot touch the slots from {} on", options_.slots,
                                          to_string(block_bytes_), made)};
    }
    p.shown = true;
    show(chunk);
    made += here;
  }
  if (made < options_.slots && !grow(options_.slots - made)) {
    throw std::invalid_argument{fmt::format("host arena: {} slots are more than can be numbered", options_.slots)};
  }
}

HostArena::~HostArena() {
  for (std::uint32_t chunk = 0; chunk < chunks_end_; ++chunk) place(chunk).cancelled = true;
  worker_.reset();
  while (!observers_.empty()) unobserve(*observers_.back());
}

// ---- places --------------------------------------------------------------------------------------------------------------

HostArena::Place& HostArena::place(std::uint32_t chunk) const {
  Segment* const segment = segments_[chunk / places_per_segment].load(std::memory_order_acquire);
  return (*segment)[chunk % places_per_segment];
}

HostArena::Place* HostArena::place_of(SlotId slot) const {
  const std::uint32_t chunk = slot.value() / slots_per_chunk_;
  if (chunk >= chunks_max) return nullptr;
  Segment* const segment = segments_[chunk / places_per_segment].load(std::memory_order_acquire);
  if (segment == nullptr) return nullptr;
  Place& p = (*segment)[chunk % places_per_segment];
  return slot.value() % slots_per_chunk_ < p.slots.load(std::memory_order_acquire) ? &p : nullptr;
}

std::span<std::byte> HostArena::block(SlotId slot) const {
  const Place* const p = place_of(slot);
  TERRACE_CHECK(p != nullptr);
  const std::uint64_t within = slot.value() % slots_per_chunk_;
  return {p->begin.load(std::memory_order_acquire) + within * count(stride_), count(block_bytes_)};
}

std::uint32_t HostArena::contiguous_from(SlotId slot) const {
  const Place* const p = place_of(slot);
  TERRACE_CHECK(p != nullptr);
  if (stride_ != block_bytes_) return 1;
  return p->slots.load(std::memory_order_acquire) - slot.value() % slots_per_chunk_;
}

bool HostArena::holds(SlotSpan slots) const {
  std::uint64_t at = slots.first.value();
  const std::uint64_t end = at + slots.count;
  while (at < end) {
    if (at > std::numeric_limits<std::uint32_t>::max()) return false;
    const SlotId slot{static_cast<std::uint32_t>(at)};
    if (place_of(slot) == nullptr) return false;
    at += contiguous_from(slot);
  }
  return true;
}

SlotSpan HostArena::slots_of(std::uint32_t chunk) const {
  const Place& p = place(chunk);
  const bool absent = p.state.load(std::memory_order_acquire) == ChunkState::absent;
  return {SlotId{chunk * slots_per_chunk_}, absent ? 0 : p.size};
}

HostChunk HostArena::chunk_at(std::uint32_t chunk) const {
  const Place& p = place(chunk);
  return {{SlotId{chunk * slots_per_chunk_}, p.size}, p.mapping.bytes()};
}

std::uint32_t HostArena::new_chunk(std::uint32_t slots) {
  std::uint32_t chunk = chunks_end_;
  if (!absent_.empty()) {
    const auto lowest = std::ranges::min_element(absent_);
    chunk = *lowest;
    absent_.erase(lowest);
  } else {
    if (chunks_end_ % places_per_segment == 0) {
      owned_segments_.push_back(std::make_unique<Segment>());
      segments_[chunks_end_ / places_per_segment].store(owned_segments_.back().get(), std::memory_order_release);
    }
    ++chunks_end_;
  }
  Place& p = place(chunk);
  p.size = slots;
  p.cancelled = false;
  p.state = ChunkState::reserved;
  coming_slots_ += slots;
  mapped_ += block_bytes_ * slots;
  return chunk;
}

void HostArena::map(std::uint32_t chunk, const std::string& what) {
  Place& p = place(chunk);
  if (!options_.rows) {
    p.mapping = Mapping::reserve(block_bytes_ * p.size, what);
    return;
  }
  HostRows rows = *options_.rows;
  rows.address = rows.row(chunk * slots_per_chunk_).data();
  rows.count = p.size;
  p.mapping = Mapping::borrowed({rows.address, static_cast<std::size_t>(count(rows.extent()))});
}

/// Makes the slots of the chunk available.
void HostArena::show(std::uint32_t chunk) {
  Place& p = place(chunk);
  p.begin.store(p.mapping.bytes().data(), std::memory_order_release);
  p.slots.store(p.size, std::memory_order_release);
  p.state = ChunkState::warm;
  coming_slots_ -= p.size;
  warm_slots_ += p.size;
}

// ---- coming and going ----------------------------------------------------------------------------------------------------

std::uint64_t HostArena::numbers_after(std::uint32_t slots) const {
  const std::uint64_t more = (std::uint64_t{slots} + slots_per_chunk_ - 1) / slots_per_chunk_;
  const std::uint64_t chunks = chunks_end_ + more - std::min<std::uint64_t>(more, absent_.size());
  if (chunks == 0) return 0;
  // The last chunk may be smaller.
  const std::uint64_t last = more == 0 ? slots_per_chunk_ : slots - (more - 1) * slots_per_chunk_;
  return (chunks - 1) * slots_per_chunk_ + (more > absent_.size() ? last : slots_per_chunk_);
}

/// The most slots that the chunk can have.
std::uint32_t HostArena::slots_max(std::uint32_t chunk) const {
  if (!options_.rows) return slots_per_chunk_;
  const std::uint64_t before = std::min<std::uint64_t>(options_.rows->count, std::uint64_t{chunk} * slots_per_chunk_);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(slots_per_chunk_, options_.rows->count - before));
}

std::uint64_t HostArena::rows_left() const {
  if (!options_.rows) return std::numeric_limits<std::uint64_t>::max();
  std::uint64_t left =
      options_.rows->count - std::min<std::uint64_t>(options_.rows->count, std::uint64_t{chunks_end_} * slots_per_chunk_);
  for (const std::uint32_t chunk : absent_) left += slots_max(chunk);
  return left;
}

bool HostArena::can_grow(std::uint32_t slots) const {
  const std::uint64_t numbers_max = std::min<std::uint64_t>(std::uint64_t{chunks_max} * slots_per_chunk_, 1ULL << 32);
  return numbers_after(slots) <= numbers_max && slots <= rows_left();
}

std::optional<Bytes> HostArena::memory_left() const {
  if (!options_.limits || options_.rows) return std::nullopt;
  const std::optional<Bytes> left = terrace::memory_left(options_.limits());
  return left ? std::optional{*left - std::min(*left, options_.spare)} : std::nullopt;
}

Result<void> HostArena::grow(std::uint32_t slots) {
  if (!can_grow(slots)) return Errc::never_fits;
  while (slots > 0) {
    const std::uint32_t next = absent_.empty() ? chunks_end_ : *std::ranges::min_element(absent_);
    const std::uint32_t here = std::min(slots, slots_max(next));
    const Bytes with_those_after = block_bytes_ * slots;
    slots -= here;
    const std::uint32_t chunk = new_chunk(here);
    do_later([this, chunk, here, with_those_after] {
      const std::optional<std::string> failed = make(chunk, with_those_after);
      const SlotSpan span{SlotId{chunk * slots_per_chunk_}, here};
      ended_.push({failed ? ArenaEvent::Kind::failed : ArenaEvent::Kind::warm, chunk, span, failed.value_or("")});
    });
  }
  return {};
}

void HostArena::do_later(ArenaWorker::Task task) {
  if (worker_ == nullptr) worker_ = std::make_unique<ThreadArenaWorker>();
  ++under_way_;
  worker_->run(std::move(task));
}

/// Touches the memory of a chunk and measures how long this takes. Runs on the worker, or in the constructor.
FirstTouch HostArena::touch(Place& p) {
  if (options_.rows) return {};  // the memory belongs to its owner, and may have contents
  TouchOptions options = options_.touch;
  options.cancel = &p.cancelled;
  options.huge_pages = pages_.next();
  const auto begin = std::chrono::steady_clock::now();
  const FirstTouch got = first_touch(p.mapping.bytes(), options);
  if (got.error == 0) pages_.touched(Bytes{p.mapping.bytes().size()}, std::chrono::steady_clock::now() - begin);
  return got;
}

/// Makes a chunk. Runs on the worker. Returns nothing on success; otherwise the reason, which is empty if the chunk was
/// cancelled.
std::optional<std::string> HostArena::make(std::uint32_t chunk, Bytes with_those_after) {
  Place& p = place(chunk);
  if (p.cancelled) return "";
  p.state = ChunkState::touching;
  const Bytes size = block_bytes_ * p.size;
  if (options_.limits && !options_.rows) {
    const MemoryRequest wanted{.bytes = with_those_after, .unit = block_bytes_, .spare = options_.spare};
    if (const auto refusal = preflight(wanted, options_.limits())) return "host arena: " + *refusal;
  }
  try {
    map(chunk, "host arena: a chunk");
  } catch (const std::system_error& error) {
    return error.what();
  }
  p.got = touch(p);
  std::optional<std::string> failed;
  if (p.got.error == ECANCELED) {
    failed = "";
  } else if (p.got.error != 0) {
    failed =
        fmt::format("host arena: cannot touch a chunk of {}: {}", to_string(size), std::generic_category().message(p.got.error));
  } else {
    const std::lock_guard lock{observing_};
    failed = report_added(chunk);
    p.shown = !failed;
  }
  if (failed) p.mapping = {};
  return failed;
}

/// Reports a chunk to all observers. If one refuses it, reports its removal to the others and returns the reason.
std::optional<std::string> HostArena::report_added(std::uint32_t chunk) {
  for (auto each = observers_.begin(); each != observers_.end(); ++each) {
    const Result<void> added = (*each)->chunk_added(chunk_at(chunk));
    if (added) continue;
    const std::string why = (*each)->refusal();
    while (each != observers_.begin()) (*--each)->chunk_removing(chunk_at(chunk));
    return fmt::format("host arena: a chunk of {} could not be registered: {}", to_string(block_bytes_ * place(chunk).size),
                       why.empty() ? added.error().message() : why);
  }
  return std::nullopt;
}

void HostArena::cancel(std::uint32_t chunk) {
  TERRACE_CHECK(state(chunk) == ChunkState::reserved || state(chunk) == ChunkState::touching);
  place(chunk).cancelled = true;
}

void HostArena::give_back(std::uint32_t chunk) {
  Place& p = place(chunk);
  TERRACE_CHECK(p.state.load() == ChunkState::warm);
  p.slots.store(0, std::memory_order_release);
  p.begin.store(nullptr, std::memory_order_release);
  p.state = ChunkState::unmapping;
  warm_slots_ -= p.size;
  do_later([this, chunk, size = p.size] {
    unmake(chunk);
    ended_.push({ArenaEvent::Kind::gone, chunk, {SlotId{chunk * slots_per_chunk_}, size}, ""});
  });
}

/// Removes a chunk. Runs on the worker.
void HostArena::unmake(std::uint32_t chunk) {
  Place& p = place(chunk);
  {
    const std::lock_guard lock{observing_};
    for (HostChunkObserver* const observer : observers_) observer->chunk_removing(chunk_at(chunk));
    p.shown = false;
  }
  p.mapping = {};
}

void HostArena::poll(std::vector<ArenaEvent>& events) {
  if (under_way_ == 0) return;
  const std::size_t before = events.size();
  done_.drain(events);
  for (std::size_t i = before; i < events.size(); ++i) {
    --under_way_;
    const std::uint32_t chunk = events[i].chunk;
    if (events[i].kind == ArenaEvent::Kind::warm) {
      show(chunk);
      continue;
    }
    Place& p = place(chunk);
    if (events[i].kind == ArenaEvent::Kind::failed) coming_slots_ -= p.size;
    mapped_ = mapped_ - block_bytes_ * p.size;
    p.state = ChunkState::absent;
    absent_.push_back(chunk);
  }
}

std::vector<std::uint32_t> HostArena::shown_chunks() const {
  std::vector<std::uint32_t> shown;
  for (std::uint32_t chunk = 0; chunk < chunks_end_; ++chunk) {
    if (place(chunk).shown) shown.push_back(chunk);
  }
  return shown;
}

Result<void> HostArena::observe(HostChunkObserver& observer) {
  const std::lock_guard lock{observing_};
  const std::vector<std::uint32_t> shown = shown_chunks();
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const Result<void> added = observer.chunk_added(chunk_at(shown[i]));
    if (added) continue;
    while (i-- > 0) observer.chunk_removing(chunk_at(shown[i]));
    return added;
  }
  observers_.push_back(&observer);
  return {};
}

void HostArena::unobserve(HostChunkObserver& observer) {
  const std::lock_guard lock{observing_};
  if (std::erase(observers_, &observer) == 0) return;
  for (const std::uint32_t chunk : shown_chunks()) observer.chunk_removing(chunk_at(chunk));
}

}  // namespace terrace
