#pragma once

#include "terrace/types.hpp"
#include "tools/replay/engine/key_maker.hpp"
#include "tools/replay/workload/workloads.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstdint>
#include <vector>

namespace terrace::tools {

/// The number of a block in a RequestLog. Blocks are numbered from 0 in the order in which they are first asked for, so a block's
/// number is higher than that of the block before it.
using BlockNumber = std::uint32_t;

/// The prompts of a workload, in order, for simulations that read them several times. Only full blocks count, and of outputs only
/// the length. Two prompts have a block in common if they are equal up to the end of that block; the keys decide (KeyMaker).
///
/// Memory: 12 bytes for each request, and about 200 for each different block. A request has only the number of its last block,
/// because each block knows the one before it. Threads: any may read; one may add while none reads.
class RequestLog {
 public:
  /// A request, or the part of it that counts: the prefix of `blocks` blocks that ends with `last`.
  struct Request {
    std::uint32_t blocks = 0;
    BlockNumber last = 0;             ///< not used if `blocks` is 0
    std::uint32_t output_tokens = 0;  ///< 0: the workload does not say
  };

  /// Keys begin at `root`, with which a policy that samples keys decides.
  RequestLog(const BlockKey& root, std::uint32_t block_tokens) : block_tokens_{block_tokens}, keys_{root} {}

  /// Throws std::length_error after 2^32 - 1 different blocks or requests.
  void add(const TraceRequest& request);

  [[nodiscard]] std::uint32_t block_tokens() const { return block_tokens_; }
  [[nodiscard]] const std::vector<Request>& requests() const { return requests_; }
  /// The number of different blocks: a cache of this size misses each of them once.
  [[nodiscard]] std::uint32_t different_blocks() const { return static_cast<std::uint32_t>(blocks_.size()); }
  /// The full blocks of all prompts.
  [[nodiscard]] std::uint64_t blocks() const { return total_blocks_; }
  /// The same, without those beyond the first `capacity` blocks of a prompt, which a cache of this size never keeps.
  [[nodiscard]] std::uint64_t blocks_within(std::uint64_t capacity) const;
  /// The full blocks of the longest prompt.
  [[nodiscard]] std::uint32_t longest() const { return longest_; }
  /// The tokens of all prompts, with those outside full blocks.
  [[nodiscard]] std::uint64_t tokens() const { return tokens_; }
  /// The time from the first arrival to the last.
  [[nodiscard]] double seconds() const { return requests_.empty() ? 0 : (latest_ms_ - earliest_ms_) / 1e3; }

  /// Writes the numbers of a request's blocks to `into`, first block first.
  void read(const Request& request, std::vector<BlockNumber>& into) const;
  [[nodiscard]] const BlockKey& key(BlockNumber block) const { return blocks_[block].key; }

 private:
  struct Block {
    BlockKey key;
    BlockNumber previous = 0;  ///< not used for the first block of a prefix
  };

  const std::uint32_t block_tokens_;
  KeyMaker keys_;
  boost::unordered_flat_map<BlockKey, BlockNumber, std::hash<BlockKey>> numbers_;
  std::vector<Block> blocks_;
  std::vector<Request> requests_;
  std::uint64_t total_blocks_ = 0;
  std::uint64_t tokens_ = 0;
  std::uint32_t longest_ = 0;
  double earliest_ms_ = 0;
  double latest_ms_ = 0;
};

}  // namespace terrace::tools
