#pragma once

#include "terrace/shared_store.hpp"

#include <cstdint>

namespace terrace {

/// Counts an operation that has ended with this event. `size`: the number of keys of a probe, the bytes of a block. Mismatches
/// are counted by the store, which knows their kind.
void count_ended(SharedStoreStat& stat, const SharedEvent& event, std::uint64_t size);

}  // namespace terrace
