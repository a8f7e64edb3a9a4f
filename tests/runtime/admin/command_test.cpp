// Commands as JSON: what is read, and what is refused with which sentence.

#include "runtime/admin/command.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace terrace::admin {
namespace {

/// The sentence with which `read` refuses; empty if it accepts.
std::string refusal(const std::function<void()>& read) {
  try {
    read();
  } catch (const BadBody& error) {
    return error.what();
  }
  return "";
}

TEST(AdminCommand, a_resize_is_in_blocks_or_in_bytes) {
  const Resize in_blocks = read_resize(R"({"tier": "device", "pool": 3, "blocks": 1000})");
  EXPECT_EQ(in_blocks.tier, Tier::device);
  EXPECT_EQ(in_blocks.pool, PoolId{3});
  EXPECT_EQ(in_blocks.blocks, 1000U);
  EXPECT_FALSE(in_blocks.bytes.has_value());
  EXPECT_EQ(read_resize(R"({"tier": "host", "bytes": "8GiB"})").bytes, GiB * 8);
  EXPECT_EQ(read_resize(R"({"tier": "storage", "bytes": 4096})").bytes, KiB * 4);
}

TEST(AdminCommand, a_clear_keeps_nothing_and_does_not_wait_unless_asked_to) {
  EXPECT_FALSE(read_clear("").options.keep_storage);
  EXPECT_FALSE(read_clear("{}").options.keep_shared);
  EXPECT_FALSE(read_clear("{}").options.wait);
  EXPECT_TRUE(read_clear(R"({"keep-storage": true})").options.keep_storage);
  EXPECT_TRUE(read_clear(R"({"keep-shared": true})").options.keep_shared);
  EXPECT_TRUE(read_clear(R"({"wait": true})").options.wait);
}

TEST(AdminCommand, an_update_names_the_weights) {
  EXPECT_EQ(read_update(R"({"weights-revision": "2"})").weights_revision, "2");
  EXPECT_FALSE(read_update(R"({"weights-revision": "2"})").wait);
  EXPECT_TRUE(read_update(R"({"weights-revision": "2", "wait": true})").wait);
}

TEST(AdminCommand, a_job_has_a_scope_and_its_bounds) {
  using Scope = WriteBackOrder::Scope;
  EXPECT_EQ(read_start_job("").order.scope, Scope::all);
  EXPECT_EQ(read_start_job("").order.target, WriteBackOrder::Target::storage);
  EXPECT_EQ(read_start_job(R"({"target": "shared"})").order.target, WriteBackOrder::Target::shared);
  EXPECT_TRUE(read_start_job("").order.durable);
  const StartJob idle =
      read_start_job(R"({"scope": "idle", "unused-for": "10min", "deadline": "30s", "budget": "1GiB", "durable": false})");
  EXPECT_EQ(idle.order.scope, Scope::idle);
  EXPECT_EQ(idle.order.unused_for, std::chrono::minutes{10});
  EXPECT_EQ(idle.deadline, std::chrono::seconds{30});
  EXPECT_EQ(idle.order.budget, GiB);
  EXPECT_FALSE(idle.order.durable);
  EXPECT_EQ(read_start_job(R"({"scope": "tenant", "tenant": 18446744073709551615})").order.tenant, TenantId{~0ULL});
  EXPECT_EQ(read_start_job(R"({"scope": "request", "request": 7})").order.request, RequestId{7});
  const std::string key(64, 'a');
  const StartJob prefix = read_start_job(R"({"scope": "prefix", "keys": [")" + key + R"("]})");
  ASSERT_EQ(prefix.keys.size(), 1U);
  EXPECT_EQ(to_hex(prefix.keys[0]), key);
}

TEST(AdminCommand, what_is_wrong_is_named) {
  const std::vector<std::pair<std::function<void()>, std::string>> wrong{
      {[] { (void)read_resize("[1]"); }, "the body must be a JSON object"},
      {[] { (void)read_resize("{"); }, "the body is not JSON"},
      {[] { (void)read_resize(R"({"tier": "host", "bytes": 1, "bytes ": 2})"); }, "did you mean bytes?"},
      {[] { (void)read_resize(R"({"blocks": 5})"); }, "\"tier\" is missing"},
      {[] { (void)read_resize(R"({"tier": "disk", "blocks": 5})"); }, "one of device, host, storage"},
      {[] { (void)read_resize(R"({"tier": "host"})"); }, "give \"blocks\" or \"bytes\""},
      {[] { (void)read_resize(R"({"tier": "host", "blocks": 5, "bytes": 5})"); }, "give \"blocks\" or \"bytes\""},
      {[] { (void)read_resize(R"({"tier": "host", "blocks": -5})"); }, "\"blocks\" must be a whole number"},
      {[] { (void)read_resize(R"({"tier": "host", "blocks": 1.5})"); }, "\"blocks\" must be a whole number"},
      {[] { (void)read_resize(R"({"tier": "host", "blocks": 5000000000})"); }, "from 0 to 4294967295"},
      {[] { (void)read_resize(R"({"tier": "host", "pool": 70000, "blocks": 5})"); }, "from 0 to 65535"},
      {[] { (void)read_resize(R"({"tier": "host", "bytes": "8GB"})"); }, "\"bytes\""},
      {[] { (void)read_clear(R"({"keep-storage": 1})"); }, "\"keep-storage\" must be true or false"},
      {[] { (void)read_clear(R"({"storage": true})"); }, "\"storage\": there is no such field here"},
      {[] { (void)read_update("{}"); }, "\"weights-revision\" is missing"},
      {[] { (void)read_start_job(R"({"target": "host"})"); }, "\"target\" is \"host\": it must be one of storage, shared"},
      {[] { (void)read_start_job(R"({"scope": "some"})"); }, "one of all, request, prefix, tenant, idle"},
      {[] { (void)read_start_job(R"({"scope": "tenant"})"); }, "\"tenant\" is missing for scope tenant"},
      {[] { (void)read_start_job(R"({"tenant": 1})"); }, "\"tenant\" is for scope tenant"},
      {[] { (void)read_start_job(R"({"scope": "prefix", "keys": []})"); }, "must be a list of keys"},
      {[] { (void)read_start_job(R"({"scope": "prefix", "keys": ["ab"]})"); }, "64 hexadecimal digits"},
      {[] { (void)read_start_job(R"({"deadline": 5})"); }, "\"deadline\" must be a text"},
      {[] { (void)read_start_job(R"({"deadline": "soon"})"); }, "\"deadline\""},
      {[] { (void)read_change("{}"); }, "nothing to change: name some of policy, write-policy"},
      {[] { (void)read_change(R"({"write-polcy": "none"})"); }, "did you mean write-policy?"},
      {[] { (void)read_change(R"({"storage.where": "memory:"})"); }, "cannot change while the cache serves"},
      {[] { (void)read_change(R"({"write-policy": "sometimes"})"); }, "\"write-policy\""},
      {[] { (void)read_change(R"({"host.low-watermark": 2})"); }, "\"host.low-watermark\""},
      {[] { (void)read_change(R"({"daily-writes": []})"); }, "must be a text, a number, true or false"},
      {[] { read_nothing(R"({"x": 1})"); }, "there is no such field here"},
      {[] { (void)read_clear(std::string(10, '[') + std::string(10, ']')); }, "not JSON"},
  };
  for (const auto& [read, sentence] : wrong) {
    const std::string said = refusal(read);
    EXPECT_NE(said.find(sentence), std::string::npos) << "said: " << said << "\nwanted: " << sentence;
    EXPECT_EQ(said.find('\n'), std::string::npos);
  }
}

TEST(AdminCommand, a_change_leaves_the_other_settings_alone) {
  CacheSettings now;
  now.selective_hits = 7;
  now.host_watermarks = {0.1, 0.2};
  const CacheSettings then =
      changed(now, read_change(R"({"write-policy": "write-back", "daily-writes": "1TiB", "host.high-watermark": "30%",
                           "transfers.store-bandwidth": "5GiB/s", "loads": "always"})"));
  EXPECT_EQ(then.write_policy, WritePolicy::write_back);
  EXPECT_EQ(then.daily_write_bytes, TiB);
  EXPECT_EQ(then.selective_hits, 7U);
  EXPECT_EQ(then.host_watermarks.low, 0.1);
  EXPECT_EQ(then.host_watermarks.high, 0.3);
  EXPECT_EQ(then.loads, LoadPolicy::always);
  EXPECT_EQ(then.lane_rates[static_cast<std::size_t>(Urgency::store)], per_second(GiB * 5));
}

TEST(AdminCommand, the_settings_shown_can_be_sent_back) {
  CacheSettings settings;
  settings.policy = EvictionPolicyName::own;
  settings.write_policy = WritePolicy::selective;
  settings.device_reserve_max = 0.2;
  settings.device_watermarks = {0.05, 0.25};
  settings.lane_rates[1] = per_second(MiB * 3);
  const boost::json::object shown = to_json(settings);
  const CacheSettings back = changed({}, read_change(boost::json::serialize(shown)));
  EXPECT_EQ(to_json(back), shown);
  EXPECT_EQ(back.policy, EvictionPolicyName::own);
  EXPECT_EQ(back.device_reserve_max, 0.2);
  EXPECT_EQ(back.device_watermarks.high, 0.25);
  EXPECT_EQ(back.lane_rates, settings.lane_rates);
}

}  // namespace
}  // namespace terrace::admin
