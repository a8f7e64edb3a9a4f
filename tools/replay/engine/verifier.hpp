#pragma once

#include "terrace/device.hpp"
#include "terrace/types.hpp"
#include "tools/replay/engine/compute_batch.hpp"
#include "tools/replay/options/options.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace terrace::tools {

/// The shape of a block: each of its tokens has an equal share of its bytes.
struct BlockShape {
  Bytes bytes{};
  std::uint32_t tokens = 1;
  /// If each rank has a part of a block: the offset of this rank's part in the block. `bytes` is the size of the part. A multiple
  /// of eight.
  Bytes begin = {};
  std::uint32_t layers = 1;  ///< of equal size, a multiple of eight

  /// The offset at which the share of a token begins; for `tokens` it is the end of the block. Each word belongs to one token
  /// only.
  [[nodiscard]] std::size_t offset_of(std::uint32_t token) const;
};

/// A hit block whose content does not match its key.
struct Mismatch {
  std::uint64_t request = 0;
  std::size_t block = 0;
  BlockKey key;
  Source found_in = Source::device;
  SlotId slot;
  std::size_t byte = 0;  ///< the first byte that differs
};

[[nodiscard]] std::string describe(const Mismatch& mismatch);

/// Takes the place of a model. It compares the blocks that a request got from the cache with their expected content, and writes
/// the content of computed tokens. Each rank has its own verifier. Threads: run() from the compute thread of the device, one call
/// at a time; the other members from any.
class Verifier {
 public:
  Verifier(Verify verify, const BlockShape& shape);
  /// `shapes`: those of the blocks, by GroupId.
  Verifier(Verify verify, std::vector<BlockShape> shapes);

  /// Compares the hits and then writes the parts. The batch must not read a block that it also writes. Stores in the batch how
  /// many hits were compared.
  void run(ComputeBatch& batch, BlockAccess& access);

  /// These counts include hits of requests that were aborted later.
  [[nodiscard]] std::uint64_t compared() const { return compared_.load(std::memory_order_acquire); }
  /// Hit blocks of groups other than the first that were compared, and blocks of which single layers were.
  [[nodiscard]] std::uint64_t group_blocks() const { return group_blocks_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t layered_blocks() const { return layered_blocks_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t mismatches() const { return mismatches_.load(std::memory_order_acquire); }
  [[nodiscard]] std::optional<Mismatch> first_mismatch() const;
  /// Seconds spent on comparing, and on writing content.
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
  const std::vector<BlockShape> shapes_;

  // Used by run() only.
  std::uint64_t hits_ = 0;
  std::vector<std::byte> scratch_;

  std::atomic<std::uint64_t> compared_{0};
  std::atomic<std::uint64_t> group_blocks_{0};
  std::atomic<std::uint64_t> layered_blocks_{0};
  std::atomic<std::uint64_t> mismatches_{0};
  std::atomic<std::uint64_t> verify_ns_{0};
  std::atomic<std::uint64_t> content_ns_{0};

  mutable std::mutex mutex_;  ///< guards first_
  std::optional<Mismatch> first_;
};

}  // namespace terrace::tools
