#pragma once

#include "base/block_key.hpp"
#include "base/strong_id.hpp"
#include "base/tier.hpp"
#include "tools/replay/options.hpp"
#include "transfer/device.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace terrace::tools {

/// A request's work on the device, complete in itself: what it reads, what it writes.
struct ComputeJob {
  std::uint64_t request = 0;      ///< its number in the trace, from 1
  std::vector<BlockKey> keys;     ///< of the full blocks
  std::vector<Tier> hit_tiers;    ///< of the leading blocks, one per hit
  std::vector<SlotId> slots;      ///< of all blocks, a partly filled last one included
};

/// A hit block that did not hold what its key says.
struct Mismatch {
  std::uint64_t request = 0;
  std::size_t block = 0;
  BlockKey key;
  Tier found_in = Tier::device;
  SlotId slot;
  std::size_t byte = 0;  ///< the first that differs
};

[[nodiscard]] std::string describe(const Mismatch& mismatch);

/// What stands in for a model: compares the blocks that a request was given with what they must hold, and fills those that it
/// has to compute. Threads: run() from the device's compute, one at a time; the rest from any.
class Verifier {
 public:
  explicit Verifier(Verify verify) : verify_{verify} {}

  void run(const ComputeJob& job, BlockAccess& access, std::size_t block_bytes);

  [[nodiscard]] std::uint64_t checked() const { return checked_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t mismatches() const { return mismatches_.load(std::memory_order_acquire); }
  [[nodiscard]] std::optional<Mismatch> first_mismatch() const;
  /// Time spent comparing, and writing content.
  [[nodiscard]] double verify_seconds() const { return seconds(verify_ns_); }
  [[nodiscard]] double content_seconds() const { return seconds(content_ns_); }

 private:
  void compare_hits(const ComputeJob& job, BlockAccess& access, std::span<std::byte> scratch);
  void compute_rest(const ComputeJob& job, BlockAccess& access, std::span<std::byte> scratch);
  [[nodiscard]] bool chosen();
  [[nodiscard]] static double seconds(const std::atomic<std::uint64_t>& ns) {
    return static_cast<double>(ns.load(std::memory_order_acquire)) * 1e-9;
  }

  const Verify verify_;

  // run()'s own.
  std::uint64_t hits_ = 0;
  std::vector<std::byte> scratch_;

  std::atomic<std::uint64_t> checked_{0};
  std::atomic<std::uint64_t> mismatches_{0};
  std::atomic<std::uint64_t> verify_ns_{0};
  std::atomic<std::uint64_t> content_ns_{0};

  mutable std::mutex mutex_;  ///< first_
  std::optional<Mismatch> first_;
};

}  // namespace terrace::tools
