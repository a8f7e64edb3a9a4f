// The names of the rows of the table, and the place of each of them.

#include "runtime/config/table/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace terrace::config {

Draft default_draft(std::size_t pools, std::size_t ranks, std::size_t groups) {
  constexpr std::uint32_t device_blocks = 3000;
  constexpr std::uint32_t host_blocks = 8000;
  Draft draft;
  draft.system.write_policy = WritePolicy::none;  // draft_of() looks whether there is storage
  Draft::Pool pool;
  pool.sizes.device_blocks = device_blocks;
  pool.sizes.host_blocks = host_blocks;
  draft.pools.assign(pools, pool);
  draft.ranks.resize(ranks);
  draft.groups.resize(groups);
  return draft;
}

Scope Option::scope() const {
  if (table == "pool") return Scope::pool;
  if (table == "rank") return Scope::rank;
  return table == "group" ? Scope::group : Scope::whole;
}

std::string Option::name() const { return table.empty() ? std::string{key} : fmt::format("{}.{}", table, key); }

std::string Option::flag_name() const {
  if (!flag.empty()) return std::string{flag};
  if (scope() == Scope::rank || scope() == Scope::group) return "";
  return table.empty() || scope() == Scope::pool ? fmt::format("--{}", key) : fmt::format("--{}-{}", table, key);
}

std::string Option::variable() const {
  std::string name = flag_name();
  if (name.empty()) return name;
  name = "TERRACE_" + name.substr(2);
  for (char& c : name) {
    if (c == '-') c = '_';
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return name;
}

const Option* find_option(std::string_view table, std::string_view key) {
  const auto is_it = [&](const Option& each) { return each.table == table && each.key == key; };
  const auto found = std::ranges::find_if(options(), is_it);
  return found == options().end() ? nullptr : &*found;
}

const Option& option_named(std::string_view name) {
  const std::size_t dot = name.find('.');
  const bool in_table = dot != std::string_view::npos;
  const Option* const found =
      find_option(in_table ? name.substr(0, dot) : std::string_view{}, in_table ? name.substr(dot + 1) : name);
  if (found == nullptr) throw std::out_of_range{fmt::format("there is no option \"{}\"", name)};
  return *found;
}

const Option* option_of_flag(std::string_view flag) {
  const auto is_it = [&](const Option& each) { return !flag.empty() && (each.flag_name() == flag || each.flag_alias == flag); };
  const auto found = std::ranges::find_if(options(), is_it);
  return found == options().end() ? nullptr : &*found;
}

std::vector<std::string> tables() {
  std::vector<std::string> names;
  for (const Option& option : options()) {
    const bool known = std::ranges::find(names, option.table) != names.end();
    if (!option.table.empty() && !known) names.emplace_back(option.table);
  }
  return names;
}

bool is_array(std::string_view table) { return table == "pool" || table == "rank" || table == "group"; }

}  // namespace terrace::config
