#include "storage/format/format.hpp"
#include "terrace.h"
#include "tools/about/command_line.hpp"

#include <boost/json.hpp>
#include <boost/version.hpp>
#include <fmt/format.h>

#include <iterator>
#include <sstream>
#include <string_view>

// The macros TERRACE_VERSION and TERRACE_BUILD_... come from tools/CMakeLists.txt.

namespace terrace::tools {
namespace {

namespace json = boost::json;

constexpr int boost_major = BOOST_VERSION / 100000;
constexpr int boost_minor = BOOST_VERSION / 100 % 1000;

json::value cuda_facts() {
  if (std::string_view{TERRACE_BUILD_CUDA}.empty()) return nullptr;
  json::array architectures;
  std::istringstream names{TERRACE_BUILD_CUDA_ARCHITECTURES};
  for (std::string name; names >> name;) architectures.emplace_back(name);
  return json::object{{"toolkit", TERRACE_BUILD_CUDA}, {"kernels", std::move(architectures)}};
}

/// A value for people: a list is separated by commas.
std::string shown(const json::value& value) {
  if (value.is_null()) return "no";
  if (value.is_bool()) return value.as_bool() ? "yes" : "no";
  if (value.is_string()) return std::string{value.as_string()};
  if (!value.is_array()) return json::serialize(value);
  std::string list;
  for (const json::value& each : value.as_array()) list += (list.empty() ? "" : ", ") + shown(each);
  return list;
}

}  // namespace

std::string program_version() { return "terrace " TERRACE_VERSION; }

json::object build_facts() {
  return {{"version", TERRACE_VERSION},
          {"compiler", TERRACE_BUILD_COMPILER},
          {"boost", fmt::format("{}.{}", boost_major, boost_minor)},
          {"build_type", TERRACE_BUILD_TYPE},
          {"sanitizers", TERRACE_BUILD_SANITIZERS},
          {"cuda", cuda_facts()},
          {"io_uring", TERRACE_BUILD_URING != 0},
          {"prometheus", TERRACE_BUILD_PROMETHEUS != 0},
          {"c_interface", fmt::format("{}.{}", TERRACE_C_VERSION_MAJOR, TERRACE_C_VERSION_MINOR)},
          {"store_formats", {format_version, striped_format_version}}};
}

std::string build_text() {
  const json::object facts = build_facts();
  std::string text = program_version() + '\n';
  const auto line = [&](std::string_view name, const std::string& value) {
    fmt::format_to(std::back_inserter(text), "{:<14} {}\n", name, value);
  };
  const std::string sanitizers = shown(facts.at("sanitizers"));
  line("compiler", fmt::format("{}, {}{}", shown(facts.at("compiler")), shown(facts.at("build_type")),
                               sanitizers.empty() ? "" : ", sanitizers: " + sanitizers));
  line("Boost", shown(facts.at("boost")));
  const json::value& cuda = facts.at("cuda");
  line("CUDA",
       cuda.is_null() ? "no" : fmt::format("toolkit {}, kernels for {}", shown(cuda.at("toolkit")), shown(cuda.at("kernels"))));
  line("io_uring", shown(facts.at("io_uring")));
  line("Prometheus", shown(facts.at("prometheus")));
  line("C interface", shown(facts.at("c_interface")));
  line("store formats", shown(facts.at("store_formats")));
  return text;
}

}  // namespace terrace::tools
