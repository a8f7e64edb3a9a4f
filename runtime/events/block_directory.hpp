#pragma once

#include "base/key_table.hpp"
#include "base/slab.hpp"
#include "runtime/events/batch_writer.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

namespace terrace::events {

/// Number of a block in a BlockDirectory. A number is used again after its block has been forgotten.
using RecordId = StrongId<struct RecordTag>;

/// Remembers blocks: which tiers have a copy, and what the engine has told of their tokens. A block is *published* while it has
/// both. The others are spare: the one that has been spare longest is forgotten if there is no room for a new block. A block that
/// has neither is forgotten at once.
///
/// Threads: one.
class BlockDirectory {
 public:
  struct Record {
    BlockKey key{};
    GroupId group{};
    std::uint8_t tiers = 0;  ///< bit index(tier) is set if the tier has a copy
    std::optional<Description> description{};

    [[nodiscard]] bool is_published() const { return tiers != 0 && description.has_value(); }
    [[nodiscard]] bool is_in(Tier tier) const { return (tiers >> index(tier) & 1U) != 0; }

   private:
    friend class BlockDirectory;
    std::list<RecordId>::iterator spare{};  ///< its place among the spare blocks, while it is not published
  };

  explicit BlockDirectory(std::size_t blocks_max) : blocks_max_{blocks_max} {}

  [[nodiscard]] std::optional<RecordId> find(const BlockKey& key, GroupId group) const;
  /// Returns the block, which is remembered from now on. Returns nothing if there is no room: all others are published.
  [[nodiscard]] std::optional<RecordId> find_or_add(const BlockKey& key, GroupId group);

  /// Returns the block with this number; null if there is none.
  [[nodiscard]] const Record* record(RecordId id) const { return records_.find(id.value()); }
  [[nodiscard]] const Record& at(RecordId id) const { return records_.at(id.value()); }
  /// The block must not be described yet.
  void describe(RecordId id, Description description);
  void add_to(Tier tier, RecordId id) { set_tiers(id, static_cast<std::uint8_t>(at(id).tiers | 1U << index(tier))); }
  /// May forget the block.
  void remove_from(Tier tier, RecordId id) { set_tiers(id, static_cast<std::uint8_t>(at(id).tiers & ~(1U << index(tier)))); }
  /// Removes all blocks from all tiers.
  void clear_tiers();

  /// Returns the published blocks, each after its parent if that is published, too.
  [[nodiscard]] std::vector<RecordId> published() const;

  [[nodiscard]] std::size_t size() const { return records_.size(); }
  [[nodiscard]] std::size_t published_count() const { return records_.size() - spare_.size(); }
  void check_invariants() const;

 private:
  void set_tiers(RecordId id, std::uint8_t tiers);
  /// Brings the list of spare blocks in line with a change of the block.
  void update(RecordId id, bool was_published);
  void forget(RecordId id);

  std::size_t blocks_max_;
  Slab<Record> records_;
  KeyTable<RecordId> by_key_;
  std::list<RecordId> spare_;  ///< the longest spare first
};

}  // namespace terrace::events
