#pragma once

#include "terrace/shared_store.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

namespace terrace {

/// Copies of the operations of a SharedStore, which keeps them until they end. The caller's batches may be destroyed before that.
struct KeptProbe {
  std::vector<BlockKey> keys;
  std::vector<GroupId> groups;  ///< by key
  std::span<std::uint8_t> there;

  KeptProbe() = default;
  explicit KeptProbe(const SharedProbe& probe) : keys{probe.keys.begin(), probe.keys.end()}, there{probe.there} {
    groups.reserve(keys.size());
    for (std::size_t key = 0; key < keys.size(); ++key) groups.push_back(probe.group_of(key));
  }
  /// Calls is_there(index of the key): for every key if the caller wants to know which keys are there, otherwise up to the first
  /// key that is missing. Returns the number of keys that are there.
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
