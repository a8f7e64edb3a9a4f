#pragma once

#include "runtime/cache/measure/lru_stack.hpp"
#include "tools/plan/request_log.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace terrace::tools {

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
