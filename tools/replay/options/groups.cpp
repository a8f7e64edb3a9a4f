#include "tools/replay/options/groups.hpp"

#include "radix/groups/groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace terrace::tools {
namespace {

constexpr std::string_view form = "KIND:BLOCK_TOKENS[:SPAN][:optional], with KIND full, window, chunked or recurrent";

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<std::uint32_t> to_tokens(std::string_view word) {
  constexpr std::uint32_t most = 1U << 24;
  std::uint32_t tokens = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), tokens);
  if (error != std::errc{} || end != word.data() + word.size() || tokens == 0 || tokens > most) return std::nullopt;
  return tokens;
}

std::optional<GroupKind> to_kind(std::string_view word) {
  if (word == "full") return GroupKind::full;
  if (word == "window") return GroupKind::sliding_window;
  if (word == "chunked") return GroupKind::chunked_local;
  if (word == "recurrent") return GroupKind::recurrent;
  return std::nullopt;
}

GroupConfig to_group(const std::string& option, std::string_view word) {
  const auto refuse = [&] { throw UsageError{fmt::format("{}: \"{}\" is not {}", option, word, form)}; };
  std::vector<std::string_view> parts = split(word, ':');
  GroupConfig group;
  if (parts.size() > 2 && parts.back() == "optional") {
    group.optional = true;
    parts.pop_back();
  }
  if (parts.size() < 2) refuse();
  const std::optional<GroupKind> kind = to_kind(parts[0]);
  const std::optional<std::uint32_t> tokens = to_tokens(parts[1]);
  if (!kind || !tokens) refuse();
  group.kind = *kind;
  group.block_tokens = *tokens;
  const bool spans = group.kind == GroupKind::sliding_window || group.kind == GroupKind::chunked_local;
  if (parts.size() != (spans ? 3U : 2U)) refuse();
  if (spans) {
    const std::optional<std::uint32_t> span = to_tokens(parts[2]);
    if (!span) refuse();
    group.span_tokens = *span;
  }
  return group;
}

bool may_have_gaps(const GroupConfig& group) { return group.kind != GroupKind::full || group.optional; }

void check_layers(const ReplayOptions& options) {
  if (options.layers == 1) return;
  if (options.reference) throw UsageError{"--reference copies whole blocks: --layers makes no sense with it"};
  if (options.mode == Mode::loop) throw UsageError{"--layers runs in --mode confined"};
  constexpr std::uint64_t word = 8;
  const std::uint64_t ranks = options.rank_payload == RankPayload::replicated ? 1 : options.ranks();
  const std::uint64_t unit = word * ranks * options.layers;
  if (count(options.block_bytes) % unit == 0) return;
  throw UsageError{fmt::format("--block-bytes: {} cannot be divided into {} layers: use a multiple of {} bytes",
                               to_string(options.block_bytes), options.layers, unit)};
}

}  // namespace

std::vector<GroupConfig> to_groups(const std::string& option, const std::string& word) {
  std::vector<GroupConfig> groups;
  for (const std::string_view part : split(word, ',')) groups.push_back(to_group(option, part));
  return groups;
}

std::vector<GroupConfig> groups_of(const ReplayOptions& options) {
  if (!options.groups.empty()) return options.groups;
  return {GroupConfig{.block_tokens = options.block_tokens}};
}

void choose_groups(ReplayOptions& options) {
  check_layers(options);
  if (options.groups.empty()) return;
  if (options.reference) throw UsageError{"--reference is for one group: --groups makes no sense with it"};
  if (options.mode == Mode::loop) throw UsageError{"--groups runs in --mode confined"};
  const GroupConfig& first = options.groups.front();
  if (first.kind != GroupKind::full || first.optional)
    throw UsageError{"--groups: the first group must be full, and not optional"};
  if (hash_unit(options.groups) != options.block_tokens) {
    throw UsageError{fmt::format("--groups: blocks of {} tokens and their multiples are possible (--block-tokens), and one group "
                                 "must have such blocks",
                                 options.block_tokens)};
  }
  std::vector<GroupRule> rules;
  try {
    for (const GroupConfig& group : options.groups) rules.emplace_back(group, options.block_tokens);
  } catch (const std::invalid_argument& error) {
    throw UsageError{fmt::format("--groups: {}", error.what())};
  }
  std::vector<std::uint32_t> sizes;
  for (std::size_t g = 0; g < rules.size(); ++g) {
    GroupConfig& group = options.groups[g];
    if (group.optional && hit_alignment(rules) % rules[g].units_per_block() != 0) {
      throw UsageError{fmt::format("--groups: blocks of {} tokens in an optional group: a hit may end within them, because no "
                                   "required group has such blocks",
                                   group.block_tokens)};
    }
    const auto at = std::ranges::find(sizes, group.block_tokens);
    group.pool = PoolId{static_cast<std::uint16_t>(at - sizes.begin())};
    if (at == sizes.end()) sizes.push_back(group.block_tokens);
  }
}

std::vector<PoolOptions> pools_of(const ReplayOptions& options) {
  std::vector<PoolOptions> pools;
  for (const GroupConfig& group : groups_of(options)) {
    if (group.pool.value() == pools.size()) pools.emplace_back();
    PoolOptions& pool = pools[group.pool.value()];
    const std::uint32_t units = group.block_tokens / options.block_tokens;
    const auto blocks_for = [&](std::uint32_t unit_count) { return unit_count / units + (unit_count % units == 0 ? 0 : 1); };
    pool.block_bytes = options.block_bytes * units;
    pool.layers = options.layers;
    if (may_have_gaps(group) && !pool.null_block) {
      pool.null_block = true;
      ++pool.device_blocks;
    }
    pool.device_blocks += blocks_for(options.device_blocks);
    pool.host_blocks += blocks_for(options.host_blocks);
  }
  return pools;
}

}  // namespace terrace::tools
