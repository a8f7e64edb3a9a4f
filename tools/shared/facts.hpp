#pragma once

#include "terrace/clock.hpp"
#include "terrace/types.hpp"
#include "tools/shared/shared_rates.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace terrace::tools {

/// The facts that one server of a shared store has told about itself. A member that it has not told is empty.
struct ServerFacts {
  std::string address{};
  std::string software{};                     ///< "Redis", "Valkey"
  std::string version{};                      ///< "7.0.15"
  std::optional<std::uint64_t> memory_max{};  ///< maxmemory, in bytes; 0: no limit
  std::optional<std::uint64_t> memory_used{};
  std::optional<std::uint64_t> machine_memory{};
  std::string policy{};             ///< maxmemory-policy
  std::optional<bool> appends{};    ///< appendonly
  std::optional<bool> snapshots{};  ///< it saves by itself
  std::string role{};               ///< "master", "slave"
  std::optional<unsigned> replicas{};
  std::optional<bool> full_coverage{};  ///< cluster-require-full-coverage
  // The errors with which it did not tell:
  std::string info_refusal{};
  std::string config_refusal{};
  std::string unreachable{};  ///< nothing is known
};

/// Everything that is known about a shared store.
struct SharedFacts {
  bool cluster = false;
  std::optional<unsigned> slots_lost{};  ///< of a cluster: slots that no server has
  std::vector<ServerFacts> servers{};
  std::vector<double> round_trips{};  ///< seconds of each probe; those without an answer are not in it
  unsigned probes_failed = 0;
  // By Terrace's own client. None: they were not tried, because the store cannot be used.
  std::optional<SharedCost> writes{};
  std::optional<SharedCost> reads{};
  unsigned not_removed = 0;  ///< values of the check that are still there
  std::string trouble{};     ///< the sentence of SharedStore::health(); empty: all is well
};

/// The use that an operator plans.
struct SharedNeeds {
  Bytes block_bytes = MiB * 2;
  std::uint32_t block_tokens = 16;
  double compute_seconds = 0;  ///< of a block; 0: not known
  Duration probe_deadline{};
};

enum class FactVerdict : std::uint8_t {
  ok,
  warning,  ///< it works, but costs something
  unknown,  ///< the server does not tell
  failed,   ///< the store cannot be used like this
};
/// "ok", "warning", "cannot tell", "failed".
[[nodiscard]] const char* to_string(FactVerdict verdict);

/// The judgement of one fact.
struct Finding {
  FactVerdict verdict = FactVerdict::ok;
  std::string label{};   ///< at most 8 characters
  std::string text{};    ///< one sentence without its end
  std::string advice{};  ///< what it costs, and how to mend it
};

/// Judges all facts, in the order in which they are shown. A pure function.
[[nodiscard]] std::vector<Finding> judge(const SharedFacts& facts, const SharedNeeds& needs);

/// A quantile of the times, from 0 to 1; 0 if there are none.
[[nodiscard]] double quantile(std::vector<double> times, double share);

}  // namespace terrace::tools
