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
    if (find(job) == nullptr) return std::nullopt;
    return plans_.take(place_of(job)).thing;
  }
  /// Null where the plan is not of this table.
  [[nodiscard]] const T* find(JobId job) const {
    const Plan* const plan = plans_.find(place_of(job));
    return plan == nullptr || plan->job != job ? nullptr : &plan->thing;
  }
  [[nodiscard]] bool empty() const { return plans_.empty(); }

 private:
  static constexpr unsigned place_bits = 32;
  [[nodiscard]] static std::uint64_t place_of(JobId job) { return job.value() & ((1ULL << place_bits) - 1); }
  struct Plan {
    JobId job;
    T thing;
  };
  Slab<Plan> plans_;
};

}  // namespace terrace
