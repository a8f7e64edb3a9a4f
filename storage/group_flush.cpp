#include "storage/group_flush.hpp"

#include "base/check.hpp"

namespace terrace {

void GroupFlush::begin(std::uint32_t data_syncs) {
  TERRACE_CHECK(wants_to_begin());
  served_.clear();
  served_.swap(asked_);
  syncs_ = data_syncs;
  phase_ = Phase::data;
}

std::span<const std::uint64_t> GroupFlush::end() {
  TERRACE_CHECK(phase_ == Phase::catalog);
  phase_ = Phase::idle;
  return served_;
}

}  // namespace terrace
