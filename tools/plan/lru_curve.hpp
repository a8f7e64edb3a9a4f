#pragma once

#include "tools/plan/request_log.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace terrace::tools {

/// Blocks in the order of their last use: an LRU stack. Its first C blocks are those that a cache of C blocks has, for every C at
/// once, because LRU is a stack algorithm (R. L. Mattson, J. Gecsei, D. R. Slutz, I. L. Traiger: "Evaluation techniques for
/// storage hierarchies", IBM Systems Journal 9(2), 1970). So the position of a block before its use, its stack distance, is the
/// smallest cache that hits it.
///
/// Each use takes the next place in a row of places. A position is the number of blocks at later places, which a binary indexed
/// tree counts in O(log n) (B. T. Bennett, V. J. Kruskal: "LRU stack processing", IBM Journal of Research and Development 19(4),
/// 1975; P. M. Fenwick: "A new data structure for cumulative frequency tables", Software: Practice and Experience 24(3), 1994).
/// When all places are taken, those that are in use are numbered anew, so memory is in proportion to the different blocks.
///
/// Threads: one.
class LruStack {
 public:
  static constexpr std::uint32_t unknown = 0;

  /// Returns the position of the block, counted from 1, or `unknown`.
  [[nodiscard]] std::uint32_t position(BlockNumber block) const;
  /// Moves the block to position 1.
  void use(BlockNumber block);
  /// The number of blocks.
  [[nodiscard]] std::uint32_t size() const { return size_; }

 private:
  static constexpr std::uint32_t no_place = std::numeric_limits<std::uint32_t>::max();

  void add(std::uint32_t place, std::int32_t difference);
  void make_places();

  std::vector<std::uint32_t> place_of_;  ///< by block
  std::vector<BlockNumber> block_at_;    ///< by place; valid if place_of_ agrees
  std::vector<std::uint32_t> counts_;    ///< the binary indexed tree: entry i counts the places (i - lowest set bit of i, i]
  std::uint32_t next_place_ = 0;
  std::uint32_t size_ = 0;
};

/// How many blocks of the workload an LRU cache hits, by its size, exactly and for all sizes from one pass over the workload.
///
/// The rules are those of a reference run: requests come one at a time, the longest cached prefix hits, and then the least
/// recently used leaves are evicted until the other blocks fit. All blocks of a request have the same age, and among blocks of
/// the same age the deepest is evicted first. This is plain LRU for single blocks if the blocks of a request are used from the
/// last to the first: a block is then always above all blocks that follow it, so the bottom of the stack is a leaf, and the
/// blocks of a prefix that are within the first C are its first ones. If a prompt is longer than the cache, the cache keeps its
/// first C blocks; they are the first C of the stack, too.
class LruCurve {
 public:
  /// Reads the whole workload. `go_on` is asked now and then. If it returns false, the curve is not complete.
  LruCurve(const RequestLog& log, const std::function<bool()>& go_on);

  [[nodiscard]] std::uint64_t hits(std::uint64_t capacity) const;

 private:
  std::vector<std::uint64_t> hits_{0};  ///< by capacity; it does not grow after the last one
};

}  // namespace terrace::tools
