#include "base/key_table.hpp"

#include "base/random.hpp"
#include "terrace/policies.hpp"
#include "tests/seed.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace terrace {
namespace {

/// There are so few tags that many keys share one.
BlockKey key_of(std::uint64_t number, std::uint64_t tags) {
  BlockKey key;
  const std::uint64_t tag = number % tags * 0x9E37'79B9U;
  std::memcpy(key.bytes.data(), &tag, sizeof tag);
  std::memcpy(key.bytes.data() + sizeof tag, &number, sizeof number);
  return key;
}

TEST(KeyTable, agrees_with_a_map_under_random_steps) {
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  for (const std::uint64_t tags : {1U, 40U, 1'000'000U}) {
    Random random{seed};
    KeyTable<NodeId> table;
    std::map<std::uint64_t, NodeId> model;
    std::vector<std::uint64_t> owner(400);  // by node
    const auto find = [&](std::uint64_t number) {
      return table.find(key_of(number, tags), [&](NodeId node) { return owner[node.value()] == number; });
    };
    for (std::uint32_t step = 0; step < 20'000; ++step) {
      const std::uint64_t number = random.below(owner.size());
      if (const auto there = model.find(number); there != model.end()) {
        table.erase(key_of(number, tags), there->second);
        model.erase(there);
      } else {
        const NodeId node{static_cast<std::uint32_t>(number)};
        owner[node.value()] = number;
        table.insert(key_of(number, tags), node);
        model.emplace(number, node);
      }
      ASSERT_EQ(table.size(), model.size());
      const std::uint64_t asked = random.below(owner.size());
      const auto expected = model.find(asked);
      ASSERT_EQ(find(asked), expected == model.end() ? table.none : expected->second);
    }
    for (const auto& [number, node] : model) ASSERT_EQ(find(number), node);
  }
}

}  // namespace
}  // namespace terrace
