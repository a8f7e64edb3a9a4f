#pragma once

#include "base/block_key.hpp"
#include "base/bytes.hpp"
#include "base/strong_id.hpp"
#include "base/tier.hpp"
#include "tools/replay/engine/compute_batch.hpp"
#include "tools/replay/options/options.hpp"
#include "transfer/device/device.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace terrace::tools {

/// What a block consists of: as many equal shares of bytes as tokens.
struct BlockShape {
  Bytes bytes{};
  std::uint32_t tokens = 1;
  /// What of the block is here, where each rank has a share: so many bytes of it, from there on. A multiple of eight.
  Bytes begin = {};

  /// Where the share of a token begins, that of the one behind the last included. Of a block's words each belongs to one token.
  [[nodiscard]] std::size_t offset_of(std::uint32_t token) const;
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

/// What stands in for a model: compares the blocks that a request was given with what they must hold, and writes the tokens that
/// are computed, each into its share of its block. Each rank has its own. Threads: run() from the device's compute, one at a
/// time; the rest from any.
class Verifier {
 public:
  Verifier(Verify verify, const BlockShape& shape);

  /// Compares first and writes then: no part of a batch is read by the same batch. Notes in it how many hits were compared.
  void run(ComputeBatch& batch, BlockAccess& access);

  /// Of all hits, whatever became of their request.
  [[nodiscard]] std::uint64_t compared() const { return compared_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t mismatches() const { return mismatches_.load(std::memory_order_acquire); }
  [[nodiscard]] std::optional<Mismatch> first_mismatch() const;
  /// Time spent comparing, and writing content.
  [[nodiscard]] double verify_seconds() const { return seconds(verify_ns_); }
  [[nodiscard]] double content_seconds() const { return seconds(content_ns_); }

 private:
  void compare(ComputeBatch::Hits& hits, BlockAccess& access);
  void write(const ComputeBatch::Part& part, BlockAccess& access);
  [[nodiscard]] bool chosen();
  [[nodiscard]] static double seconds(const std::atomic<std::uint64_t>& ns) {
    return static_cast<double>(ns.load(std::memory_order_acquire)) * 1e-9;
  }

  const Verify verify_;
  const BlockShape shape_;

  // run()'s own.
  std::uint64_t hits_ = 0;
  std::vector<std::byte> scratch_;

  std::atomic<std::uint64_t> compared_{0};
  std::atomic<std::uint64_t> mismatches_{0};
  std::atomic<std::uint64_t> verify_ns_{0};
  std::atomic<std::uint64_t> content_ns_{0};

  mutable std::mutex mutex_;  ///< first_
  std::optional<Mismatch> first_;
};

}  // namespace terrace::tools
