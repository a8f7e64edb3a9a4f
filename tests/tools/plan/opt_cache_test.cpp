#include "tools/plan/opt_cache.hpp"

#include "tests/seed.hpp"
#include "tests/tools/plan/logs.hpp"
#include "tools/plan/lru_curve.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace terrace::tools {
namespace {

using test::log_of;
using test::Prompt;
using test::Prompts;

/// The most hits of any cache that evicts only leaves, by trying every choice. A block is named by the prefix that it ends.
class EveryChoice {
 public:
  EveryChoice(Prompts prompts, std::size_t capacity) : prompts_{std::move(prompts)} {
    for (Prompt& prompt : prompts_) prompt.resize(std::min(prompt.size(), capacity));
    capacity_ = capacity;
  }

  std::size_t best(std::size_t request = 0, const std::set<Prompt>& cached = {}) {
    if (request == prompts_.size()) return 0;
    const auto known = best_.find({request, cached});
    if (known != best_.end()) return known->second;
    const Prompt& prompt = prompts_[request];
    std::size_t hits = 0;
    while (hits < prompt.size() && cached.contains(prefix_of(prompt, hits + 1))) ++hits;
    const std::size_t result = hits + best_after_room(request, cached, prompt.size() - hits);
    best_[{request, cached}] = result;
    return result;
  }

 private:
  static Prompt prefix_of(const Prompt& prompt, std::size_t length) {
    return {prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(length)};
  }
  static bool begins_with(const Prompt& prompt, const Prompt& prefix) {
    return prompt.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), prompt.begin());
  }

  std::size_t best_after_room(std::size_t request, const std::set<Prompt>& cached, std::size_t missing) {
    const Prompt& prompt = prompts_[request];
    if (cached.size() + missing <= capacity_) {
      std::set<Prompt> after = cached;
      for (std::size_t n = 1; n <= prompt.size(); ++n) after.insert(prefix_of(prompt, n));
      return best(request + 1, after);
    }
    std::size_t most = 0;
    for (const Prompt& block : cached) {
      const bool is_inner = std::ranges::any_of(
          cached, [&](const Prompt& other) { return other.size() > block.size() && begins_with(other, block); });
      if (is_inner || begins_with(prompt, block)) continue;
      std::set<Prompt> without = cached;
      without.erase(block);
      most = std::max(most, best_after_room(request, without, missing));
    }
    return most;
  }

  Prompts prompts_;
  std::size_t capacity_;
  std::map<std::pair<std::size_t, std::set<Prompt>>, std::size_t> best_;
};

std::uint64_t opt_of(const RequestLog& log, std::uint64_t capacity) {
  return opt_hits(log, NextUses{log, test::always}, capacity, test::always);
}

TEST(OptCache, hits_as_much_as_the_best_of_all_choices) {
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  for (std::uint64_t run = 0; run < 60; ++run) {
    const Prompts prompts = test::random_prompts(seed + run, 9, 1 + run % 4, run % 4 == 0 ? 6 : 2);
    const RequestLog log = log_of(prompts);
    for (std::size_t capacity = 1; capacity <= 5; ++capacity) {
      ASSERT_EQ(opt_of(log, capacity), (EveryChoice{prompts, capacity}.best())) << "run " << run << ", capacity " << capacity;
    }
  }
}

TEST(OptCache, never_hits_less_than_lru_or_a_smaller_one) {
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  const RequestLog log = log_of(test::random_prompts(seed, 2000, 9, 2));
  const LruCurve lru{log, test::always};
  std::uint64_t before = 0;
  for (std::uint64_t capacity = 1; capacity <= log.different_blocks(); capacity += 7) {
    const std::uint64_t hits = opt_of(log, capacity);
    EXPECT_GE(hits, lru.hits(capacity));
    EXPECT_GE(hits, before);
    before = hits;
  }
  EXPECT_EQ(opt_of(log, log.different_blocks()), log.blocks() - log.different_blocks());
}

TEST(OptCache, keeps_the_block_that_comes_back_first) {
  // One of 1 and 2 has to leave for 3. LRU evicts 1, which comes back first.
  const RequestLog log = log_of({{1}, {2}, {3}, {1}, {2}});
  EXPECT_EQ(opt_of(log, 2), 1U);
  EXPECT_EQ((LruCurve{log, test::always}.hits(2)), 0U);
}

}  // namespace
}  // namespace terrace::tools
