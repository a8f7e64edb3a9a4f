#pragma once

#include "terrace/shared_store.hpp"

#include <cstddef>
#include <span>
#include <variant>
#include <vector>

namespace terrace {

/// Operations of a SharedStore as it keeps them until they end. The batches that asked for them exist no longer then.
struct KeptProbe {
  std::vector<BlockKey> keys;
  GroupId group;
};
struct KeptRead {
  StoredBlock block;
  std::span<std::byte> into;
};
struct KeptWrite {
  StoredBlock block;
  std::span<const std::byte> from;
};
using KeptOperation = std::variant<KeptProbe, KeptRead, KeptWrite>;

}  // namespace terrace
