#include "tools/replay/workload/hints.hpp"

#include "base/random.hpp"

#include <boost/random/lognormal_distribution.hpp>
#include <boost/random/uniform_real_distribution.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>

#include <algorithm>
#include <utility>

namespace terrace::tools {
namespace {

constexpr double horizon_ms = 60'000;
constexpr double error = 0.5;  ///< of the logarithm of a told time
constexpr std::size_t shared_by = 8;

}  // namespace

std::string_view to_string(Hints hints) {
  switch (hints) {
    case Hints::none: return "none";
    case Hints::ended: return "ended";
    case Hints::returns: return "returns";
    case Hints::oracle: return "oracle";
  }
  return "?";
}

void Oracle::add(const TraceRequest& request, std::uint32_t block_tokens) {
  const std::size_t full = std::min<std::size_t>(request.hash_ids.size(), request.input_tokens / block_tokens);
  requests_.push_back({request.timestamp_ms, {request.hash_ids.begin(), request.hash_ids.begin() + static_cast<long>(full)}});
}

/// By request: when another request continues it.
std::vector<std::optional<double>> Oracle::next_uses() const {
  boost::unordered_flat_map<std::uint64_t, boost::unordered_flat_set<std::uint64_t>> successors;
  for (const Request& request : requests_) {
    for (std::size_t i = 1; i < request.blocks.size(); ++i) {
      auto& next = successors[request.blocks[i - 1]];
      if (next.size() < shared_by) next.insert(request.blocks[i]);
    }
  }
  const auto is_shared = [&](std::uint64_t block) {
    const auto found = successors.find(block);
    return found != successors.end() && found->second.size() >= shared_by;
  };
  std::vector<std::optional<double>> next(requests_.size());
  boost::unordered_flat_map<std::uint64_t, double> used;  // the next use of each block
  for (std::size_t i = requests_.size(); i-- > 0;) {
    const std::vector<std::uint64_t>& blocks = requests_[i].blocks;
    for (std::size_t k = blocks.size(); k-- > 0 && !next[i] && !is_shared(blocks[k]);) {
      if (const auto found = used.find(blocks[k]); found != used.end()) next[i] = found->second;
    }
    for (const std::uint64_t block : blocks) used.insert_or_assign(block, requests_[i].at_ms);
  }
  return next;
}

void Oracle::prepare() {
  const std::vector<std::optional<double>> next = next_uses();
  hints_.assign(requests_.size(), std::nullopt);
  if (options_.hints == Hints::none || requests_.empty()) return;
  const double each_ms = (requests_.back().at_ms - requests_.front().at_ms) / static_cast<double>(requests_.size());
  const bool tells_ends = options_.hints != Hints::returns;
  const bool tells_returns = options_.hints != Hints::ended;
  const auto ends = [&](std::size_t i) { return tells_ends && !next[i]; };
  const auto returns = [&](std::size_t i) { return tells_returns && next[i] && *next[i] - requests_[i].at_ms <= horizon_ms; };
  std::size_t right = 0;
  for (std::size_t i = 0; i < requests_.size(); ++i) right += ends(i) || returns(i) ? 1 : 0;
  const std::size_t others = requests_.size() - right;
  // So many hints about other requests that the wrong ones have their share.
  const double wrongly = others == 0 ? 0
                                     : options_.wrong / (1 - std::min(options_.wrong, 0.99)) * static_cast<double>(right) /
                                           static_cast<double>(others);
  Random random{options_.seed};
  boost::random::uniform_real_distribution<double> horizon{0, horizon_ms};
  boost::random::lognormal_distribution<double> wrong_by{0, error};
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const bool is_right = ends(i) || returns(i);
    const bool told = is_right ? !random.chance(options_.missing) : random.chance(std::min(wrongly, 1.0));
    const double in_ms = is_right && next[i] ? *next[i] - requests_[i].at_ms : horizon(random.engine());
    const double factor = wrong_by(random.engine());
    if (!told) continue;
    if (is_right ? ends(i) : tells_ends && next[i]) {
      hints_[i] = Hint{};
      continue;
    }
    hints_[i] = Hint{in_ms * factor / std::max(each_ms, 1e-6)};
  }
}

}  // namespace terrace::tools
