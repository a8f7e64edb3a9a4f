// Host admission: choosy where the host is small for its work, open where it is large, and never on a whim.

#include "radix/eviction/admission_filter.hpp"
#include "tests/radix/cache_simulator.hpp"
#include "tests/radix/workloads.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace terrace {
namespace {

using test::CheapKeys;
using test::Requests;

/// Two tiers of single blocks, least recently used first in both, as flat as can be. `filter` may be null.
class FlatTiers {
 public:
  FlatTiers(std::size_t device, std::size_t host, AdmissionFilter* filter) : device_{device}, host_{host}, filter_{filter} {}

  /// Hits of host and device together, in per cent.
  double serve(const Requests& requests) {
    std::uint64_t hits = 0;
    std::uint64_t blocks = 0;
    for (const auto& request : requests) {
      const auto keys = keys_.of(request);
      std::size_t on_device = 0;
      while (on_device < keys.size() && device_.has(keys[on_device])) ++on_device;
      if (filter_ != nullptr) filter_->on_request(keys, on_device);
      for (const BlockKey& key : keys) hits += use(key);
      blocks += keys.size();
    }
    return 100.0 * static_cast<double>(hits) / static_cast<double>(blocks);
  }
  [[nodiscard]] std::uint64_t swapped_out() const { return swapped_out_; }

 private:
  struct Lru {
    std::size_t capacity;
    std::map<BlockKey, std::uint64_t> ages{};
    std::map<std::uint64_t, BlockKey> by_age{};

    [[nodiscard]] bool has(const BlockKey& key) const { return ages.contains(key); }
    void erase(const BlockKey& key) {
      const auto found = ages.find(key);
      if (found == ages.end()) return;
      by_age.erase(found->second);
      ages.erase(found);
    }
    /// What had to go for it.
    std::optional<BlockKey> put(const BlockKey& key, std::uint64_t now) {
      erase(key);
      ages[key] = now;
      by_age[now] = key;
      if (ages.size() <= capacity) return std::nullopt;
      const BlockKey oldest = by_age.begin()->second;
      erase(oldest);
      return oldest;
    }
  };

  bool use(const BlockKey& key) {
    const bool on_device = device_.has(key);
    const bool in_host = host_.has(key);
    if (in_host) host_.put(key, ++now_);
    const std::optional<BlockKey> victim = device_.put(key, ++now_);
    if (victim && !host_.has(*victim) && (filter_ == nullptr || filter_->admits(*victim))) {
      host_.put(*victim, ++now_);
      ++swapped_out_;
    }
    return on_device || in_host;
  }

  Lru device_;
  Lru host_;
  AdmissionFilter* filter_;
  CheapKeys keys_;
  std::uint64_t now_ = 0;
  std::uint64_t swapped_out_ = 0;
};

AdmissionFilter make_filter(std::uint32_t device, std::uint32_t host) {
  return AdmissionFilter{{device, host}, AdmissionFilter::OnHit::stays};
}

TEST(AdmissionFilterTest, keeps_a_small_host_for_what_is_used_again) {
  const Requests requests = test::zipf({2000, 1, 300'000});
  AdmissionFilter filter = make_filter(100, 500);
  FlatTiers filtered{100, 500, &filter};
  FlatTiers open{100, 500, nullptr};
  const double with = filtered.serve(requests);
  EXPECT_GT(with, open.serve(requests) + 2);
  EXPECT_TRUE(filter.choosy());
  EXPECT_LT(filtered.swapped_out(), open.swapped_out() / 2);
  filter.check_invariants();
}

/// A loop over more than the device holds, and less than both do: all of it is used only once before it is needed again.
TEST(AdmissionFilterTest, lets_everything_into_a_host_that_holds_it_until_its_second_use) {
  const Requests requests = test::loop({1000, 1, 30'000});
  AdmissionFilter filter = make_filter(200, 2000);
  FlatTiers filtered{200, 2000, &filter};
  FlatTiers open{200, 2000, nullptr};
  EXPECT_EQ(filtered.serve(requests), open.serve(requests));
  EXPECT_FALSE(filter.choosy());
  EXPECT_EQ(filtered.swapped_out(), open.swapped_out());
}

TEST(AdmissionFilterTest, opens_again_when_the_work_fits) {
  AdmissionFilter filter = make_filter(100, 500);
  FlatTiers tiers{100, 500, &filter};
  tiers.serve(test::zipf({2000, 1, 300'000}));
  EXPECT_TRUE(filter.choosy());
  tiers.serve(test::drift({500, 2, 300'000}));
  EXPECT_FALSE(filter.choosy());
}

TEST(AdmissionFilterTest, costs_no_more_than_half_a_point_on_any_workload) {
  for (const test::Workload& workload : test::all_workloads()) {
    for (const std::uint32_t host : {300U, 1000U, 4000U}) {
      SCOPED_TRACE(workload.name + ", a host of " + std::to_string(host));
      const Requests requests = workload.make({1000, 1, 50'000});
      AdmissionFilter filter = make_filter(200, host);
      const double with = FlatTiers{200, host, &filter}.serve(requests);
      EXPECT_GE(with, (FlatTiers{200, host, nullptr}.serve(requests)) - 0.5);
    }
  }
}

TEST(RecentSetTest, knows_the_last_and_few_strangers) {
  constexpr std::size_t size = 1000;
  RecentSet set{size};
  CheapKeys keys;
  std::vector<BlockKey> all;
  for (std::uint64_t i = 0; i < 5 * size; ++i) all.push_back(keys.of(std::vector<std::uint64_t>{i}).front());
  std::size_t known = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    known += set.insert(all[i]);
    EXPECT_TRUE(set.contains(all[i]));
    if (i >= size) {
      EXPECT_TRUE(set.contains(all[i - size + 1])) << i;
    }
  }
  EXPECT_LT(known, all.size() / 20);
  std::size_t strangers = 0;
  for (std::size_t i = 0; i < 2 * size; ++i) strangers += set.contains(all[i]);
  EXPECT_LT(strangers, 2 * size / 20);
}

}  // namespace
}  // namespace terrace
