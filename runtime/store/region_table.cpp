#include "runtime/store/region_table.hpp"

#include "base/check.hpp"
#include "base/failure.hpp"

#include <algorithm>
#include <utility>

namespace terrace {
namespace {

constexpr auto& no_such_region = failure<Errc::not_found, "there is no such region">;

}  // namespace

RegionTable::~RegionTable() {
  for (const auto& [id, region] : regions_) forget(region);
}

void RegionTable::forget(const Region& region) {
  if (engine_ == nullptr) return;
  for (const std::span<std::byte> piece : region.pieces) engine_->forget_memory(piece);
}

Result<HostRegionId> RegionTable::add(const HostRows& rows, Bytes block_bytes, std::shared_ptr<const void> owner) {
  if (const Result<void> checked = check_rows(rows); !checked) return checked.error();
  if (rows.row_bytes != block_bytes) return failure<Errc::invalid_argument, "a row must have the size of a block of the store">;
  Region region{rows, std::move(owner), {}, 0, {}};
  // Compared as numbers, because wrong rows may exceed the range of pointer arithmetic.
  const auto begin_of = [](const Region& each) { return reinterpret_cast<std::uintptr_t>(each.rows.address); };
  const auto end_of = [&](const Region& each) { return begin_of(each) + count(each.rows.extent()); };
  for (const auto& [id, other] : regions_) {
    if (begin_of(region) < end_of(other) && begin_of(other) < end_of(region)) {
      return failure<Errc::in_use, "the memory overlaps that of a region which is registered">;
    }
  }
  region.used.resize(rows.count);
  const std::uint64_t rows_per_piece = std::max<std::uint64_t>(1, piece_bytes_max / rows.stride());
  for (std::uint64_t first = 0; first < rows.count; first += rows_per_piece) {
    const std::uint64_t last = std::min<std::uint64_t>(first + rows_per_piece, rows.count) - 1;
    std::byte* const begin = rows.row(static_cast<std::uint32_t>(first)).data();
    const std::span<std::byte> end = rows.row(static_cast<std::uint32_t>(last));
    region.pieces.emplace_back(begin, end.data() + end.size());
  }
  const HostRegionId id{next_id_};
  const auto [at, is_new] = regions_.emplace(id, std::move(region));
  TERRACE_CHECK(is_new);
  ++next_id_;
  if (engine_ != nullptr) {
    for (const std::span<std::byte> piece : at->second.pieces) engine_->register_memory(piece);
  }
  return id;
}

Result<void> RegionTable::remove(HostRegionId id) {
  const auto at = regions_.find(id);
  if (at == regions_.end()) return no_such_region;
  if (at->second.uses > 0) return failure<Errc::in_use, "batches use rows of the region: wait for their results">;
  forget(at->second);
  regions_.erase(at);
  return {};
}

Result<void> RegionTable::claim(HostRegionId id, std::span<const std::uint32_t> rows, BatchKind kind) {
  const auto at = regions_.find(id);
  if (at == regions_.end()) return no_such_region;
  Region& region = at->second;
  for (const std::uint32_t row : rows) {
    if (row >= region.rows.count) return failure<Errc::invalid_argument, "`rows` names a row that the region does not have">;
    const std::uint16_t used = region.used[row];
    if (used == used_by_get || used == puts_max || (kind == BatchKind::get && used > 0)) {
      return failure<Errc::in_use, "another batch uses one of `rows`: wait for its result">;
    }
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::uint16_t& used = region.used[rows[i]];
    // Before this call the row was free, or in use by fewer puts than the limit. So this call names it too often.
    if (used == used_by_get || used == puts_max) {
      while (i-- > 0) release(id, rows[i], kind);
      return failure<Errc::invalid_argument, "`rows` names a row too often: a get fills each row once">;
    }
    used = kind == BatchKind::get ? used_by_get : static_cast<std::uint16_t>(used + 1);
    ++region.uses;
  }
  return {};
}

void RegionTable::release(HostRegionId id, std::uint32_t row, BatchKind kind) {
  Region& region = regions_.at(id);
  std::uint16_t& used = region.used[row];
  TERRACE_CHECK(kind == BatchKind::get ? used == used_by_get : used > 0 && used < used_by_get);
  used = kind == BatchKind::get ? std::uint16_t{0} : static_cast<std::uint16_t>(used - 1);
  --region.uses;
}

void RegionTable::check_invariants() const {
  for (const auto& [id, region] : regions_) {
    std::uint64_t uses = 0;
    for (const std::uint16_t used : region.used) uses += used == used_by_get ? 1 : used;
    TERRACE_CHECK(uses == region.uses);
  }
}

}  // namespace terrace
