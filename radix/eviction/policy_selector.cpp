#include "radix/eviction/policy_selector.hpp"

#include <algorithm>
#include <cmath>

namespace terrace {
namespace {

/// The half-life of a window: a multiple of the tier's capacity, counted in uses, but at least `uses_min` uses. With fewer uses,
/// the differences between the rules would be due to chance.
struct HalfLife {
  double capacities;
  double uses_min;

  /// Returns the half-life in sampled uses.
  [[nodiscard]] double in_samples(std::size_t capacity, std::size_t sampled) const {
    const auto blocks = static_cast<double>(std::max<std::size_t>(capacity, 1));
    return std::max(capacities, uses_min / blocks) * static_cast<double>(sampled);
  }
};
constexpr HalfLife long_half_life{8, 16'384};
constexpr HalfLife short_half_life{0.5, 1024};

constexpr std::size_t choices_per_capacity = 32;

constexpr double errors_to_adopt = 3;
constexpr double errors_behind_to_drop = 1;  ///< in the short window; in the long window, any deficit is enough
constexpr double lead_to_adopt = 0.002;      ///< of the hit rate: 0.2 percentage points more than LRU
constexpr double lead_to_change = 0.0005;    ///< of the hit rate, more than the current rule
/// This number is added to the sum of squares, as if the rules had differed by one block in this many additional requests. So a
/// lead of a few blocks is not significant.
constexpr double squares_before = 4;

constexpr double disputed_min = 0.0005;  ///< as a share of the uses; with fewer, the uses give no information

}  // namespace

PolicySelector::PolicySelector(std::size_t capacity, std::size_t sampled) : sampled_{sampled} {
  long_.half_life = long_half_life.in_samples(capacity, sampled);
  short_.half_life = short_half_life.in_samples(capacity, sampled);
}

double PolicySelector::Lead::in_standard_errors() const { return hits / std::sqrt(squares + squares_before); }

void PolicySelector::Window::forget(double of_uses) {
  const double kept = std::exp2(-of_uses / half_life);
  uses *= kept;
  disputed *= kept;
  for (Lead& lead : leads) lead = {lead.hits * kept, lead.squares * kept};
}

void PolicySelector::add(std::uint32_t hit_by, std::uint64_t stamp) {
  if (stamp != request_.stamp) {
    close_request();
    request_.stamp = stamp;
  }
  ++request_.uses;
  constexpr std::uint32_t all = (1U << rule_count) - 1;
  if (hit_by == all) return;
  ++request_.missed;
  if (hit_by == 0) return;
  ++request_.disputed;
  for (std::size_t rule = 0; rule < rule_count; ++rule) request_.disputed_hits[rule] += hit_by >> rule & 1U;
}

void PolicySelector::close_request() {
  for (Window* const window : {&long_, &short_}) {
    window->uses += request_.uses;
    if (request_.disputed == 0) continue;  // no rule has a lead
    window->disputed += request_.disputed;
    for (std::size_t rule = 0; rule < lru; ++rule) {
      const double lead = static_cast<double>(request_.disputed_hits[rule]) - request_.disputed_hits[lru];
      window->leads[rule].hits += lead;
      window->leads[rule].squares += lead * lead;
    }
  }
  hits_in_a_row_ = request_.missed == 0 ? hits_in_a_row_ + request_.uses : 0;
  uses_since_choice_ += request_.uses;
  request_ = {};
  if (uses_since_choice_ * choices_per_capacity <= sampled_) return;
  choose();
  long_.forget(static_cast<double>(uses_since_choice_));
  short_.forget(static_cast<double>(uses_since_choice_));
  uses_since_choice_ = 0;
}

void PolicySelector::choose() {
  if (hits_in_a_row_ >= short_.half_life) {  // no rule has missed
    rule_ = 0;
    return;
  }
  // If the rules agree on almost all uses, for example in the middle of a scan, the uses give no information.
  if (short_.disputed < disputed_min * short_.uses) return;
  if (rule_ != lru && (long_.leads[rule_].hits < 0 || short_.leads[rule_].in_standard_errors() < -errors_behind_to_drop)) {
    rule_ = lru;
  }
  double most = rule_ == lru ? 0 : long_.leads[rule_].hits;
  for (std::size_t rule = 0; rule < lru; ++rule) {
    const Lead& lead = long_.leads[rule];
    const bool sure = lead.in_standard_errors() >= errors_to_adopt && lead.hits >= lead_to_adopt * long_.uses;
    if (!sure || short_.leads[rule].hits < 0 || lead.hits <= most + lead_to_change * long_.uses) continue;
    most = lead.hits;
    rule_ = rule;
  }
}

}  // namespace terrace
