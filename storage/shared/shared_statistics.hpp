#pragma once

#include "terrace/shared_store.hpp"

#include <cstdint>

namespace terrace {

/// Counts an operation that has ended with this event. `size` is the number of keys of a probe, or the bytes of a block. The
/// store itself counts mismatches, because only it knows their kind.
void count_ended(SharedStoreStat& stat, const SharedEvent& event, std::uint64_t size);

}  // namespace terrace
