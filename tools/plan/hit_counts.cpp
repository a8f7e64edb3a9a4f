#include "tools/plan/hit_counts.hpp"

#include "base/check.hpp"
#include "runtime/cache/measure/lru_stack.hpp"
#include "terrace/policies.hpp"
#include "tools/interrupted.hpp"
#include "tools/plan/cache_simulator.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>
#include <ranges>
#include <span>

namespace terrace::tools {

std::optional<double> share_of_way(std::uint64_t hits, std::uint64_t lru, std::uint64_t bound) {
  if (bound <= lru) return std::nullopt;
  return (static_cast<double>(hits) - static_cast<double>(lru)) / static_cast<double>(bound - lru);
}

/// When the blocks of each request are used next. Along a prefix, the next use only gets later, because a request that uses a
/// block uses all blocks before it. So a request has a few runs of blocks with the same next use.
class NextUses {
 public:
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();

  struct Run {
    std::uint32_t end = 0;       ///< the depth after the last block; the run begins at the end of the one before it
    std::uint32_t next = never;  ///< the number of the next request that uses these blocks
  };

  NextUses(const RequestLog& log, const std::function<bool()>& go_on) {
    const auto count = static_cast<std::uint32_t>(log.requests().size());
    std::vector<std::uint32_t> next(log.different_blocks(), never);  // by block, for the requests behind the one at hand
    std::vector<BlockNumber> prefix;
    std::vector<Run> backward;  // the runs of the last request come first, and so does the last run of each
    std::vector<std::size_t> sizes(count);
    for (std::uint32_t request = count; request-- > 0;) {
      if (!go_on()) return;
      log.read(log.requests()[request], prefix);
      const std::size_t before = backward.size();
      for (std::size_t depth = prefix.size(); depth-- > 0;) {
        std::uint32_t& use = next[prefix[depth]];
        const bool is_first = backward.size() == before;
        if (is_first || backward.back().next != use) backward.push_back({static_cast<std::uint32_t>(depth + 1), use});
        use = request;
      }
      sizes[request] = backward.size() - before;
    }
    runs_.assign(backward.rbegin(), backward.rend());
    begin_.resize(count + std::size_t{1});
    for (std::uint32_t request = 0; request < count; ++request) begin_[request + 1] = begin_[request] + sizes[request];
  }

  [[nodiscard]] std::span<const Run> runs(std::uint32_t request) const {
    return std::span{runs_}.subspan(begin_[request], begin_[request + 1] - begin_[request]);
  }

 private:
  std::vector<Run> runs_;
  std::vector<std::size_t> begin_;  ///< by request, and the end of the last one
};

namespace {

// Each of these asks `go_on` now and then. If it returns false, the result is not complete.

/// The hits of an LRU cache by its size, exactly and for all sizes from one pass over the workload.
///
/// The rules are those of a reference run: requests come one at a time, the longest cached prefix hits, and then the least
/// recently used leaves are evicted until the other blocks fit. All blocks of a request have the same age, and among blocks of
/// the same age the deepest is evicted first. This is plain LRU for single blocks if the blocks of a request are used from the
/// last to the first: a block is then always above all blocks that follow it, so the bottom of the stack is a leaf, and the
/// blocks of a prefix that are within the first C are its first ones. If a prompt is longer than the cache, the cache keeps its
/// first C blocks; they are the first C of the stack, too.
std::vector<std::uint64_t> lru_hits(const RequestLog& log, const std::function<bool()>& go_on) {
  std::vector<std::uint64_t> hits(log.different_blocks() + std::size_t{1});
  LruStack stack;
  std::vector<BlockNumber> prefix;
  for (const RequestLog::Request& request : log.requests()) {
    if (!go_on()) break;
    log.read(request, prefix);
    for (const BlockNumber block : prefix) {
      const std::uint32_t distance = stack.position(block);
      if (distance == LruStack::unknown) break;  // so are the blocks after it
      ++hits[distance];
    }
    for (const BlockNumber block : std::views::reverse(prefix)) stack.use(block);
  }
  std::partial_sum(hits.begin(), hits.end(), hits.begin());
  return hits;
}

/// A cache that knows the future: the bound of what any eviction policy reaches (OPT; L. A. Belady: "A study of replacement
/// algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966). It evicts the leaf whose next use is farthest
/// away. The rules are those of a reference run (lru_hits()).
///
/// Blocks are kept in groups by their next use. The cached blocks of a group are adjacent blocks of the request that uses them
/// next: the blocks before them are used earlier, and those after them have been evicted or were never there. So the farthest
/// leaf is the last block of the farthest group, and a group needs only its two ends.
///
/// Threads: one.
class OptCache {
 public:
  OptCache(const RequestLog& log, const NextUses& uses, std::uint64_t capacity)
      : log_{log}, uses_{uses}, capacity_{capacity}, groups_(log.requests().size()) {}

  /// Serves the next request of the log. Returns how many of its blocks were cached.
  std::uint32_t serve() {
    const std::uint32_t request = now_++;
    const auto length = static_cast<std::uint32_t>(std::min<std::uint64_t>(log_.requests()[request].blocks, capacity_));
    // All cached blocks of this prefix are used next by this request. They leave their group now, so none of them is evicted.
    const std::uint32_t hits = groups_[request].end;
    TERRACE_CHECK(hits == 0 || groups_[request].begin == 0);
    TERRACE_CHECK(hits <= length);
    const std::uint64_t missing = length - hits;
    if (cached_ + missing > capacity_) evict(cached_ + missing - capacity_);
    cached_ += missing;
    std::uint32_t begin = 0;
    for (NextUses::Run run : uses_.runs(request)) {
      if (begin >= length) break;
      run.end = std::min(run.end, length);
      insert(run, begin);
      begin = run.end;
    }
    return hits;
  }

 private:
  struct Group {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };

  void insert(NextUses::Run run, std::uint32_t begin) {
    if (run.next == NextUses::never) {
      never_again_ += run.end - begin;
      return;
    }
    Group& group = groups_[run.next];
    if (group.begin == group.end) {
      group.end = run.end;
      queue_.push(run.next);
    } else {
      TERRACE_CHECK(group.begin == run.end);
    }
    group.begin = begin;
  }

  void evict(std::uint64_t blocks) {
    cached_ -= blocks;
    const std::uint64_t unused = std::min(blocks, never_again_);
    never_again_ -= unused;
    blocks -= unused;
    while (blocks > 0) {
      TERRACE_CHECK(!queue_.empty() && queue_.top() >= now_);
      Group& group = groups_[queue_.top()];
      const auto taken = static_cast<std::uint32_t>(std::min<std::uint64_t>(blocks, group.end - group.begin));
      group.end -= taken;
      blocks -= taken;
      if (group.begin < group.end) continue;
      group = {};
      queue_.pop();
    }
  }

  const RequestLog& log_;
  const NextUses& uses_;
  const std::uint64_t capacity_;
  std::vector<Group> groups_;                 ///< by the number of the request that uses them next
  std::priority_queue<std::uint32_t> queue_;  ///< the groups that are not empty, and those of earlier requests
  std::uint64_t never_again_ = 0;             ///< cached blocks without a next use; which of them goes first makes no difference
  std::uint64_t cached_ = 0;
  std::uint32_t now_ = 0;  ///< the number of the next request
};

std::uint64_t opt_hits(const RequestLog& log, const NextUses& uses, std::uint64_t capacity, const std::function<bool()>& go_on) {
  OptCache cache{log, uses, capacity};
  std::uint64_t hits = 0;
  for (std::size_t request = 0; request < log.requests().size() && go_on(); ++request) hits += cache.serve();
  return hits;
}

std::uint64_t default_hits(const RequestLog& log, std::uint32_t capacity, const std::function<bool()>& go_on) {
  if (capacity == 0) return 0;
  const auto policy = adaptive_policy(capacity);
  CacheSimulator cache{*policy, capacity};
  std::vector<BlockNumber> prefix;
  std::vector<BlockKey> keys;
  std::uint64_t hits = 0;
  for (const RequestLog::Request& request : log.requests()) {
    if (!go_on()) break;
    log.read(request, prefix);
    keys.clear();
    for (const BlockNumber block : prefix) keys.push_back(log.key(block));
    const std::uint32_t output = request.output_tokens;
    if (!keys.empty()) hits += cache.serve(keys, output > 0 ? std::optional<std::uint64_t>{output} : std::nullopt);
  }
  return hits;
}

}  // namespace

std::uint64_t HitCounts::hits(PlanPolicy policy, std::uint64_t capacity) {
  capacity = std::min<std::uint64_t>(capacity, log_.different_blocks());
  const auto known = known_.find({policy, capacity});
  if (known != known_.end()) return known->second;
  const std::uint64_t hits = compute(policy, capacity);
  // A pass that was stopped early has a wrong result.
  if (!go_on_()) throw Interrupted{};
  known_[{policy, capacity}] = hits;
  return hits;
}

std::uint64_t HitCounts::compute(PlanPolicy policy, std::uint64_t capacity) {
  switch (policy) {
    case PlanPolicy::lru:
      if (lru_.empty()) lru_ = lru_hits(log_, go_on_);
      return lru_[capacity];
    case PlanPolicy::default_policy: return default_hits(log_, static_cast<std::uint32_t>(capacity), go_on_);
    case PlanPolicy::opt:
      if (!next_uses_) next_uses_ = std::make_shared<const NextUses>(log_, go_on_);
      return opt_hits(log_, *next_uses_, capacity, go_on_);
  }
  return 0;
}

}  // namespace terrace::tools
