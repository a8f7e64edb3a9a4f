#pragma once

#include "tools/plan/request_log.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <span>
#include <vector>

namespace terrace::tools {

/// When the blocks of each request are used next. Along a prefix, the next use only gets later, because a request that uses a
/// block uses all blocks before it. So a request has a few runs of blocks with the same next use.
class NextUses {
 public:
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();

  struct Run {
    std::uint32_t end = 0;       ///< the depth after the last block; the run begins at the end of the one before it
    std::uint32_t next = never;  ///< the number of the next request that uses these blocks
  };

  /// `go_on` is asked now and then. If it returns false, the object is not complete.
  NextUses(const RequestLog& log, const std::function<bool()>& go_on);

  [[nodiscard]] std::span<const Run> runs(std::uint32_t request) const {
    return std::span{runs_}.subspan(begin_[request], begin_[request + 1] - begin_[request]);
  }

 private:
  std::vector<Run> runs_;
  std::vector<std::size_t> begin_;  ///< by request, and the end of the last one
};

/// A cache that knows the future: the bound of what any eviction policy reaches (OPT; L. A. Belady: "A study of replacement
/// algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966). It evicts the leaf whose next use is farthest
/// away. The rules are those of a reference run (LruCurve).
///
/// Blocks are kept in groups by their next use. The cached blocks of a group are adjacent blocks of the request that uses them
/// next: the blocks before them are used earlier, and those after them have been evicted or were never there. So the farthest
/// leaf is the last block of the farthest group, and a group needs only its two ends.
///
/// Threads: one.
class OptCache {
 public:
  OptCache(const RequestLog& log, const NextUses& uses, std::uint64_t capacity);

  /// Serves the next request of the log. Returns how many of its blocks were cached.
  std::uint32_t serve();
  [[nodiscard]] std::uint64_t cached() const { return cached_; }

 private:
  struct Group {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };

  void evict(std::uint64_t blocks);
  void insert(NextUses::Run run, std::uint32_t begin);

  const RequestLog& log_;
  const NextUses& uses_;
  const std::uint64_t capacity_;
  std::vector<Group> groups_;                 ///< by the number of the request that uses them next
  std::priority_queue<std::uint32_t> queue_;  ///< the groups that are not empty, and those of earlier requests
  std::uint64_t never_again_ = 0;             ///< cached blocks without a next use; which of them goes first makes no difference
  std::uint64_t cached_ = 0;
  std::uint32_t now_ = 0;  ///< the number of the next request
};

/// The hits of a whole workload. If `go_on` returns false, the result is not complete.
[[nodiscard]] std::uint64_t opt_hits(const RequestLog& log, const NextUses& uses, std::uint64_t capacity,
                                     const std::function<bool()>& go_on);

}  // namespace terrace::tools
