#include "tools/plan/opt_cache.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace terrace::tools {

NextUses::NextUses(const RequestLog& log, const std::function<bool()>& go_on) {
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

OptCache::OptCache(const RequestLog& log, const NextUses& uses, std::uint64_t capacity)
    : log_{log}, uses_{uses}, capacity_{capacity}, groups_(log.requests().size()) {}

std::uint32_t OptCache::serve() {
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

void OptCache::insert(NextUses::Run run, std::uint32_t begin) {
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

void OptCache::evict(std::uint64_t blocks) {
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

std::uint64_t opt_hits(const RequestLog& log, const NextUses& uses, std::uint64_t capacity, const std::function<bool()>& go_on) {
  OptCache cache{log, uses, capacity};
  std::uint64_t hits = 0;
  for (std::size_t request = 0; request < log.requests().size() && go_on(); ++request) hits += cache.serve();
  return hits;
}

}  // namespace terrace::tools
