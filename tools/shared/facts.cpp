#include "tools/shared/facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <map>
#include <utility>

namespace terrace::tools {
namespace {

std::string milliseconds(double seconds) { return fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 0.1 ? 2 : 0); }
std::string per_second(double bytes) { return to_string(Bytes{static_cast<std::uint64_t>(bytes)}) + "/s"; }

std::string names(const std::vector<std::string>& addresses) {
  constexpr std::size_t shown = 3;
  std::string text;
  for (std::size_t n = 0; n < std::min(shown, addresses.size()); ++n) text += (n == 0 ? "" : ", ") + addresses[n];
  return addresses.size() <= shown ? text : fmt::format("{} and {} more", text, addresses.size() - shown);
}

/// True if a version such as "7.0.15" is at least this one.
bool is_at_least(const std::string& version, unsigned major, unsigned minor) {
  unsigned numbers[2]{};
  const char* at = version.data();
  const char* const end = at + version.size();
  for (unsigned& number : numbers) {
    at = std::from_chars(at, end, number).ptr;
    if (at != end) ++at;
  }
  return std::pair{numbers[0], numbers[1]} >= std::pair{major, minor};
}

/// A fact that each server has told, or not.
struct Question {
  const char* label;
  const char* what;
  std::string ServerFacts::*refusal;  ///< the error with which it did not tell
  const char* command;                ///< what an operator asks instead
};
constexpr const char* not_told = "the server does not tell";

class Judge {
 public:
  Judge(const SharedFacts& facts, const SharedNeeds& needs) : facts_{facts}, needs_{needs} {}

  std::vector<Finding> all() && {
    reach();
    versions();
    cluster();
    roles();
    policies();
    memory();
    persistence();
    client();
    round_trip();
    speed("write", facts_.writes);
    if (nothing_written()) add(FactVerdict::unknown, "read", "no block was written that could be read");
    else speed("read", facts_.reads);
    pays();
    removed();
    return std::move(findings_);
  }

 private:
  void add(FactVerdict verdict, const char* label, std::string text, std::string advice = {}) {
    findings_.push_back({verdict, label, std::move(text), std::move(advice)});
  }

  /// Adds a finding for each value that servers have. `value_of` returns nothing if a server has not told it; `finding_of` gets
  /// the value and " at ADDRESS", which is empty if all servers have it.
  template <class Value, class ValueOf, class FindingOf>
  void each(const Question& question, ValueOf value_of, FindingOf finding_of) {
    std::map<std::optional<Value>, std::vector<std::string>> servers;
    std::string refused;
    for (const ServerFacts& server : facts_.servers) {
      if (!server.unreachable.empty()) continue;
      const std::optional<Value> value = value_of(server);
      servers[value].push_back(server.address);
      if (!value && refused.empty()) refused = server.*question.refusal;
    }
    for (const auto& [value, addresses] : servers) {
      const std::string at = servers.size() == 1 ? "" : " at " + names(addresses);
      if (value) {
        Finding finding = finding_of(*value, at);
        finding.label = question.label;
        findings_.push_back(std::move(finding));
      } else {
        add(FactVerdict::unknown, question.label,
            fmt::format("{}{}: {}", question.what, at, refused.empty() ? not_told : refused),
            fmt::format("A user with more rights can ask: redis-cli {}", question.command));
      }
    }
  }

  void reach() {
    for (const ServerFacts& server : facts_.servers) {
      if (server.unreachable.empty()) continue;
      add(FactVerdict::failed, "server", server.unreachable,
          "The blocks of this server are misses. Start it, or let another one take over its slots.");
    }
  }

  void versions() {
    using Version = std::pair<std::string, std::string>;
    each<Version>(
        Question{"server", "its version", &ServerFacts::info_refusal, "info server"},
        [](const ServerFacts& server) {
          return server.version.empty() ? std::nullopt : std::optional{Version{server.software, server.version}};
        },
        [](const Version& version, const std::string& at) -> Finding {
          const std::string text = fmt::format("{} {}{}", version.first, version.second, at);
          if (version.first != "Redis" || is_at_least(version.second, 6, 2)) return {.text = text};
          return {FactVerdict::warning, "", text,
                  "Terrace is made for Redis 6.2 or newer: older servers may refuse some of its commands."};
        });
  }

  void cluster() {
    if (!facts_.cluster) return;
    if (!facts_.slots_lost) {
      add(FactVerdict::unknown, "cluster", "the server has not told which server has which slots",
          "Its blocks are misses until it does.");
    } else if (*facts_.slots_lost > 0) {
      add(FactVerdict::failed, "cluster", fmt::format("{} of 16384 slots have no server", *facts_.slots_lost),
          "Their blocks are misses, or all are (cluster-require-full-coverage). redis-cli --cluster check HOST:PORT says why, "
          "and redis-cli --cluster fix HOST:PORT deals them out.");
    } else {
      add(FactVerdict::ok, "cluster", fmt::format("{} servers have all slots", facts_.servers.size()));
    }
    each<bool>(
        Question{"coverage", "cluster-require-full-coverage", &ServerFacts::config_refusal,
                 "config get cluster-require-full-coverage"},
        [](const ServerFacts& server) { return server.full_coverage; },
        [](bool full, const std::string& at) -> Finding {
          if (!full) return {.text = "cluster-require-full-coverage is off" + at + ": without one server the others go on"};
          return {FactVerdict::warning, "", "cluster-require-full-coverage is on" + at,
                  "If one server is lost, all refuse, and every block is a miss. CONFIG SET cluster-require-full-coverage no, on "
                  "each server."};
        });
  }

  void roles() {
    each<std::pair<std::string, unsigned>>(
        Question{"replicas", "whether it has replicas", &ServerFacts::info_refusal, "info replication"},
        [](const ServerFacts& server) -> std::optional<std::pair<std::string, unsigned>> {
          if (server.role == "slave" || server.role == "replica") return std::pair{std::string{"replica"}, 0U};
          if (!server.replicas) return std::nullopt;
          return std::pair{std::string{"primary"}, *server.replicas};
        },
        [](const std::pair<std::string, unsigned>& role, const std::string& at) -> Finding {
          if (role.first == "replica") {
            return {FactVerdict::failed, "", "a replica" + at + ": it refuses writes", "Name its primary in the URL."};
          }
          if (role.second == 0) return {.text = "none" + at + ", and a cache needs none"};
          return {.text =
                      fmt::format("{} for each primary{}: they take memory, and each write once more, and keep the blocks of a "
                                  "primary that is lost; Terrace does not read from them",
                                  role.second, at)};
        });
  }

  void policies() {
    each<std::string>(
        Question{"policy", "maxmemory-policy", &ServerFacts::info_refusal, "config get maxmemory-policy"},
        [](const ServerFacts& server) { return server.policy.empty() ? std::nullopt : std::optional{server.policy}; },
        [](const std::string& policy, const std::string& at) -> Finding {
          const char* const mend = "CONFIG SET maxmemory-policy volatile-ttl.";
          const std::string text = policy + at;
          if (policy == "volatile-ttl") return {.text = text + ": the ends of prefixes go before their beginnings"};
          if (policy == "noeviction") {
            return {FactVerdict::warning, "", text,
                    fmt::format("When the memory is full, new blocks are not written until others expire. {}", mend)};
          }
          if (policy.ends_with("-random")) {
            return {FactVerdict::warning, "", text,
                    fmt::format("It gives up beginnings of prefixes, too, and what comes after them is then useless. {}", mend)};
          }
          return {.text = text + ": works; volatile-ttl gives up the ends of prefixes first"};
        });
  }

  void memory() {
    constexpr std::uint64_t few_tokens = 100'000;
    constexpr double full = 0.95;
    std::vector<std::string> unlimited;
    std::vector<std::string> too_large;
    std::vector<std::string> full_up;
    std::uint64_t max = 0;
    std::uint64_t used = 0;
    for (const ServerFacts& server : facts_.servers) {
      if (!server.unreachable.empty()) continue;
      if (!server.memory_max || !server.memory_used) {
        add(FactVerdict::unknown, "memory",
            fmt::format("maxmemory and its use: {}", server.info_refusal.empty() ? not_told : server.info_refusal),
            "A user with more rights can ask: redis-cli info memory");
        return;
      }
      if (*server.memory_max == 0) unlimited.push_back(server.address);
      if (server.machine_memory.value_or(~0ULL) < *server.memory_max) too_large.push_back(server.address);
      const bool is_full = static_cast<double>(*server.memory_used) > full * static_cast<double>(*server.memory_max);
      if (is_full && *server.memory_max > 0 && server.policy == "noeviction") full_up.push_back(server.address);
      max += *server.memory_max;
      used += *server.memory_used;
    }
    if (!unlimited.empty()) {
      add(FactVerdict::warning, "memory", "no limit (maxmemory 0) at " + names(unlimited),
          "The server takes memory until the kernel kills it, and then all blocks are gone. CONFIG SET maxmemory SIZE, some way "
          "below the memory of the machine.");
      return;
    }
    if (max == 0) return;  // no server can be asked
    const std::uint64_t blocks = max / std::max<std::uint64_t>(1, count(needs_.block_bytes));
    const std::uint64_t tokens = blocks * needs_.block_tokens;
    const std::string text =
        fmt::format("{} of {} used; {} blocks of {} fit into all of it, which are {} tokens", to_string(Bytes{used}),
                    to_string(Bytes{max}), blocks, to_string(needs_.block_bytes), tokens);
    if (!too_large.empty()) {
      add(FactVerdict::warning, "memory", fmt::format("{}; maxmemory is more than the machine has at {}", text, names(too_large)),
          "The kernel kills the server before it evicts. CONFIG SET maxmemory SIZE, some way below the memory of the machine.");
    } else if (!full_up.empty()) {
      add(FactVerdict::warning, "memory", fmt::format("{}; full, with noeviction, at {}", text, names(full_up)),
          "New blocks are not written until others expire. CONFIG SET maxmemory-policy volatile-ttl.");
    } else if (tokens < few_tokens) {
      add(FactVerdict::warning, "memory", text,
          "That is little: blocks are evicted before somebody asks for them. Give the engine more (CONFIG SET maxmemory SIZE, or "
          "more servers).");
    } else {
      add(FactVerdict::ok, "memory", text);
    }
  }

  void persistence() {
    each<std::pair<bool, bool>>(
        Question{"disk", "whether it writes to its disk (appendonly, save)", &ServerFacts::config_refusal,
                 "config get save; redis-cli config get appendonly"},
        [](const ServerFacts& server) -> std::optional<std::pair<bool, bool>> {
          if (!server.appends || !server.snapshots) return std::nullopt;
          return std::pair{*server.appends, *server.snapshots};
        },
        [](const std::pair<bool, bool>& does, const std::string& at) -> Finding {
          if (!does.first && !does.second) return {.text = "nothing is written to a disk" + at};
          const char* const what = !does.second  ? "appendonly is on"
                                   : !does.first ? "it saves snapshots"
                                                 : "appendonly is on, and it saves snapshots";
          return {
              FactVerdict::warning, "", what + at,
              "A cache need not survive. Each snapshot forks the server, which then may need up to twice its memory and answers "
              "late; a log writes every block to the disk, too. CONFIG SET appendonly no, CONFIG SET save \"\"."};
        });
  }

  void client() {
    if (facts_.trouble.empty()) return;
    const bool works = facts_.reads && facts_.reads->failed == 0 && facts_.writes && facts_.writes->failed == 0;
    add(works ? FactVerdict::warning : FactVerdict::failed, "client", "Terrace's client says: " + facts_.trouble,
        "Blocks that need it are misses, or are not written, renewed or removed. The user needs +hello +auth +ping +select "
        "+cluster +get +set +exists +pexpire +unlink, and the names ~PREFIX:*.");
  }

  [[nodiscard]] bool nothing_written() const { return facts_.writes && facts_.writes->failed == facts_.writes->blocks; }

  void round_trip() {
    if (facts_.round_trips.empty()) {
      if (nothing_written()) add(FactVerdict::unknown, "probes", "no block was written that could be found");
      else if (facts_.probes_failed > 0)
        add(FactVerdict::failed, "probes", fmt::format("none of {} was answered", facts_.probes_failed));
      return;
    }
    const double deadline = std::chrono::duration<double>(needs_.probe_deadline).count();
    const double median = quantile(facts_.round_trips, 0.5);
    const double slow = quantile(facts_.round_trips, 0.99);
    std::string text = fmt::format("{} in the median, {} in the 99th percentile, of {} probes", milliseconds(median),
                                   milliseconds(slow), facts_.round_trips.size());
    if (facts_.probes_failed > 0) text += fmt::format("; {} had no answer", facts_.probes_failed);
    if (median >= deadline) {
      add(FactVerdict::failed, "probes", text,
          fmt::format(
              "A request waits {} at most (probe-deadline), so it goes on without the answer. Use an engine that is nearer, or "
              "let requests wait longer.",
              milliseconds(deadline)));
    } else if (slow >= deadline || facts_.probes_failed > 0) {
      add(FactVerdict::warning, "probes", text,
          fmt::format(
              "Some requests wait for {} (probe-deadline) and go on without the answer. A server that forks, swaps or shares its "
              "processor answers late, and so does a busy network.",
              milliseconds(deadline)));
    } else {
      add(FactVerdict::ok, "probes", text);
    }
  }

  void speed(const char* label, const std::optional<SharedCost>& speed) {
    if (!speed) return;
    if (speed->failed > 0) {
      add(FactVerdict::failed, label,
          fmt::format("{} of {} blocks of {} failed", speed->failed, speed->blocks, to_string(needs_.block_bytes)),
          "Blocks that fail are misses, or are not written. The lines above say what the servers refuse or lack.");
      return;
    }
    const double bytes = static_cast<double>(count(needs_.block_bytes)) * static_cast<double>(speed->blocks);
    add(FactVerdict::ok, label,
        fmt::format("{}, in blocks of {}", per_second(speed->seconds > 0 ? bytes / speed->seconds : 0),
                    to_string(needs_.block_bytes)));
  }

  void pays() {
    if (!facts_.reads || facts_.reads->failed > 0 || facts_.reads->blocks == 0) return;
    const double load = facts_.reads->seconds / static_cast<double>(facts_.reads->blocks);
    if (load <= 0) return;
    const double compute = needs_.compute_seconds;
    if (compute <= 0) {
      add(FactVerdict::unknown, "pays",
          fmt::format("loading a block takes {}; how long computing it takes is not given", milliseconds(load)),
          "--prefill-tokens-per-second NUMBER says it: the tokens of prompts that the engine computes in a second.");
      return;
    }
    const std::string text = fmt::format("loading a block takes {}, computing it {}", milliseconds(load), milliseconds(compute));
    if (load >= compute) {
      add(FactVerdict::warning, "pays", text,
          "Requests ask and then compute all the same, so nothing is read from there. A faster network, more connections "
          "(connections-per-node), more servers, or a KV cache of 8 bits make loads faster.");
      return;
    }
    const double trips = 2 * quantile(facts_.round_trips, 0.5);  // a probe, and the first read
    const double from = std::max(1.0, std::ceil(trips / (compute - load)));
    add(FactVerdict::ok, "pays", fmt::format("{}: it pays from {:.0f} block{} on", text, from, from == 1 ? "" : "s"));
  }

  void removed() {
    if (facts_.not_removed == 0) return;
    add(FactVerdict::warning, "left", fmt::format("{} values of this check could not be removed", facts_.not_removed),
        "They expire within a minute. The user needs +unlink.");
  }

  const SharedFacts& facts_;
  const SharedNeeds& needs_;
  std::vector<Finding> findings_;
};

}  // namespace

const char* to_string(FactVerdict verdict) {
  constexpr std::array names{"ok", "warning", "cannot tell", "failed"};
  return names.at(static_cast<std::size_t>(verdict));
}

std::vector<Finding> judge(const SharedFacts& facts, const SharedNeeds& needs) { return Judge{facts, needs}.all(); }

double quantile(std::vector<double> times, double share) {
  if (times.empty()) return 0;
  std::ranges::sort(times);
  const auto last = static_cast<double>(times.size() - 1);
  return times[static_cast<std::size_t>(std::ceil(share * last))];
}

}  // namespace terrace::tools
