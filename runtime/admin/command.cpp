#include "runtime/admin/command.hpp"

#include "runtime/cache/types/config.hpp"
#include "runtime/config/table/nearest_name.hpp"
#include "runtime/config/table/table.hpp"
#include "terrace/config.hpp"
#include "terrace/keys.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace terrace::admin {
namespace {

namespace json = boost::json;

/// Reads the fields of a JSON object, and refuses fields that were not read.
class Fields {
 public:
  Fields(std::string_view body, std::vector<std::string> names) : names_{std::move(names)} {
    if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) return;
    // Deeper than any command. The parser fails before it uses much stack.
    json::parse_options options;
    options.max_depth = 4;
    boost::system::error_code error;
    json::value value = json::parse(body, error, {}, options);
    if (error) throw BadBody{fmt::format("the body is not JSON: {}", error.message())};
    if (!value.is_object()) throw BadBody{"the body must be a JSON object: {...}"};
    fields_ = std::move(value.get_object());
    for (const auto& [name, field] : fields_) {
      if (std::ranges::find(names_, std::string_view{name}) != names_.end()) continue;
      throw BadBody{fmt::format("\"{}\": there is no such field here{}; the fields are {}", config::one_line(name),
                                suggestion(name, names_), names_.empty() ? "none" : fmt::format("{}", fmt::join(names_, ", ")))};
    }
  }

  [[nodiscard]] const json::value* find(std::string_view name) const { return fields_.if_contains(name); }
  [[nodiscard]] bool flag(std::string_view name, bool otherwise) const {
    const json::value* const value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_bool()) throw BadBody{fmt::format("\"{}\" must be true or false", name)};
    return value->get_bool();
  }
  [[nodiscard]] std::optional<std::uint64_t> number(std::string_view name, std::uint64_t max) const {
    const json::value* const value = find(name);
    if (value == nullptr) return std::nullopt;
    boost::system::error_code error;
    const auto number = value->to_number<std::uint64_t>(error);
    if (error || number > max) throw BadBody{fmt::format("\"{}\" must be a whole number from 0 to {}", name, max)};
    return number;
  }
  [[nodiscard]] std::optional<std::string> text(std::string_view name) const {
    const json::value* const value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) throw BadBody{fmt::format("\"{}\" must be a text in quotes", name)};
    return std::string{value->get_string()};
  }
  /// A text such as "8GiB", or a number of bytes.
  [[nodiscard]] std::optional<Bytes> bytes(std::string_view name) const {
    const json::value* const value = find(name);
    if (value != nullptr && value->is_number()) return Bytes{*number(name, std::numeric_limits<std::uint64_t>::max())};
    const std::optional<std::string> word = text(name);
    if (!word) return std::nullopt;
    return Bytes{read([&] { return config::read_size(quoted(name), *word, {}); })};
  }
  [[nodiscard]] std::optional<Duration> duration(std::string_view name) const {
    const std::optional<std::string> word = text(name);
    if (!word) return std::nullopt;
    constexpr config::Limits year{0, 366ULL * 86'400'000'000'000};
    const std::uint64_t time = read([&] { return config::read_duration(quoted(name), *word, year); });
    return std::chrono::nanoseconds{static_cast<std::int64_t>(time)};
  }

 private:
  static std::string quoted(std::string_view name) { return fmt::format("\"{}\"", name); }
  template <class Reader>
  static std::uint64_t read(Reader reader) {
    try {
      return reader();
    } catch (const ConfigError& error) {
      throw BadBody{error.what()};
    }
  }

  std::vector<std::string> names_;
  json::object fields_;
};

template <class E, std::size_t n>
E one_of(std::string_view name, const std::string& word, const std::array<E, n>& all) {
  std::vector<std::string> names;
  for (const E each : all) {
    if (to_string(each) == word) return each;
    names.emplace_back(to_string(each));
  }
  throw BadBody{fmt::format("\"{}\" is \"{}\": it must be one of {}", name, config::one_line(word), fmt::join(names, ", "))};
}

/// The options of the table are fields of a Draft. The Draft has the settings in the fields of the same names.
config::Draft draft_of(const CacheSettings& settings) {
  config::Draft draft;
  draft.policy = to_string(settings.policy);
  draft.system.write_policy = settings.write_policy;
  copy_settings(settings, draft.system);
  return draft;
}

constexpr std::array<EvictionPolicyName, 3> policies{EvictionPolicyName::adaptive, EvictionPolicyName::lru,
                                                     EvictionPolicyName::own};

/// The names that the value of this option may have. A program may have provided its own policy, so a running cache may know one
/// more name than a configuration.
std::vector<std::string> names_of(const config::Option& option) {
  if (option.name() != "policy") return option.names;
  std::vector<std::string> names;
  names.reserve(policies.size());
  for (const EvictionPolicyName each : policies) names.emplace_back(to_string(each));
  return names;
}

CacheSettings settings_of(const config::Draft& draft) {
  CacheSettings settings{.policy = one_of("policy", draft.policy, policies), .write_policy = draft.system.write_policy.value()};
  copy_settings(draft.system, settings);
  return settings;
}

std::vector<std::string> live_names() {
  std::vector<std::string> names;
  for (const config::Option& option : config::options()) {
    if (option.live) names.push_back(option.name());
  }
  return names;
}

/// A JSON value as the word that a flag would have.
std::string word_of(std::string_view name, const json::value& value) {
  if (value.is_string()) return std::string{value.get_string()};
  if (value.is_bool()) return value.get_bool() ? "on" : "off";
  if (value.is_number()) return json::serialize(value);
  throw BadBody{fmt::format("\"{}\" must be a text, a number, true or false", config::one_line(name))};
}

}  // namespace

Resize read_resize(std::string_view body) {
  const Fields fields{body, {"tier", "pool", "blocks", "bytes"}};
  Resize resize;
  const std::optional<std::string> tier = fields.text("tier");
  if (!tier) throw BadBody{"\"tier\" is missing: device, host or storage"};
  resize.tier = one_of("tier", *tier, all_tiers);
  resize.pool = PoolId{static_cast<PoolId::rep>(fields.number("pool", std::numeric_limits<PoolId::rep>::max()).value_or(0))};
  resize.blocks = fields.number("blocks", std::numeric_limits<std::uint32_t>::max());
  resize.bytes = fields.bytes("bytes");
  if (resize.blocks.has_value() == resize.bytes.has_value()) throw BadBody{"give \"blocks\" or \"bytes\""};
  return resize;
}

Clear read_clear(std::string_view body) {
  const Fields fields{body, {"wait", "keep-storage", "keep-shared", "release-host"}};
  return {{.wait = fields.flag("wait", false),
           .keep_storage = fields.flag("keep-storage", false),
           .keep_shared = fields.flag("keep-shared", false),
           .release_host = fields.flag("release-host", false)}};
}

Update read_update(std::string_view body) {
  const Fields fields{body, {"weights-revision", "wait"}};
  Update update{.wait = fields.flag("wait", false), .weights_revision = fields.text("weights-revision").value_or("")};
  if (update.weights_revision.empty()) {
    throw BadBody{"\"weights-revision\" is missing: the name of the new weights, as in the option shared.weights-revision"};
  }
  return update;
}

Change read_change(std::string_view body) {
  std::vector<std::string> all;
  for (const config::Option& option : config::options()) all.push_back(option.name());
  const Fields fields{body, all};
  Change change;
  for (const std::string& name : all) {
    const json::value* const value = fields.find(name);
    if (value != nullptr) change.values.emplace_back(name, word_of(name, *value));
  }
  if (change.values.empty()) throw BadBody{fmt::format("nothing to change: name some of {}", fmt::join(live_names(), ", "))};
  (void)changed({}, change);  // values that are always wrong are refused before the cache is asked
  return change;
}

StartJob read_start_job(std::string_view body) {
  using Scope = WriteBackOrder::Scope;
  using Target = WriteBackOrder::Target;
  const Fields fields{body, {"target", "scope", "request", "keys", "tenant", "unused-for", "deadline", "durable", "budget"}};
  StartJob job;
  job.order.target = one_of("target", fields.text("target").value_or("storage"), std::array{Target::storage, Target::shared});
  job.order.scope = one_of("scope", fields.text("scope").value_or("all"),
                           std::array{Scope::all, Scope::request, Scope::prefix, Scope::tenant, Scope::idle});
  const auto belongs = [&](std::string_view name, Scope scope) {
    const bool given = fields.find(name) != nullptr;
    if (given == (job.order.scope == scope)) return;
    throw BadBody{fmt::format("\"{}\" {} scope {}", name, given ? "is for" : "is missing for", to_string(scope))};
  };
  belongs("request", Scope::request);
  belongs("keys", Scope::prefix);
  belongs("tenant", Scope::tenant);
  belongs("unused-for", Scope::idle);
  constexpr std::uint64_t any = std::numeric_limits<std::uint64_t>::max();
  job.order.request = RequestId{fields.number("request", any).value_or(0)};
  job.order.tenant = TenantId{fields.number("tenant", any).value_or(0)};
  job.order.unused_for = fields.duration("unused-for").value_or(Duration{});
  job.order.durable = fields.flag("durable", true);
  job.order.budget = fields.bytes("budget").value_or(Bytes{});
  job.deadline = fields.duration("deadline");
  if (const json::value* const keys = fields.find("keys")) {
    const json::array* const array = keys->if_array();
    if (array == nullptr || array->empty()) throw BadBody{"\"keys\" must be a list of keys, from the first block on"};
    for (const json::value& each : *array) {
      const json::string* const text = each.if_string();
      const Result<BlockKey> key = text == nullptr ? Result<BlockKey>{Errc::invalid_argument} : parse_block_key(*text);
      if (!key) throw BadBody{"\"keys\": each key has 64 hexadecimal digits"};
      job.keys.push_back(*key);
    }
  }
  return job;
}

StartCapture read_capture(CaptureKind kind, std::string_view body) {
  const Fields fields{body, {"time"}};
  const Duration length = fields.duration("time").value_or(std::chrono::seconds{10});
  if (length > std::chrono::hours{1}) throw BadBody{"\"time\" must be at most 1h"};
  return {kind, length};
}

void read_nothing(std::string_view body) { const Fields none{body, {}}; }

CacheSettings changed(const CacheSettings& now, const Change& change) {
  config::Draft draft = draft_of(now);
  for (const auto& [name, word] : change.values) {
    const auto is_it = [&](const config::Option& each) { return each.name() == name; };
    const auto found = std::ranges::find_if(config::options(), is_it);
    if (found == config::options().end()) throw BadBody{fmt::format("there is no option \"{}\"", name)};
    const config::Option& option = *found;
    if (!option.live) {
      throw BadBody{
          fmt::format("\"{}\" cannot change while the cache serves; what can: {}", name, fmt::join(live_names(), ", "))};
    }
    try {
      option.set(draft, 0, config::read_value(option.type, fmt::format("\"{}\"", name), word, option.limits, names_of(option)));
    } catch (const ConfigError& error) {
      throw BadBody{error.what()};
    }
  }
  return settings_of(draft);
}

json::object to_json(const CacheSettings& settings) {
  const config::Draft draft = draft_of(settings);
  json::object all;
  for (const config::Option& option : config::options()) {
    if (option.live) all[option.name()] = config::to_word(option.type, option.get(draft, 0).value());
  }
  return all;
}

std::string error_body(std::string_view sentence) {
  return json::serialize(json::object{{"error", config::one_line(sentence)}}) + "\n";
}

}  // namespace terrace::admin
