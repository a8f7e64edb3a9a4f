#include "tools/shared/check.hpp"

#include "runtime/shared/open_shared_store.hpp"
#include "storage/redis/slot_map.hpp"
#include "storage/redis/tls_stream.hpp"
#include "tools/doctor/facts.hpp"
#include "tools/interrupted.hpp"
#include "tools/output.hpp"
#include "tools/replay/engine/interrupt.hpp"
#include "tools/shared/session.hpp"
#include "tools/shared/shared_rates.hpp"
#include "tools/usage_error.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace terrace::tools {
namespace {

namespace json = boost::json;

constexpr const char* who = "terrace shared check";

/// The lines "NAME:VALUE" of an answer to INFO.
std::map<std::string, std::string> fields_of(const std::string& text) {
  std::map<std::string, std::string> fields;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (const std::size_t colon = line.find(':'); colon != std::string::npos)
      fields[line.substr(0, colon)] = line.substr(colon + 1);
  }
  return fields;
}

template <class Number>
std::optional<Number> number_in(const std::map<std::string, std::string>& fields, const char* name) {
  const auto found = fields.find(name);
  if (found == fields.end()) return std::nullopt;
  Number number = 0;
  const std::string& word = found->second;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc{} && end == word.data() + word.size() ? std::optional{number} : std::nullopt;
}

std::string word_in(const std::map<std::string, std::string>& fields, const char* name) {
  const auto found = fields.find(name);
  return found == fields.end() ? std::string{} : readable(found->second);
}

/// A value of the server's configuration; notes why it is refused.
std::optional<std::string> setting(RedisSession& session, std::string_view name, ServerFacts& facts) {
  const RespValue reply = session.ask({"CONFIG", "GET", name});
  if (reply.is_error()) facts.config_refusal = reply.text;
  if (reply.items.size() != 2 || reply.items[0].text != name) return std::nullopt;
  return reply.items[1].text;
}

ServerFacts ask_server(RedisSession& session, bool cluster) {
  ServerFacts facts;
  facts.address = to_string(session.address());
  // A user with few rights may greet, but not ask.
  facts.version = readable(session.greeting("version"));
  facts.software = session.greeting("server") == "valkey" ? "Valkey" : "Redis";
  facts.role = session.greeting("role");
  const RespValue info = session.ask({"INFO"});
  if (info.is_error()) {
    facts.info_refusal = info.text;
  } else {
    const auto fields = fields_of(info.text);
    const std::string valkey = word_in(fields, "valkey_version");
    if (!valkey.empty()) facts.software = "Valkey";
    facts.version = valkey.empty() ? word_in(fields, "redis_version") : valkey;
    facts.memory_max = number_in<std::uint64_t>(fields, "maxmemory");
    facts.memory_used = number_in<std::uint64_t>(fields, "used_memory");
    facts.machine_memory = number_in<std::uint64_t>(fields, "total_system_memory");
    facts.policy = word_in(fields, "maxmemory_policy");
    facts.role = word_in(fields, "role");
    facts.replicas = number_in<unsigned>(fields, "connected_slaves");
    if (const auto appends = number_in<unsigned>(fields, "aof_enabled")) facts.appends = *appends != 0;
  }
  if (const auto save = setting(session, "save", facts)) facts.snapshots = !save->empty();
  if (const auto appends = setting(session, "appendonly", facts)) facts.appends = *appends == "yes";
  if (cluster) {
    if (const auto full = setting(session, "cluster-require-full-coverage", facts)) facts.full_coverage = *full == "yes";
  }
  return facts;
}

/// A session with the first of the hosts that can be asked.
std::unique_ptr<RedisSession> open_any(const RedisOptions& options, const TlsContext* tls) {
  std::string first;
  for (const RedisAddress& host : options.hosts) {
    try {
      return std::make_unique<RedisSession>(host, options, tls);
    } catch (const ServerUnreachable& error) {
      if (first.empty()) first = error.what();
    }
  }
  throw ServerUnreachable{first};
}

void ask_cluster(RedisSession& seed, const RedisOptions& options, const TlsContext* tls, SharedFacts& facts) {
  const RespValue reply = seed.ask({"CLUSTER", "SLOTS"});
  const std::string at = to_string(seed.address());
  if (reply.text.find("cluster support disabled") != std::string::npos) {
    throw ServerUnreachable{fmt::format("{}: it is a single server; leave ?cluster=1 out of the URL", at)};
  }
  const auto ranges = parse_slots(reply, seed.address());
  if (!ranges) {
    facts.servers.push_back(ask_server(seed, true));
    return;
  }
  unsigned slots = 0;
  std::set<RedisAddress> masters;
  for (const RedisSlotRange& range : *ranges) {
    slots += range.last - range.first + 1;
    masters.insert(range.master);
  }
  facts.slots_lost = static_cast<unsigned>(redis_slot_count) - std::min(slots, static_cast<unsigned>(redis_slot_count));
  for (const RedisAddress& master : masters) {
    try {
      RedisSession session{master, options, tls};
      facts.servers.push_back(ask_server(session, true));
    } catch (const ServerUnreachable& error) {
      facts.servers.push_back({.address = to_string(master), .unreachable = error.what()});
    }
  }
}

json::object to_json(const RedisOptions& redis, const SharedCheckOptions& options, const SharedFacts& facts,
                     const std::vector<Finding>& findings) {
  json::array all;
  for (const Finding& finding : findings) {
    all.push_back(
        {{"fact", finding.label}, {"verdict", to_string(finding.verdict)}, {"text", finding.text}, {"advice", finding.advice}});
  }
  const double block = static_cast<double>(count(options.needs.block_bytes));
  const auto rate = [&](const std::optional<SharedCost>& speed) {
    return !speed || speed->failed > 0 || speed->seconds <= 0 ? 0 : block * static_cast<double>(speed->blocks) / speed->seconds;
  };
  return {{"url", shown(redis)},
          {"servers", facts.servers.size()},
          {"findings", std::move(all)},
          {"measured",
           {{"block_bytes", count(options.needs.block_bytes)},
            {"probes", facts.round_trips.size()},
            {"round_trip_median_seconds", quantile(facts.round_trips, 0.5)},
            {"round_trip_p99_seconds", quantile(facts.round_trips, 0.99)},
            {"write_bytes_per_second", rate(facts.writes)},
            {"read_bytes_per_second", rate(facts.reads)}}}};
}

}  // namespace

SharedFacts ask_servers(const RedisOptions& options) {
  const std::optional<TlsContext> tls = options.tls ? std::optional<TlsContext>{std::in_place, options} : std::nullopt;
  SharedFacts facts;
  facts.cluster = options.cluster;
  const std::unique_ptr<RedisSession> seed = open_any(options, tls ? &*tls : nullptr);
  if (options.cluster) {
    ask_cluster(*seed, options, tls ? &*tls : nullptr, facts);
  } else if (seed->greeting("mode") == "cluster") {
    throw ServerUnreachable{fmt::format("{}: it is a node of a cluster; add ?cluster=1 to the URL", to_string(seed->address()))};
  } else {
    facts.servers.push_back(ask_server(*seed, false));
  }
  return facts;
}

void measure(const SharedCheckOptions& options, SharedFacts& facts, const std::function<bool()>& go_on) {
  constexpr unsigned probes = 60;
  constexpr Bytes at_a_time = MiB * 8;
  const std::shared_ptr<SharedStore> store = open_to_measure(options.shared);
  const Bytes block = options.needs.block_bytes;
  if (store->usable()) {
    const SharedWork work{.blocks = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(MiB * 64 / block, 8, 1024)),
                          .block_bytes = count(block),
                          .at_once = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(at_a_time / block, 4, 64)),
                          .patience = std::chrono::seconds{20}};
    std::vector<std::byte> memory(std::size_t{work.blocks} * work.block_bytes);
    fill_to_measure(memory);
    SharedRates rates{*store, work};
    facts.writes = rates.write(memory, go_on);
    facts.reads = rates.read(memory, go_on);
    for (unsigned n = 0; n < probes && go_on(); ++n) {
      const double seconds = rates.probe();
      if (seconds >= 0) facts.round_trips.push_back(seconds);
      else ++facts.probes_failed;
    }
    rates.renew();
    facts.not_removed = rates.remove(std::chrono::seconds{2});
    if (!go_on()) throw Interrupted{};
  }
  const SharedHealth health = store->health();
  if (health.state != StoreState::well) facts.trouble = health.reason.empty() ? to_string(health.state) : health.reason;
}

ExitStatus check_shared(const SharedCheckOptions& options) {
  RedisOptions redis;
  SharedFacts facts;
  try {
    redis = redis_options(options.shared);
    facts = ask_servers(redis);
    const Interrupt interrupt;
    measure(options, facts, [&] { return !interrupt.requested(); });
  } catch (const std::invalid_argument& error) {
    throw UsageError{error.what()};
  } catch (const ServerUnreachable& error) {
    return complain(who, error.what(), ExitStatus::check_failed);
  }
  const std::vector<Finding> findings = judge(facts, options.needs);
  if (options.json) {
    print_json(to_json(redis, options, facts, findings));
  } else {
    for (const Finding& finding : findings) {
      write_output(to_text(Fact{.label = finding.label,
                                .text = printable(fmt::format("{}: {}", to_string(finding.verdict), finding.text)),
                                .advice = printable(finding.advice)}));
    }
  }
  const auto first = std::ranges::find(findings, FactVerdict::failed, &Finding::verdict);
  if (first == findings.end()) return ExitStatus::done;
  return complain(who, fmt::format("the shared store cannot be used like this: {}: {}", first->label, first->text),
                  ExitStatus::check_failed);
}

}  // namespace terrace::tools
