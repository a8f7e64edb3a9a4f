#pragma once

#include "base/failure.hpp"
#include "radix/groups/groups.hpp"
#include "runtime/cache/pool/tiered_pool.hpp"
#include "runtime/cache/types/config.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace terrace {

inline constexpr auto& no_such_pool = failure<Errc::invalid_argument, "there is no such pool">;

struct ManagerState;

/// A prefix of the tree of one pool.
struct PoolPrefix {
  PoolId pool;
  Prefix prefix;
};

/// The KV cache groups of the model, and the pool that holds the blocks of each group. Members take the number of a group, which
/// is the value of its GroupId.
///
/// Ownership: it owns the pools. Threads: the manager's.
class ModelGroups {
 public:
  /// It is the last member of `state`. Throws std::invalid_argument if hash_unit() or a TieredPool does.
  explicit ModelGroups(ManagerState& state);

  [[nodiscard]] std::size_t size() const { return rules_.size(); }
  /// The rules of the groups, by GroupId.
  [[nodiscard]] const std::vector<GroupRule>& rules() const { return rules_; }
  /// Tokens of a hash unit; 1 if the configuration names no groups.
  [[nodiscard]] std::uint32_t unit_tokens() const { return unit_tokens_; }
  /// The length of a hit is a multiple of this number of hash units.
  [[nodiscard]] std::uint32_t alignment() const { return alignment_; }
  /// True if there is one group, and each of its blocks is one hash unit.
  [[nodiscard]] bool single() const { return single_; }
  /// The group whose blocks own those of the unchained groups (Companion): the first required group with full attention. Nothing
  /// if no group needs owners, or nothing is cached.
  [[nodiscard]] std::optional<std::size_t> owners() const { return owners_; }

  /// The pools, by PoolId.
  [[nodiscard]] std::span<TieredPool* const> pools() { return pools_; }
  [[nodiscard]] std::span<const TieredPool* const> pools() const { return pools_; }
  /// The sum of count(pool) over all pools.
  template <class Count>
  [[nodiscard]] auto sum(Count count) const {
    std::invoke_result_t<Count, const TieredPool&> all{};
    for (const TieredPool* const pool : pools_) all += std::invoke(count, *pool);
    return all;
  }
  [[nodiscard]] bool has(PoolId pool) const { return pool.value() < pools_.size(); }
  /// The number of the pool, and the pool. They throw std::invalid_argument if there is no such pool.
  [[nodiscard]] std::size_t index_of(PoolId pool) const {
    if (!has(pool)) refuse(pool);
    return pool.value();
  }
  [[nodiscard]] TieredPool& at(PoolId pool) { return *pools_[index_of(pool)]; }
  [[nodiscard]] const TieredPool& at(PoolId pool) const { return *pools_[index_of(pool)]; }
  [[nodiscard]] TieredPool& pool_of(std::size_t group) { return *pools_[rules_[group].config().pool.value()]; }
  [[nodiscard]] const TieredPool& pool_of(std::size_t group) const { return *pools_[rules_[group].config().pool.value()]; }

  [[nodiscard]] static GroupId id_of(std::size_t group) { return GroupId{static_cast<std::uint16_t>(group)}; }
  /// The first slot of the group's pool, which is its null block if it has one.
  [[nodiscard]] SlotId null_of(std::size_t group) const { return SlotId{pool_of(group).sizes().first_slot}; }
  [[nodiscard]] bool is_null(std::size_t group, SlotId slot) const {
    return slot == null_of(group) && pool_of(group).sizes().null_block;
  }

  /// The keys of the group's blocks, from block `from` on. `keys` has one key for each hash unit. The result has a key for each
  /// block if all units of the block have keys. It is valid until the next call.
  [[nodiscard]] std::span<const BlockKey> keys_in(std::size_t group, std::span<const BlockKey> keys, std::uint32_t from) const;
  /// The key of one block of the group: the key of the block's last unit, marked with the group (key_in_group).
  [[nodiscard]] BlockKey key_in(std::size_t group, std::span<const BlockKey> keys, std::uint32_t block) const;
  /// The cached part of these keys in the group: one prefix if the group is chained, otherwise one for each block from `first`
  /// on. A prefix has length 0 if nothing is cached. Nothing for a group that is not cached.
  [[nodiscard]] std::vector<Prefix> find(std::size_t group, std::span<const BlockKey> keys, std::uint32_t first = 0) const;

 private:
  [[noreturn]] void refuse(PoolId pool) const;
  void choose_owners(bool caching);

  std::uint32_t unit_tokens_ = 1;
  std::vector<GroupRule> rules_;
  std::uint32_t alignment_ = 1;
  bool single_ = true;
  std::optional<std::size_t> owners_;
  SharedWriteLimits shared_writes_;
  std::vector<std::unique_ptr<TieredPool>> owned_pools_;
  std::vector<TieredPool*> pools_;            ///< by PoolId
  mutable std::vector<BlockKey> group_keys_;  ///< scratch
};

}  // namespace terrace
