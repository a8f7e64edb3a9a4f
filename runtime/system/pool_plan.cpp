#include "runtime/system/pool_plan.hpp"

#include "radix/tree/copy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

namespace terrace {
namespace {

std::uint64_t blocks_for(std::uint64_t tokens, std::uint32_t block_tokens) { return (tokens + block_tokens - 1) / block_tokens; }

/// Number of blocks of the group that one running sequence holds.
std::uint64_t blocks_of_one(const GroupConfig& group, const TypicalSequence& typical) {
  const std::uint64_t all = blocks_for(typical.tokens, group.block_tokens);
  switch (group.kind) {
    case GroupKind::full: return all;
    case GroupKind::sliding_window:
    case GroupKind::chunked_local:
      // The window may begin in the middle of a block.
      return std::min(all, blocks_for(std::uint64_t{group.span_tokens} + typical.chunk_tokens, group.block_tokens) + 1);
    // the state before this step, and the one that is being computed
    case GroupKind::recurrent: return std::min<std::uint64_t>(all, 2);
    case GroupKind::cross: return blocks_for(typical.encoder_tokens, group.block_tokens);
  }
  return all;
}

constexpr Bytes memory_max = TiB * 1024 * 1024;

/// Adds the bytes of so many blocks. The sum ends at twice memory_max, which is more than any budget.
void add(std::uint64_t& sum, std::uint64_t blocks, Bytes block) {
  constexpr std::uint64_t most = 2 * count(memory_max);
  sum = blocks > (most - sum) / count(block) ? most : sum + blocks * count(block);
}

/// Numbers of blocks for the pools, in the ratio of `shares`, with at most `bytes` in total.
std::vector<std::uint64_t> divide(Bytes bytes, std::span<const std::uint64_t> shares, std::span<const PoolOptions> pools) {
  const auto bytes_of = [&](std::size_t pool) { return count(pools[pool].block_bytes); };
  std::uint64_t of_one = 0;
  for (std::size_t pool = 0; pool < shares.size(); ++pool) of_one += shares[pool] * bytes_of(pool);
  std::vector<std::uint64_t> blocks(shares.size());
  std::uint64_t left = count(bytes);
  const double sequences = static_cast<double>(count(bytes)) / static_cast<double>(of_one);
  for (std::size_t pool = 0; pool < shares.size(); ++pool) {
    blocks[pool] = static_cast<std::uint64_t>(sequences * static_cast<double>(shares[pool]));
    while (blocks[pool] * bytes_of(pool) > left) --blocks[pool];  // if the product was rounded up
    left -= blocks[pool] * bytes_of(pool);
  }
  // Distribute the bytes that rounding left: one block at a time, or a part of what is left if that is much, as beside a pool of
  // very large blocks. The next blocks go to the pool with the smallest part of its share, among those whose block still fits.
  for (;;) {
    std::size_t poorest = shares.size();
    for (std::size_t pool = 0; pool < shares.size(); ++pool) {
      if (bytes_of(pool) > left) continue;
      if (poorest == shares.size() || blocks[pool] * shares[poorest] < blocks[poorest] * shares[pool]) poorest = pool;
    }
    if (poorest == shares.size()) return blocks;
    const std::uint64_t given = std::max<std::uint64_t>(1, left / bytes_of(poorest) / 1024);
    blocks[poorest] += given;
    left -= given * bytes_of(poorest);
  }
}

}  // namespace

GroupPlan plan_pools(std::span<const SizedGroup> groups, const TypicalSequence& typical, Bytes device, Bytes host,
                     Blocks staging_blocks) {
  if (device > memory_max || host > memory_max) {
    throw std::invalid_argument{
        fmt::format("{} are given, must be at most {}", to_string(std::max(device, host)), to_string(memory_max))};
  }
  GroupPlan plan;
  std::vector<std::uint64_t> shares;
  for (const SizedGroup& sized : groups) {
    if (count(sized.block_bytes) == 0) throw std::invalid_argument{"a group's blocks must have at least one byte"};
    const auto found = std::ranges::find_if(plan.pools, [&](const PoolOptions& pool) {
      return pool.block_bytes == sized.block_bytes && pool.layers == sized.layers;
    });
    const auto pool = static_cast<std::size_t>(found - plan.pools.begin());
    if (found == plan.pools.end()) {
      plan.pools.push_back({.block_bytes = sized.block_bytes, .layers = sized.layers, .staging_blocks = staging_blocks});
      shares.push_back(0);
    }
    GroupConfig group = sized.group;
    group.pool = PoolId{static_cast<std::uint16_t>(pool)};
    plan.groups.push_back(group);
    const std::uint64_t blocks = blocks_of_one(group, typical);
    if (blocks == 0) {
      throw std::invalid_argument{fmt::format("a typical sequence has no block in group {} ({}): give its {}",
                                              plan.groups.size() - 1, to_string(group.kind),
                                              group.kind == GroupKind::cross ? "encoder tokens" : "tokens")};
    }
    shares[pool] += blocks;
    plan.pools[pool].null_block |= group.optional || (group.kind != GroupKind::full && group.kind != GroupKind::cross);
  }
  std::uint64_t needed = 0;
  std::uint64_t nulls = 0;
  std::uint64_t staging = 0;
  for (std::size_t pool = 0; pool < shares.size(); ++pool) {
    const Bytes bytes = plan.pools[pool].block_bytes;
    add(needed, shares[pool], bytes);
    add(nulls, plan.pools[pool].null_block ? 1 : 0, bytes);
    add(staging, staging_blocks.value(), bytes);
  }
  if (groups.empty()) throw std::invalid_argument{"a plan needs a group"};
  if (needed + nulls > count(device)) {
    throw std::invalid_argument{fmt::format("a sequence of {} tokens needs {} on the device, and there are {}", typical.tokens,
                                            to_string(Bytes{needed + nulls}), to_string(device))};
  }
  if (staging > count(host)) {
    throw std::invalid_argument{fmt::format("{} staging blocks a pool need {} on the host, and there are {}",
                                            staging_blocks.value(), to_string(Bytes{staging}), to_string(host))};
  }
  const auto on_device = divide(Bytes{count(device) - nulls}, shares, plan.pools);
  const auto on_host = divide(Bytes{count(host) - staging}, shares, plan.pools);
  plan.sequences = std::numeric_limits<std::uint32_t>::max();
  for (std::size_t pool = 0; pool < shares.size(); ++pool) {
    PoolOptions& made = plan.pools[pool];
    const std::uint64_t with_null = on_device[pool] + (made.null_block ? 1 : 0);
    const std::uint64_t with_staging = on_host[pool] + staging_blocks.value();
    if (with_null >= Copy::slots_max || with_staging >= Copy::slots_max) {
      throw std::invalid_argument{
          fmt::format("blocks of {} are too small for so much memory: {} on the device, {} on the host; each must be under {}",
                      to_string(made.block_bytes), with_null, on_host[pool], Copy::slots_max)};
    }
    made.device_blocks = Blocks{static_cast<std::uint32_t>(with_null)};
    made.host_blocks = Blocks{static_cast<std::uint32_t>(on_host[pool])};
    plan.device_used += made.block_bytes * with_null;
    plan.host_used += made.block_bytes * with_staging;
    plan.sequences = std::min(plan.sequences, static_cast<std::uint32_t>(on_device[pool] / shares[pool]));
  }
  return plan;
}

}  // namespace terrace
