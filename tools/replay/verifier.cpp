#include "tools/replay/verifier.hpp"

#include "base/check.hpp"
#include "tools/replay/content.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstring>

namespace terrace::tools {
namespace {

constexpr std::uint64_t sample_every = 16;

/// Adds the time of a scope.
class Stopwatch {
 public:
  explicit Stopwatch(std::atomic<std::uint64_t>& total) : total_{total} {}
  ~Stopwatch() {
    const auto took = std::chrono::steady_clock::now() - begin_;
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
    total_.fetch_add(static_cast<std::uint64_t>(ns), std::memory_order_release);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::atomic<std::uint64_t>& total_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// A partly filled block has no key yet, and nobody else ever reads it: any content of the request's own will do.
BlockKey private_key(std::uint64_t request) {
  BlockKey key;
  std::memcpy(key.bytes.data(), &request, sizeof request);
  return key;
}

}  // namespace

std::string describe(const Mismatch& mismatch) {
  return fmt::format("request {}, block {}, key {}, found in {}, slot {}, byte {}", mismatch.request, mismatch.block,
                     to_hex(mismatch.key).substr(0, 16), to_string(mismatch.found_in), mismatch.slot.value(), mismatch.byte);
}

void Verifier::run(const ComputeJob& job, BlockAccess& access, std::size_t block_bytes) {
  TERRACE_CHECK(job.hit_tiers.size() <= job.keys.size());
  TERRACE_CHECK(job.keys.size() <= job.slots.size());
  scratch_.resize(block_bytes);
  compare_hits(job, access, scratch_);
  compute_rest(job, access, scratch_);
}

void Verifier::compare_hits(const ComputeJob& job, BlockAccess& access, std::span<std::byte> scratch) {
  const Stopwatch stopwatch{verify_ns_};
  std::uint64_t checked = 0;
  for (std::size_t i = 0; i < job.hit_tiers.size(); ++i) {
    if (!chosen()) continue;
    ++checked;
    const auto byte = first_difference(access.read(job.slots[i], scratch), job.keys[i]);
    if (!byte) continue;
    mismatches_.fetch_add(1, std::memory_order_acq_rel);
    const std::lock_guard lock{mutex_};
    if (!first_) first_ = Mismatch{job.request, i, job.keys[i], job.hit_tiers[i], job.slots[i], *byte};
  }
  checked_.fetch_add(checked, std::memory_order_acq_rel);
}

void Verifier::compute_rest(const ComputeJob& job, BlockAccess& access, std::span<std::byte> scratch) {
  const Stopwatch stopwatch{content_ns_};
  const BlockKey unshared = private_key(job.request);
  for (std::size_t i = job.hit_tiers.size(); i < job.slots.size(); ++i) {
    fill_content(access.write_target(job.slots[i], scratch), i < job.keys.size() ? job.keys[i] : unshared);
    access.written(job.slots[i], scratch);
  }
}

bool Verifier::chosen() {
  if (verify_ == Verify::none) return false;
  return verify_ == Verify::all || hits_++ % sample_every == 0;
}

std::optional<Mismatch> Verifier::first_mismatch() const {
  const std::lock_guard lock{mutex_};
  return first_;
}

}  // namespace terrace::tools
