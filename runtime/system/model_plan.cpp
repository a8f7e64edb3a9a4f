#include "terrace/model_plan.hpp"

#include "runtime/system/pool_plan.hpp"

#include <boost/describe.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

namespace terrace {

BOOST_DESCRIBE_ENUM(KvType, float32, float16, bfloat16, float8, int8, int4)

namespace {

[[noreturn]] void refuse(std::size_t entry, const std::string& why) {
  throw std::invalid_argument{fmt::format("layers {}: {}", entry, why)};
}

/// The sizes of one layer in one block, on one rank.
struct LayerBytes {
  std::uint64_t values = 0;
  std::uint64_t scales = 0;
};

std::uint64_t product(std::size_t entry, std::initializer_list<std::uint64_t> factors) {
  std::uint64_t all = 1;
  for (const std::uint64_t factor : factors) {
    if (factor != 0 && all > (std::uint64_t{1} << 50) / factor) refuse(entry, "a block would have more than a PiB");
    all *= factor;
  }
  return all;
}

std::uint64_t whole_bytes(std::size_t entry, std::uint64_t values, KvType type, std::uint32_t block_tokens) {
  const std::uint64_t bits = product(entry, {values, bits_of(type)});
  if (bits % 8 == 0) return bits / 8;
  refuse(entry, fmt::format("{} values of {} in {} tokens are not a whole number of bytes: {} tokens would do", values,
                            to_string(type), block_tokens, block_tokens * (8 / std::gcd<std::uint64_t>(bits, 8))));
}

/// The heads that one rank holds.
std::uint32_t heads_of_rank(std::size_t entry, std::uint32_t heads, std::uint32_t ranks) {
  if (heads >= ranks ? heads % ranks != 0 : ranks % heads != 0) {
    refuse(entry,
           fmt::format("{} KV heads cannot be divided evenly among {} ranks: one must be a multiple of the other", heads, ranks));
  }
  return std::max(heads / ranks, 1U);
}

/// The values of each of a token's vectors (K and V of each head, or a latent), and how many vectors there are on one rank.
struct Vectors {
  std::uint64_t count = 0;
  std::vector<std::uint32_t> sizes;
};

Vectors vectors_of(std::size_t entry, const LayerShape& shape, std::uint32_t ranks) {
  if (shape.latent_size > 0) return {1, {shape.latent_size}};
  const std::uint32_t value_size = shape.value_head_size > 0 ? shape.value_head_size : shape.head_size;
  return {heads_of_rank(entry, shape.kv_heads, ranks), {shape.head_size, value_size}};
}

void check(std::size_t entry, const LayerShape& shape) {
  if (shape.layers == 0) refuse(entry, "there is no layer: at least 1 is needed");
  if (shape.block_tokens == 0) refuse(entry, "a block has no token: at least 1 is needed");
  const bool heads = shape.kv_heads > 0 || shape.head_size > 0;
  const bool latent = shape.latent_size > 0;
  const bool state = count(shape.state_bytes) > 0;
  if (heads + latent + state != 1) refuse(entry, "one of kv_heads with head_size, latent_size, and state_bytes must be set");
  if (heads && (shape.kv_heads == 0 || shape.head_size == 0)) refuse(entry, "kv_heads and head_size must both be set");
  if (state != (shape.kind == GroupKind::recurrent)) refuse(entry, "state_bytes is for kind recurrent, and the others are not");
  if (state && shape.scales) refuse(entry, "a state has no scales: its bytes include them");
}

LayerBytes bytes_of(std::size_t entry, const LayerShape& shape, std::uint32_t ranks) {
  check(entry, shape);
  if (count(shape.state_bytes) > 0) {
    if (count(shape.state_bytes) % ranks != 0) {
      refuse(entry, fmt::format("a state of {} bytes cannot be divided evenly among {} ranks", count(shape.state_bytes), ranks));
    }
    return {count(shape.state_bytes) / ranks, 0};
  }
  const Vectors vectors = vectors_of(entry, shape, ranks);
  std::uint64_t values = 0;
  std::uint64_t scales = 0;
  for (const std::uint32_t size : vectors.sizes) {
    values += product(entry, {vectors.count, size, shape.block_tokens});
    if (!shape.scales) continue;
    const std::uint32_t each = shape.scales->values_per_scale > 0 ? shape.scales->values_per_scale : size;
    if (size % each != 0)
      refuse(entry, fmt::format("{} values cannot be divided into runs of {} with one scale each", size, each));
    scales += product(entry, {vectors.count, size / each, shape.block_tokens});
  }
  LayerBytes bytes;
  bytes.values = whole_bytes(entry, values, shape.type, shape.block_tokens);
  if (shape.scales) bytes.scales = whole_bytes(entry, scales, shape.scales->type, shape.block_tokens);
  return bytes;
}

}  // namespace

std::uint32_t bits_of(KvType type) {
  switch (type) {
    case KvType::float32: return 32;
    case KvType::float16:
    case KvType::bfloat16: return 16;
    case KvType::float8:
    case KvType::int8: return 8;
    case KvType::int4: return 4;
  }
  return 8;
}

std::string_view to_string(KvType type) { return boost::describe::enum_to_string(type, "?"); }

void GroupPlan::apply_to(CacheSystemOptions& options) const {
  options.groups = groups;
  options.pools = pools;
  options.rank_payload = rank_payload;
  options.ranks.resize(ranks);
}

GroupPlan plan_groups(const ModelShape& model, const TypicalSequence& typical, const MemoryBudget& budget) {
  if (model.ranks == 0) throw std::invalid_argument{"a model needs at least one rank"};
  constexpr std::size_t kinds_max = 1024;
  if (model.layers.empty()) throw std::invalid_argument{"a model needs at least one kind of layer"};
  if (model.layers.size() > kinds_max) throw std::invalid_argument{"a model has at most 1024 kinds of layers"};
  if (count(budget.block_unit) == 0) throw std::invalid_argument{"the unit of block sizes must be at least one byte"};
  const bool all_alike = std::ranges::all_of(model.layers, [](const LayerShape& shape) { return shape.latent_size > 0; });
  const std::uint64_t copies = all_alike ? 1 : model.ranks;
  std::vector<SizedGroup> sized;
  for (std::size_t entry = 0; entry < model.layers.size(); ++entry) {
    const LayerShape& shape = model.layers[entry];
    const LayerBytes layer = bytes_of(entry, shape, model.ranks);
    const bool apart = shape.scales && shape.scales->place == QuantisationScales::Place::own_group;
    const auto add = [&](std::uint64_t layer_bytes) {
      const std::uint64_t bytes = product(entry, {layer_bytes, shape.layers});
      const std::uint64_t off = std::gcd(product(entry, {bytes, copies}), count(budget.block_unit));
      if (off != count(budget.block_unit)) {
        refuse(entry, fmt::format("a block of {} tokens has {} bytes, which is not a multiple of {}: {} tokens would do",
                                  shape.block_tokens, bytes * copies, to_string(budget.block_unit),
                                  shape.block_tokens * (count(budget.block_unit) / off)));
      }
      SizedGroup group;
      group.group = {.kind = shape.kind,
                     .block_tokens = shape.block_tokens,
                     .span_tokens = shape.span_tokens,
                     .optional = shape.optional,
                     .pool = {}};
      group.block_bytes = Bytes{bytes};
      group.layers = shape.layers;
      sized.push_back(group);
    };
    add(layer.values + (apart ? 0 : layer.scales));
    if (apart) add(layer.scales);
  }
  GroupPlan plan = plan_pools(sized, typical, budget.device, Bytes{count(budget.host) / copies}, budget.staging_blocks);
  for (PoolOptions& pool : plan.pools) pool.block_bytes = pool.block_bytes * copies;
  plan.rank_payload = all_alike ? RankPayload::replicated : RankPayload::sharded;
  plan.ranks = model.ranks;
  plan.host_used = plan.host_used * copies;
  return plan;
}

}  // namespace terrace
