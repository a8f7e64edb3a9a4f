#pragma once

#include "base/slab.hpp"
#include "base/strong_id.hpp"

#include <cstdint>
#include <optional>
#include <utility>

namespace terrace {

/// Names plans, and keeps what their maker has to know when they end. The upper half of a name is a number that no other plan
/// has, counted over all tables of a manager; the lower says where in its table the plan stands. Threads: one.
template <class T>
class PlanTable {
 public:
  [[nodiscard]] JobId add(std::uint64_t& last_number, T thing) {
    const std::uint64_t place = plans_.add({{}, std::move(thing)});
    const JobId job{++last_number << place_bits | place};
    plans_.at(place).job = job;
    return job;
  }
  /// None where the plan is not of this table.
  [[nodiscard]] std::optional<T> take(JobId job) {
    const std::uint64_t place = job.value() & ((1ULL << place_bits) - 1);
    const Plan* const plan = plans_.find(place);
    if (plan == nullptr || plan->job != job) return std::nullopt;
    return plans_.take(place).thing;
  }
  [[nodiscard]] bool empty() const { return plans_.empty(); }

 private:
  static constexpr unsigned place_bits = 32;
  struct Plan {
    JobId job;
    T thing;
  };
  Slab<Plan> plans_;
};

}  // namespace terrace
