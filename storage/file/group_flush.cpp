#include "storage/file/group_flush.hpp"

#include "base/check.hpp"

namespace terrace {

void GroupFlush::begin(std::uint32_t data_syncs) {
  TERRACE_CHECK(wants_to_begin());
  served_.clear();
  served_.swap(asked_);
  operations_ = data_syncs;
  phase_ = Phase::data;
}

void GroupFlush::begin_catalog(std::uint32_t operations) {
  TERRACE_CHECK(data_are_synced());
  operations_ = operations;
  phase_ = Phase::catalog;
}

std::span<const std::uint64_t> GroupFlush::end() {
  TERRACE_CHECK(catalog_is_done());
  phase_ = Phase::idle;
  return served_;
}

}  // namespace terrace
