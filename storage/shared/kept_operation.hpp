#pragma once

#include "terrace/shared_store.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

namespace terrace {

/// Operations of a SharedStore as it keeps them until they end. The batches that asked for them exist no longer then.
struct KeptProbe {
  std::vector<BlockKey> keys;
  std::vector<GroupId> groups;  ///< by key
  std::span<std::uint8_t> there;

  KeptProbe() = default;
  explicit KeptProbe(const SharedProbe& probe) : keys{probe.keys.begin(), probe.keys.end()}, there{probe.there} {
    groups.reserve(keys.size());
    for (std::size_t key = 0; key < keys.size(); ++key) groups.push_back(probe.group_of(key));
  }
  /// Asks is_there(number of the key): for each key if the caller wants to know which are there, and otherwise up to the first
  /// one that is not. Returns how many are there.
  template <class IsThere>
  [[nodiscard]] std::uint32_t ask(IsThere&& is_there) const {
    std::uint32_t known = 0;
    for (std::uint32_t key = 0; key < keys.size(); ++key) {
      const bool has = is_there(key);
      if (!has && there.empty()) break;
      if (!has) continue;
      if (!there.empty()) there[key] = 1;
      ++known;
    }
    return known;
  }
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
