#include "tools/plan/lru_curve.hpp"

#include "tests/seed.hpp"
#include "tests/tools/plan/logs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

namespace terrace::tools {
namespace {

using test::log_of;
using test::Prompt;
using test::Prompts;

/// A cache with the rules of a reference run, written down as they are stated: no tree and no stack. A block is named by the
/// prefix that it ends.
class PlainLru {
 public:
  explicit PlainLru(std::size_t capacity) : capacity_{capacity} {}

  std::size_t serve(Prompt prompt) {
    prompt.resize(std::min(prompt.size(), capacity_));
    ++now_;
    std::size_t hits = 0;
    while (hits < prompt.size() && last_use_.contains(prefix_of(prompt, hits + 1))) ++hits;
    for (std::size_t n = 1; n <= hits; ++n) last_use_[prefix_of(prompt, n)] = now_;
    while (last_use_.size() + prompt.size() - hits > capacity_) evict();
    for (std::size_t n = hits + 1; n <= prompt.size(); ++n) last_use_[prefix_of(prompt, n)] = now_;
    return hits;
  }

 private:
  static Prompt prefix_of(const Prompt& prompt, std::size_t length) {
    return {prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(length)};
  }
  /// The order of the map puts what follows a block directly behind it.
  bool is_leaf(std::map<Prompt, std::uint64_t>::const_iterator block) const {
    const auto next = std::next(block);
    return next == last_use_.end() || next->first.size() <= block->first.size() ||
           !std::equal(block->first.begin(), block->first.end(), next->first.begin());
  }
  void evict() {
    auto victim = last_use_.end();
    for (auto block = last_use_.begin(); block != last_use_.end(); ++block) {
      if (block->second == now_ || !is_leaf(block)) continue;
      const bool is_first = victim == last_use_.end();
      if (is_first || block->second < victim->second) victim = block;
    }
    ASSERT_NE(victim, last_use_.end());
    last_use_.erase(victim);
  }

  const std::size_t capacity_;
  std::map<Prompt, std::uint64_t> last_use_;
  std::uint64_t now_ = 0;
};

TEST(LruCurve, equals_a_plain_simulation_of_every_size) {
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  struct Shape {
    std::size_t longest;
    std::uint64_t ids;
  };
  for (const Shape shape : {Shape{3, 4}, Shape{8, 2}, Shape{20, 2}, Shape{40, 1}, Shape{1, 30}}) {
    for (std::uint64_t run = 0; run < 4; ++run) {
      const Prompts prompts = test::random_prompts(seed + run, 120, shape.longest, shape.ids);
      const RequestLog log = log_of(prompts);
      const LruCurve curve{log, test::always};
      for (std::size_t capacity = 1; capacity <= log.different_blocks() + 2; capacity += 1 + capacity / 12) {
        PlainLru plain{capacity};
        std::size_t hits = 0;
        for (const Prompt& prompt : prompts) hits += plain.serve(prompt);
        ASSERT_EQ(curve.hits(capacity), hits) << "capacity " << capacity << ", " << shape.longest << " blocks";
      }
    }
  }
}

TEST(LruCurve, begins_at_nothing_and_ends_at_all_blocks_that_were_there_before) {
  const RequestLog log = log_of({{1, 2, 3}, {4, 5}, {1, 2, 6}, {1, 2, 3}});
  const LruCurve curve{log, test::always};
  EXPECT_EQ(curve.hits(0), 0U);
  EXPECT_EQ(curve.hits(log.different_blocks()), 5U);
  EXPECT_EQ(curve.hits(1'000'000), 5U);
}

}  // namespace
}  // namespace terrace::tools
