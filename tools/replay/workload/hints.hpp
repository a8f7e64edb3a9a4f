#pragma once

#include "tools/replay/workload/workloads.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace terrace::tools {

/// The hints that a replay gives the cache (--hints). All but `none` know the rest of the trace: they show how much hints can
/// bring at most.
enum class Hints : unsigned char {
  none,
  ended,    ///< after the last request of a session, that it has ended
  returns,  ///< after a request that is continued within a minute, when; wrong by a factor of about 1.6
  oracle,   ///< both
};
[[nodiscard]] std::string_view to_string(Hints hints);

/// The hints of an orchestrator that knows the whole trace.
///
/// A request continues an earlier one if it uses one of its blocks. The first blocks of many sessions do not count: those which
/// are followed by eight or more different blocks.
///
/// Memory: 8 bytes for each block of each prompt. Threads: one may add and prepare; any may read after that.
class Oracle {
 public:
  struct Options {
    Hints hints = Hints::none;
    double missing = 0;  ///< share of the hints that are left out
    double wrong = 0;    ///< of those told: the share that is about a request of which the opposite is true
    std::uint64_t seed = 1;
  };
  struct Hint {
    std::optional<double> uses{};  ///< requests until the next use; none: the session has ended
  };

  explicit Oracle(const Options& options) : options_{options} {}

  void add(const TraceRequest& request, std::uint32_t block_tokens);
  /// Decides all hints, when all requests have been added.
  void prepare();
  /// Returns the hint that is given after this request (from 0); most have none.
  [[nodiscard]] std::optional<Hint> after(std::size_t request) const { return hints_[request]; }
  [[nodiscard]] std::size_t requests() const { return requests_.size(); }

 private:
  struct Request {
    double at_ms = 0;
    std::vector<std::uint64_t> blocks;
  };

  [[nodiscard]] std::vector<std::optional<double>> next_uses() const;

  Options options_;
  std::vector<Request> requests_;
  std::vector<std::optional<Hint>> hints_;
};

}  // namespace terrace::tools
