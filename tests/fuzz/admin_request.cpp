#include "tests/fuzz/fuzzed.hpp"

#include "base/check.hpp"
#include "runtime/admin/mailbox.hpp"
#include "runtime/admin/routes.hpp"

#include <boost/json.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace terrace::test {
namespace {

/// A cache with one pool and storage, and little room.
SharedSnapshot some_snapshot() {
  auto snapshot = std::make_shared<AdminSnapshot>();
  AdminSnapshot::Pool pool;
  pool.block_bytes = KiB * 4;
  pool.device_blocks_max = 10;
  pool.store.emplace();
  snapshot->pools.push_back(pool);
  snapshot->jobs.push_back({.id = WriteBackId{1}});
  return snapshot;
}

/// A process with a store only.
SharedSnapshot some_store() {
  AdminSnapshot snapshot = *some_snapshot();
  snapshot.tier_store.emplace();
  return std::make_shared<const AdminSnapshot>(std::move(snapshot));
}

void check(const admin::Reply& reply) {
  TERRACE_CHECK(reply.status >= 200 && reply.status < 600);
  if (!reply.type.starts_with("application/json")) return;
  const boost::json::value body = boost::json::parse(reply.body);
  if (reply.status < 400 || body.as_object().contains("status")) return;
  const boost::json::string& sentence = body.as_object().at("error").as_string();
  TERRACE_CHECK(!sentence.empty() && sentence.find('\n') == boost::json::string::npos);
}

}  // namespace

void run_admin_request(std::string_view text) {
  const std::size_t line_end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, line_end);
  const std::string_view method = line.substr(0, line.find(' '));
  const std::string_view target = method.size() == line.size() ? std::string_view{} : line.substr(method.size() + 1);
  const std::string_view body = text.substr(std::min(line_end + 1, text.size()));

  NullWaker waker;
  const ManualClock clock;
  admin::Mailbox mailbox{waker};
  mailbox.publish(some_snapshot());
  const admin::Room room{.host = [] { return std::optional{MiB}; }, .storage = [](PoolId) { return std::optional{MiB}; }};
  admin::Observations observations;
  const admin::Routes routes{AdminOptions{}, "", mailbox, observations, clock, room};
  const auto routed = routes.route({method, target, "", body});
  mailbox.publish(some_store());
  const auto of_store = routes.route({method, target, "", body});
  if (const auto* const reply = std::get_if<admin::Reply>(&of_store)) check(*reply);
  else TERRACE_CHECK(std::holds_alternative<admin::Clear>(std::get<admin::Command>(of_store)));
  if (const auto* const reply = std::get_if<admin::Reply>(&routed)) return check(*reply);
  TERRACE_CHECK(method == "POST");
  // A change that was accepted can be made, and its settings can be shown and sent back.
  const auto* const change = std::get_if<admin::Change>(&std::get<admin::Command>(routed));
  if (change == nullptr) return;
  const boost::json::object shown = admin::to_json(admin::changed({}, *change));
  const CacheSettings again = admin::changed({}, admin::read_change(boost::json::serialize(shown)));
  TERRACE_CHECK(admin::to_json(again) == shown);
}

}  // namespace terrace::test
