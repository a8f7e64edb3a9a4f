#include "capi/status.hpp"
#include "terrace.h"
#include "terrace/model_plan.hpp"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>

namespace terrace::capi {
namespace {

static_assert(static_cast<int>(KvType::int4) == TERRACE_INT4);
static_assert(static_cast<int>(GroupKind::cross) == TERRACE_ATTENTION_CROSS);
static_assert(static_cast<int>(QuantisationScales::Place::own_group) + 1 == TERRACE_SCALES_OWN_GROUP);

template <class Enum>
Enum one_of(uint32_t number, uint32_t last, const char* name) {
  if (number <= last) return static_cast<Enum>(number);
  throw std::invalid_argument{std::string{name} + " of a layer is " + std::to_string(number) + ", must be from 0 to " +
                              std::to_string(last)};
}

LayerShape shape_of(const terrace_layer_shape& given) {
  LayerShape shape{.kind = one_of<GroupKind>(given.kind, TERRACE_ATTENTION_CROSS, "kind"),
                   .layers = given.layers,
                   .block_tokens = given.block_tokens,
                   .span_tokens = given.span_tokens,
                   .optional = given.optional != 0,
                   .kv_heads = given.kv_heads,
                   .head_size = given.head_size,
                   .value_head_size = given.value_head_size,
                   .latent_size = given.latent_size,
                   .state_bytes = Bytes{given.state_bytes},
                   .type = one_of<KvType>(given.type, TERRACE_INT4, "type")};
  if (given.scales != TERRACE_SCALES_NONE) {
    shape.scales = {one_of<KvType>(given.scale_type, TERRACE_INT4, "scale_type"), given.values_per_scale,
                    one_of<QuantisationScales::Place>(given.scales - 1, TERRACE_SCALES_OWN_GROUP - 1, "scales, less 1,")};
  }
  return shape;
}

}  // namespace
}  // namespace terrace::capi

using namespace terrace::capi;

terrace_status terrace_plan_groups(const terrace_plan_order* order, terrace_planned_group* groups, terrace_planned_pool* pools,
                                   terrace_group_plan* out) {
  return guarded(__func__, [&] {
    const terrace_plan_order given = read_struct("order", order);
    check_struct("out", out);
    need(groups, "groups");
    need(pools, "pools");
    if (given.layer_count > 0) need(given.layers, "order->layers");
    terrace::ModelShape model{.ranks = std::max(given.ranks, 1U)};
    for (const terrace_layer_shape& shape : std::span{given.layers, given.layer_count}) model.layers.push_back(shape_of(shape));
    const terrace::GroupPlan plan = plan_groups(model, {given.tokens, given.chunk_tokens, given.encoder_tokens},
                                                {.device = terrace::Bytes{given.device_bytes},
                                                 .host = terrace::Bytes{given.host_bytes},
                                                 .staging_blocks = terrace::Blocks{given.staging_blocks},
                                                 .block_unit = terrace::Bytes{std::max(given.block_unit, uint64_t{1})}});
    for (const terrace::GroupConfig& group : plan.groups) {
      *groups++ = {static_cast<uint32_t>(group.kind), group.block_tokens, group.span_tokens, group.optional ? 1U : 0U,
                   group.pool.value()};
    }
    for (const terrace::PoolOptions& pool : plan.pools) {
      *pools++ = {count(pool.block_bytes),
                  pool.layers,
                  pool.device_blocks.value(),
                  pool.host_blocks.value(),
                  pool.staging_blocks.value(),
                  pool.null_block ? 1U : 0U,
                  0};
    }
    write_struct("out",
                 terrace_group_plan{0, static_cast<uint32_t>(plan.groups.size()), static_cast<uint32_t>(plan.pools.size()),
                                    plan.rank_payload == terrace::RankPayload::replicated ? 1U : 0U, plan.sequences,
                                    count(plan.device_used), count(plan.host_used)},
                 out);
  });
}
