#pragma once

#include "tools/plan/plan.hpp"

#include <boost/json/fwd.hpp>

#include <string>

namespace terrace::tools {

/// The plan for a screen of 80 columns: the hit rates of all policies, and the other figures of one. This is the default policy
/// if it was asked for.
[[nodiscard]] std::string to_table(const PlanOptions& options, const PlanResult& result);
/// All figures of all policies.
[[nodiscard]] boost::json::object to_json(const PlanOptions& options, const PlanResult& result);

}  // namespace terrace::tools
