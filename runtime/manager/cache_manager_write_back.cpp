// Operators' write-back jobs: which prefixes an order speaks of.

#include "runtime/manager/cache_manager.hpp"

#include <algorithm>
#include <limits>

namespace terrace {

Result<WriteBackId> CacheManager::start_write_back(const WriteBackOrder& order) {
  using Scope = WriteBackOrder::Scope;
  if (!config_.storage) return Errc::invalid_argument;
  if (status_ != CacheStatus::normal) return Errc::paused;
  Result<WriteBackId> started = Errc::invalid_argument;
  switch (order.scope) {
    case Scope::request: started = write_back_request(order); break;
    case Scope::prefix: started = write_back_prefix(order); break;
    case Scope::tenant:
    case Scope::all: started = write_backs_->start(order, std::numeric_limits<std::uint64_t>::max()); break;
    case Scope::age: started = write_backs_->start(order, use_clock_.stamp_at(now_ - order.unused_for)); break;
  }
  settle();
  return started;
}

Durability CacheManager::durability() const {
  Durability all;
  for (const auto& pool : pools_) {
    const Durability of_pool = pool->durability();
    all.durable_blocks += of_pool.durable_blocks;
    all.lost_blocks += of_pool.lost_blocks;
    all.durable += of_pool.durable;
    all.lost += of_pool.lost;
  }
  return all;
}

Result<WriteBackId> CacheManager::write_back_request(const WriteBackOrder& order) {
  const Result<Index> index = find_ready(order.request);
  if (!index) return index.error();
  const Request& r = requests_[*index];
  if (r.epoch != epoch_) return Errc::cleared;
  std::vector<WriteBackJobs::PrefixIn> prefixes;
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    const PoolId pool = rules_[g].config().pool;
    if (!rules_[g].cached()) continue;
    if (rules_[g].chained()) {
      if (r.parts[g].prefix.length > 0) prefixes.push_back({pool, r.parts[g].prefix});
      continue;
    }
    for (const auto& unchained_block : r.parts[g].unchained) {
      if (unchained_block.prefix.length > 0) prefixes.push_back({pool, unchained_block.prefix});
    }
  }
  return write_backs_->start(order, prefixes, {});
}

Result<WriteBackId> CacheManager::write_back_prefix(const WriteBackOrder& order) {
  std::vector<WriteBackJobs::PrefixIn> prefixes;
  std::vector<BlockKey> gone;
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    const GroupRule& rule = rules_[g];
    if (!rule.cached()) continue;
    const PoolId pool = rule.config().pool;
    const PrefixTree& tree = residency(pool).tree();
    const std::uint32_t blocks = rule.full_blocks(static_cast<std::uint32_t>(order.keys.size()));
    if (rule.chained()) {
      const Prefix prefix = tree.find(keys_in(g, order.keys, 0));
      if (prefix.length > 0) prefixes.push_back({pool, prefix});
      for (std::uint32_t block = prefix.length; block < blocks; ++block) gone.push_back(key_in(g, order.keys, block));
      continue;
    }
    // Of other kinds most blocks are given up by design: those that are there are all there are.
    for (std::uint32_t block = 0; block < blocks; ++block) {
      const BlockKey key = key_in(g, order.keys, block);
      const Prefix prefix = tree.find(std::span{&key, 1});
      if (prefix.length > 0) prefixes.push_back({pool, prefix});
    }
  }
  if (prefixes.empty()) return Errc::not_found;
  return write_backs_->start(order, prefixes, gone);
}

}  // namespace terrace
