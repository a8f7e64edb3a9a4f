#include "terrace/config.hpp"

#include "base/whole_file.hpp"
#include "runtime/config/givens.hpp"
#include "runtime/config/table/nearest_name.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace terrace {
namespace {

using config::Givens;
using config::Option;
using config::Scope;
using config::Type;
using config::Value;

constexpr std::string_view variable_prefix = "TERRACE_";
/// A secret. It is not an option, because values of options are shown.
constexpr std::string_view password_variable = "TERRACE_SHARED_PASSWORD";

std::vector<std::string> policy_names(const std::vector<ConfigPolicy>& more) {
  std::vector<std::string> names = config::option_named("policy").names;
  for (const ConfigPolicy& policy : more) names.push_back(policy.name);
  return names;
}

std::string limits_of(const Option& option, std::span<const std::string> names) {
  const auto shown = [&](std::uint64_t limit) { return config::to_word(option.type, limit); };
  const std::uint64_t max = option.limits.max;
  const bool open = max >= UINT32_MAX && option.type != Type::duration;
  switch (option.type) {
    case Type::whole: return open ? fmt::format("from {}", option.limits.min) : fmt::format("{} to {}", option.limits.min, max);
    case Type::size:
    case Type::bandwidth:
    case Type::duration: {
      const std::string_view least = option.limits.min > 0 ? "more than 0" : "";
      if (open) return std::string{least};
      return fmt::format("{}{}up to {}", least, least.empty() ? "" : ", ", shown(max));
    }
    case Type::share: return "0 to 1";
    case Type::name: return fmt::format("{}", fmt::join(names, ", "));
    default: return "";
  }
}

}  // namespace

std::string_view to_string(ConfigLevel level) {
  switch (level) {
    case ConfigLevel::by_default: return "default";
    case ConfigLevel::file: return "file";
    case ConfigLevel::environment: return "environment";
    case ConfigLevel::flag: return "flag";
  }
  return "?";
}

struct Config::Impl {
  std::vector<ConfigPolicy> policies;
  Givens givens;
  std::vector<std::string> ignored;
  std::string shared_password{};
};

Config::Config(std::vector<ConfigPolicy> more_policies) {
  Givens givens{policy_names(more_policies)};
  impl_ = std::make_unique<Impl>(std::move(more_policies), std::move(givens), std::vector<std::string>{});
}
Config::~Config() = default;
Config::Config(const Config& other) : impl_{std::make_unique<Impl>(*other.impl_)} {}
Config& Config::operator=(const Config& other) {
  *impl_ = Impl{*other.impl_};
  return *this;
}
Config::Config(Config&&) noexcept = default;
Config& Config::operator=(Config&&) noexcept = default;

void Config::read_text(std::string_view text, std::string_view name) {
  Givens read = impl_->givens;
  config::read_toml(text, name, read);
  impl_->givens = std::move(read);
}

void Config::read_file(const std::filesystem::path& file) {
  const auto refuse = [&](std::string_view why) {
    throw ConfigError{config::one_line(fmt::format("{}: {}", file.string(), why))};
  };
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) refuse("is a directory, not a configuration");
  constexpr std::size_t enough = (1 << 20) + 1;  // one more than read_text() takes
  std::string text;
  try {
    text = read_whole(file, enough);
  } catch (const std::runtime_error& reason) {
    refuse(fmt::format("cannot be read: {}", reason.what()));
  }
  read_text(text, file.string());
}

void Config::read_environment(const char* const* variables) {
  Impl read = *impl_;
  read.ignored.clear();
  // The common prefix does not make two names similar.
  std::vector<std::string> ends{std::string{password_variable.substr(variable_prefix.size())}};
  for (const Option& option : config::options()) {
    if (const std::string known = option.variable(); !known.empty()) ends.push_back(known.substr(variable_prefix.size()));
  }
  for (; variables != nullptr && *variables != nullptr; ++variables) {
    const std::string_view variable{*variables};
    if (!variable.starts_with(variable_prefix)) continue;
    const std::string_view name = variable.substr(0, variable.find('='));
    if (name == password_variable) {
      read.shared_password = variable.substr(std::min(variable.size(), name.size() + 1));
      continue;
    }
    const auto option = std::ranges::find_if(config::options(), [&](const Option& each) { return each.variable() == name; });
    if (option != config::options().end()) {
      const std::string_view word = variable.substr(std::min(variable.size(), name.size() + 1));
      read.givens.add_word(*option, word, {ConfigLevel::environment, std::string{name}});
      continue;
    }
    const std::string_view nearest = nearest_name(name.substr(variable_prefix.size()), ends);
    if (!nearest.empty()) {
      throw ConfigError{
          config::one_line(fmt::format("{}: there is no such option; did you mean {}{}?", name, variable_prefix, nearest))};
    }
    read.ignored.emplace_back(name);
  }
  *impl_ = std::move(read);
}

void Config::set(std::string_view flag, std::string_view value) {
  const Option* const option = config::option_of_flag(flag);
  if (option == nullptr) {
    std::vector<std::string> known;
    for (const Option& each : config::options()) known.push_back(each.flag_name());
    throw ConfigError{config::one_line(fmt::format("there is no option {}{}", flag, suggestion(flag, known)))};
  }
  impl_->givens.add_word(*option, value, {ConfigLevel::flag, option->flag_name()});
}

bool Config::has(std::string_view name) const { return impl_->givens.find_any(config::option_named(name)) != nullptr; }

ConfigOrigin Config::origin(std::string_view name) const {
  const config::Given* const given = impl_->givens.find_any(config::option_named(name));
  return given == nullptr ? ConfigOrigin{} : given->origin;
}

std::string Config::spelling(std::string_view name) const { return config::spelled(config::option_named(name), origin(name)); }

std::string Config::value(std::string_view name) const {
  const Option& option = config::option_named(name);
  if (impl_->givens.count(option.scope()) == 0) return "";
  const auto value = config::effective(impl_->givens, config::draft_of(impl_->givens), option, 0);
  return value ? config::to_word(option.type, *value) : "";
}

CacheSystemOptions Config::options() const {
  CacheSystemOptions options = config::assemble(impl_->givens, impl_->policies);
  // A file that is given goes before the variable.
  if (options.shared && options.shared->password_file.empty()) options.shared->password = impl_->shared_password;
  options.admin.config = values();
  return options;
}

std::vector<ConfigValue> Config::values() const {
  const Givens& givens = impl_->givens;
  const config::Draft draft = config::draft_of(givens);
  std::vector<ConfigValue> all;
  const auto add = [&](const Option& option, std::size_t n) {
    const bool repeated = option.scope() != Scope::whole;
    const std::string name = repeated ? fmt::format("{}[{}].{}", option.table, n, option.key) : option.name();
    const std::optional<Value> value = config::effective(givens, draft, option, n);
    const config::Given* const given = config::displaced(givens, option, n) ? nullptr : givens.find(option, n);
    all.push_back({name, value ? config::to_word(option.type, *value) : "", given == nullptr ? ConfigOrigin{} : given->origin});
  };
  const std::vector<Option>& rows = config::options();
  for (auto begin = rows.begin(); begin != rows.end();) {  // table by table, and in an array element by element
    const auto end = std::find_if(begin, rows.end(), [&](const Option& each) { return each.table != begin->table; });
    for (std::size_t n = 0; n < givens.count(begin->scope()); ++n) {
      for (auto option = begin; option != end; ++option) add(*option, n);
    }
    begin = end;
  }
  return all;
}

std::vector<ConfigOption> Config::table() const {
  const config::Draft defaults = config::default_draft(1, 1, 1);
  std::vector<ConfigOption> rows;
  for (const Option& option : config::options()) {
    ConfigOption row;
    row.table = option.table;
    row.key = option.key;
    row.repeated = option.scope() != Scope::whole;
    row.flag = option.flag_name();
    row.flag_alias = option.flag_alias;
    row.environment = option.variable();
    row.type = config::placeholder(option.type);
    row.limits = limits_of(option, impl_->givens.names(option));
    const std::optional<Value> value = option.otherwise.empty() ? option.get(defaults, 0) : std::nullopt;
    if (value) row.default_value = config::to_toml(option.type, *value);
    row.otherwise = option.otherwise;
    row.example = option.example;
    row.help = option.help;
    row.is_switch = option.type == Type::yes_no;
    row.common = option.common;
    row.live = option.live;
    rows.push_back(std::move(row));
  }
  return rows;
}

const std::vector<std::string>& Config::ignored_variables() const { return impl_->ignored; }

CacheSystemOptions parse_config(std::string_view text, std::string_view name) {
  Config config;
  config.read_text(text, name);
  return config.options();
}

}  // namespace terrace
