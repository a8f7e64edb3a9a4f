#include "storage/format/catalog_scan.hpp"

#include "base/check.hpp"
#include "storage/io/io_engine.hpp"

#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace terrace {
namespace {

bool plausible_stripes(const Superblock& superblock) {
  return superblock.directories > 1 && superblock.directories <= directories_max && superblock.stripe_slots > 0 &&
         superblock.slots_per_file % superblock.stripe_slots == 0;
}

}  // namespace

bool plausible(const Superblock& superblock) {
  constexpr std::uint64_t slots_max = 0xFFFF'FFFE;
  return superblock.block_bytes > 0 && superblock.block_bytes % io_alignment == 0 &&
         superblock.block_bytes <= std::numeric_limits<std::uint32_t>::max() && superblock.slots > 0 &&
         superblock.slots <= slots_max && superblock.open_slots <= superblock.slots && superblock.slots_per_file > 0 &&
         superblock.slots_per_file <= slots_max && (superblock.directories == 1 || plausible_stripes(superblock));
}

StoreLayout layout_of(const Superblock& superblock) {
  TERRACE_CHECK(plausible(superblock));
  return {superblock.block_bytes, static_cast<std::uint32_t>(superblock.slots),
          static_cast<std::uint32_t>(superblock.slots_per_file), superblock.directories, superblock.stripe_slots};
}

CatalogScan::CatalogScan(const Superblock& superblock, std::function<std::uint64_t(std::uint32_t)> data_bytes)
    : superblock_{superblock}, layout_{layout_of(superblock)}, data_bytes_{std::move(data_bytes)} {}

void CatalogScan::add(std::uint32_t first, std::span<const std::byte> records) {
  TERRACE_CHECK(records.size() % record_bytes == 0);
  for (std::uint64_t n = 0; n < records.size() / record_bytes; ++n) {
    if (first + n >= layout_.slots) break;
    const auto slot = static_cast<std::uint32_t>(first + n);
    const std::span<const std::byte> bytes = records.subspan(n * record_bytes, record_bytes);
    const std::optional<CatalogRecord> record = decode_record(bytes);
    if (!record) {
      if (!all_zero(bytes)) damaged_.push_back({slot, Flaw::unreadable, {}});
      continue;
    }
    if (record->slot != slot || record->length != layout_.block_bytes ||
        record->fingerprint_prefix != fingerprint_prefix(superblock_.fingerprint)) {
      damaged_.push_back({slot, Flaw::misplaced, record->block.key});
    } else if (layout_.offset_of(SlotId{slot}) + layout_.block_bytes > data_bytes_(layout_.file_of(SlotId{slot}))) {
      damaged_.push_back({slot, Flaw::no_data, record->block.key});
    } else {
      blocks_.push_back(*record);
    }
  }
}

std::vector<std::uint32_t> CatalogScan::take_unreadable() {
  std::vector<std::uint32_t> slots;
  std::erase_if(damaged_, [&](const Damaged& damaged) {
    if (damaged.flaw == Flaw::unreadable) slots.push_back(damaged.slot);
    return damaged.flaw == Flaw::unreadable;
  });
  return slots;
}

void CatalogScan::finish() {
  // The same rules as in StoreIndex::finish_restore(). Parents come first. Of two records with the same key, the record with the
  // lower depth stays, then the record with the higher generation, then the record in the lower slot.
  const auto order = [](const CatalogRecord& r) { return std::tuple{r.block.depth, ~r.generation, r.slot}; };
  std::sort(blocks_.begin(), blocks_.end(), [&](const CatalogRecord& a, const CatalogRecord& b) { return order(a) < order(b); });
  std::sort(damaged_.begin(), damaged_.end(), [](const Damaged& a, const Damaged& b) { return a.slot < b.slot; });

  boost::unordered_flat_set<BlockKey, std::hash<BlockKey>> seen;
  boost::unordered_flat_map<BlockKey, std::uint32_t, std::hash<BlockKey>> depths;
  seen.reserve(blocks_.size());
  depths.reserve(blocks_.size());
  std::vector<CatalogRecord> kept;
  kept.reserve(blocks_.size());
  for (const CatalogRecord& record : blocks_) {
    const auto parent = record.block.depth == 0 ? depths.end() : depths.find(record.block.parent);
    const bool has_parent = record.block.depth == 0 || (parent != depths.end() && parent->second + 1 == record.block.depth);
    if (!seen.insert(record.block.key).second) {
      superseded_.push_back(record);
    } else if (!has_parent) {
      orphans_.push_back(record);
    } else {
      depths.emplace(record.block.key, record.block.depth);
      kept.push_back(record);
    }
  }
  blocks_ = std::move(kept);
}

std::uint64_t CatalogScan::free_slots() const {
  return layout_.slots - blocks_.size() - orphans_.size() - superseded_.size() - damaged_.size();
}

}  // namespace terrace
