#include "runtime/config/givens.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace terrace::config {
namespace {

/// The option for the same value in another unit; nullptr if there is none.
const Option* counterpart(const Option& option) {
  if (option.scope() != Scope::pool) return nullptr;
  for (const std::string_view memory : {"device", "host"}) {
    if (option.key == fmt::format("{}-blocks", memory)) return find_option("pool", fmt::format("{}-capacity", memory));
    if (option.key == fmt::format("{}-capacity", memory)) return find_option("pool", fmt::format("{}-blocks", memory));
  }
  return nullptr;
}

std::vector<std::string> split(std::string_view words, char at) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find(at, begin), words.size());
    parts.emplace_back(words.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

std::string spelled(const Option& option, const ConfigOrigin& origin) {
  if (origin.level == ConfigLevel::by_default) return option.name();
  return origin.level == ConfigLevel::file ? fmt::format("{}: {}", origin.where, option.name()) : origin.where;
}

std::string mention(const Option& option, ConfigLevel level) {
  std::string name = level == ConfigLevel::flag ? option.flag_name() : level == ConfigLevel::environment ? option.variable() : "";
  return name.empty() ? option.name() : name;
}

void Givens::add(const Option& option, std::size_t n, Given given) {
  const auto [at, is_new] = given_.try_emplace({&option, n}, given);
  if (!is_new && at->second.origin.level <= given.origin.level) at->second = std::move(given);
}

void Givens::add_word(const Option& option, std::string_view word, const ConfigOrigin& origin) {
  if (option.scope() == Scope::rank) return replace_devices(option, word, origin);
  if (option.type != Type::paths) return add(option, 0, {read(option, origin.where, word), origin});
  std::vector<std::string> paths;
  const Given* const earlier = find(option);
  const bool is_flag = origin.level == ConfigLevel::flag;
  if (is_flag && earlier != nullptr && earlier->origin.level == origin.level) {
    paths = std::get<std::vector<std::string>>(earlier->value);
  }
  for (const std::string& path : is_flag ? std::vector<std::string>{std::string{word}} : split(word, ':')) {
    paths.push_back(read_path(origin.where, path));
  }
  add(option, 0, {std::move(paths), origin});
}

void Givens::replace_devices(const Option& option, std::string_view words, const ConfigOrigin& origin) {
  std::vector<Value> devices;
  for (const std::string& word : split(words, ',')) devices.push_back(read(option, origin.where, word));
  if (origin.level < devices_level_) return;
  std::erase_if(given_, [](const auto& each) { return each.first.first->scope() == Scope::rank; });
  devices_level_ = origin.level;
  ranks_ = devices.size();
  for (std::size_t rank = 0; rank < devices.size(); ++rank) add(option, rank, {devices[rank], origin});
}

void Givens::set_counts(std::size_t pools, std::size_t ranks, std::size_t groups) {
  if (pools > 0) pools_ = pools;
  if (groups > 0) groups_ = groups;
  if (ranks > 0 && devices_level_ <= ConfigLevel::file) ranks_ = ranks;
}

const Given* Givens::find(const Option& option, std::size_t n) const {
  const auto found = given_.find({&option, n});
  if (found == given_.end()) return nullptr;
  const bool other_ranks = option.scope() == Scope::rank && devices_level_ > found->second.origin.level;
  return other_ranks ? nullptr : &found->second;
}

const Given* Givens::find_any(const Option& option) const {
  for (std::size_t n = 0; n < count(option.scope()); ++n) {
    if (const Given* const found = find(option, n)) return found;
  }
  return nullptr;
}

ConfigLevel Givens::level(const Option& option, std::size_t n) const {
  const Given* const found = find(option, n);
  return found == nullptr ? ConfigLevel::by_default : found->origin.level;
}

std::size_t Givens::count(Scope scope) const {
  switch (scope) {
    case Scope::whole: return 1;
    case Scope::pool: return pools_;
    case Scope::rank: return ranks_;
    case Scope::group: return groups_;
  }
  return 0;
}

std::span<const std::string> Givens::names(const Option& option) const {
  return option.name() == "policy" ? std::span<const std::string>{policies_} : std::span<const std::string>{option.names};
}

Value Givens::read(const Option& option, std::string_view name, std::string_view word) const {
  if (!option.old_name.empty() && word == option.old_name) word = option.names.front();
  return read_value(option.type, name, word, option.limits, names(option));
}

bool displaced(const Givens& givens, const Option& option, std::size_t n) {
  const Option* const other = counterpart(option);
  return other != nullptr && givens.level(*other, n) > givens.level(option, n);
}

Draft draft_of(const Givens& givens) {
  Draft draft = default_draft(givens.count(Scope::pool), givens.count(Scope::rank), givens.count(Scope::group));
  for (const Option& option : options()) {
    for (std::size_t n = 0; n < givens.count(option.scope()); ++n) {
      const Given* const given = givens.find(option, n);
      if (given != nullptr && !displaced(givens, option, n)) option.set(draft, n, given->value);
    }
  }
  const bool write_policy_is_set = givens.find(option_named("write-policy")) != nullptr;
  if (!write_policy_is_set && draft.storage != "none") draft.system.write_policy = WritePolicy::write_through;
  return draft;
}

std::optional<Value> effective(const Givens& givens, const Draft& draft, const Option& option, std::size_t n) {
  if (displaced(givens, option, n)) return std::nullopt;
  std::optional<Value> value = option.get(draft, n);
  const bool nothing = option.type == Type::path && value && std::get<std::string>(*value).empty();
  return nothing ? std::nullopt : value;
}

}  // namespace terrace::config
