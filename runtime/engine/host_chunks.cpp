#include "runtime/engine/host_chunks.hpp"

#include "base/check.hpp"
#include "base/failure.hpp"
#include "radix/tree/copy.hpp"

#include <algorithm>

namespace terrace {
namespace {

/// Memory grows by at least this fraction of its size.
constexpr std::uint64_t grain_share = 128;

bool is_coming(ChunkState state) { return state == ChunkState::reserved || state == ChunkState::touching; }

}  // namespace

HostChunks::HostChunks(HostArena& arena, CacheManager& manager, PoolId pool) : arena_{arena}, manager_{manager}, pool_{pool} {
  const PoolSizes& sizes = manager.config().pool(pool);
  const std::uint32_t known = sizes.host_blocks + sizes.staging_blocks;
  TERRACE_CHECK(arena.slots() >= sizes.staging_blocks);
  TERRACE_CHECK(std::uint64_t{arena.slots()} + arena.slots_coming() >= known);
  // The manager assumes memory for all slots that it was configured with.
  std::vector<SlotSpan> closing;
  for (std::uint32_t chunk = 0; chunk < arena.chunks_end(); ++chunk) {
    const SlotSpan slots = arena.slots_of(chunk);
    const bool warm = arena.state(chunk) == ChunkState::warm;
    if (!warm && slots.first.value() < known) {
      closing.push_back({slots.first, std::min(slots.end(), known) - slots.first.value()});
    } else if (warm && slots.end() > known) {
      manager.administration().open_host(slots, pool);
    }
  }
  if (!closing.empty()) TERRACE_CHECK(manager.administration().resize(Tier::host, sizes.host_blocks, pool, closing).has_value());
}

HostChunks::Plan HostChunks::plan(std::uint64_t slots) const {
  Plan plan;
  const auto open = [&](std::uint32_t chunk) { return arena_.state(chunk) == ChunkState::warm && !goes(chunk); };
  const auto awaited = [&](std::uint32_t chunk) { return is_coming(arena_.state(chunk)) && !is_cancelled(chunk); };
  std::uint64_t have_open = 0;
  std::uint64_t have = 0;  // including chunks that are being made
  for (std::uint32_t chunk = 0; chunk < arena_.chunks_end(); ++chunk) {
    const std::uint32_t here = arena_.slots_of(chunk).count;
    if (open(chunk)) have_open += here;
    if (open(chunk) || awaited(chunk)) have += here;
  }
  for (std::uint32_t chunk = arena_.chunks_end(); chunk-- > 0 && have > slots;) {
    const std::uint32_t here = arena_.slots_of(chunk).count;
    if (!awaited(chunk) || have - here < slots) continue;
    plan.cancel.push_back(chunk);
    have -= here;
  }
  // Close only chunks that are replaced by memory that exists already.
  for (std::uint32_t chunk = arena_.chunks_end(); chunk-- > 0 && have_open > slots;) {
    const std::uint32_t here = arena_.slots_of(chunk).count;
    if (!open(chunk) || have_open - here < slots) continue;
    plan.close.push_back(chunk);
    have_open -= here;
    have -= here;
  }
  const std::uint64_t grain = slots / grain_share;
  for (const Going& going : going_) {
    if (have + going.slots.count > slots + grain) continue;
    plan.reopen.push_back(going.chunk);
    have += going.slots.count;
  }
  if (have < slots) plan.grow = static_cast<std::uint32_t>(std::max(slots - have, std::min(grain, arena_.rows_left())));
  return plan;
}

Result<void> HostChunks::resize(std::uint32_t blocks, Asks asks) {
  const std::uint64_t slots = std::uint64_t{blocks} + manager_.config().pool(pool_).staging_blocks;
  if (slots >= Copy::slots_max) return Errc::never_fits;
  const Plan plan = this->plan(slots);
  if (plan.grow > arena_.rows_left()) {
    return failure<Errc::never_fits, "the memory that was given for the host tier has fewer rows (PoolOptions::host_rows)">;
  }
  if (!arena_.can_grow(plan.grow) || arena_.numbers_after(plan.grow) > Copy::slots_max) return Errc::never_fits;
  if (const auto most = plan.grow > 0 && asks == Asks::yes ? largest() : std::nullopt; most && blocks > *most) {
    return failure<Errc::no_room, "the machine, or its control group, does not have the memory for so many blocks">;
  }
  if (const Result<void> resized = close(plan, blocks); !resized) return resized;
  failure_.clear();
  for (const std::uint32_t chunk : plan.cancel) cancel(chunk);
  for (const std::uint32_t chunk : plan.reopen) {
    std::erase_if(going_, [&](const Going& going) { return going.chunk == chunk; });
    manager_.administration().open_host(arena_.slots_of(chunk), pool_);
  }
  if (plan.grow > 0) TERRACE_CHECK(arena_.grow(plan.grow).has_value());
  return {};
}

std::optional<std::uint64_t> HostChunks::largest() const {
  const std::optional<Bytes> left = arena_.memory_left();
  if (!left) return std::nullopt;
  const Residency& residency = manager_.residency(pool_);
  return std::max<std::uint64_t>(residency.host_blocks_wanted(), residency.host_blocks() + *left / arena_.block_bytes());
}

Result<void> HostChunks::close(const Plan& plan, std::uint32_t blocks) {
  std::vector<SlotSpan> closing;
  closing.reserve(plan.close.size());
  for (const std::uint32_t chunk : plan.close) closing.push_back(arena_.slots_of(chunk));
  if (const Result<void> resized = manager_.administration().resize(Tier::host, blocks, pool_, closing); !resized) return resized;
  for (const std::uint32_t chunk : plan.close) {
    const SlotSpan here = arena_.slots_of(chunk);
    going_.push_back({chunk, here, here.first.value()});
  }
  return {};
}

void HostChunks::poll() {
  events_.clear();
  arena_.poll(events_);
  bool failed = false;
  for (const ArenaEvent& event : events_) {
    if (event.kind == ArenaEvent::Kind::gone) continue;
    const bool unwanted = std::erase(cancelled_, event.chunk) > 0;
    if (event.kind == ArenaEvent::Kind::failed) {
      if (event.why.empty() || unwanted) continue;  // empty: it was cancelled
      failure_ = event.why;
      ++failures_;
      failed = true;
    } else if (unwanted) {
      arena_.give_back(event.chunk);
    } else {
      manager_.administration().open_host(event.slots, pool_);
    }
  }
  if (failed) stop_growing();
  if (!events_.empty() && arena_.is_warm()) trim();
}

/// Closes chunks that a smaller tier kept until its new memory had arrived.
void HostChunks::trim() {
  const std::uint32_t blocks = manager_.residency(pool_).host_blocks_wanted();
  const Plan plan = this->plan(std::uint64_t{blocks} + manager_.config().pool(pool_).staging_blocks);
  if (!plan.close.empty()) TERRACE_CHECK(close(plan, blocks).has_value());
}

/// Cancels the other chunks of a failed growth: the caller needs all of them, and memory is short.
void HostChunks::stop_growing() {
  for (std::uint32_t chunk = 0; chunk < arena_.chunks_end(); ++chunk) {
    if (is_coming(arena_.state(chunk)) && !is_cancelled(chunk)) cancel(chunk);
  }
  // This fails if a chunk that should be closed has pinned blocks, so that more slots are needed. Then the next resize reports
  // it.
  (void)manager_.administration().resize(Tier::host, manager_.residency(pool_).host_blocks(), pool_);
}

void HostChunks::give_back_emptied() {
  std::erase_if(going_, [this](Going& going) {
    going.next = manager_.administration().first_in_use({SlotId{going.next}, going.slots.end() - going.next}, pool_);
    if (going.next < going.slots.end()) return false;
    arena_.give_back(going.chunk);
    return true;
  });
}

HostMemory HostChunks::memory() const {
  HostMemory memory;
  const Residency& residency = manager_.residency(pool_);
  memory.wanted = residency.host_blocks_wanted();
  memory.usable = residency.host_blocks();
  memory.mapped = arena_.mapped();
  memory.going = static_cast<std::uint32_t>(going_.size());
  memory.failure = failure_;
  for (std::uint32_t chunk = 0; chunk < arena_.chunks_end(); ++chunk) {
    if (is_coming(arena_.state(chunk))) ++memory.coming;
  }
  return memory;
}

}  // namespace terrace
