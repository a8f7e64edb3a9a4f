#pragma once

#include "terrace/shared_store.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace terrace {

/// Copies of the operations of a SharedStore, which keeps them until they end. The caller's batches may be destroyed before that.
struct KeptProbe {
  std::vector<BlockKey> keys{};
  std::vector<GroupId> groups{};  ///< by key
  std::span<std::uint8_t> there{};

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
struct KeptOperation {
  using Fingerprint = SharedStore::Fingerprint;

  SharedEvent::Kind kind{};
  std::uint64_t token = 0;
  TimePoint deadline = never;
  Fingerprint fingerprint{};  ///< the fingerprint at the time of the call
  KeptProbe probe{};
  StoredBlock block{};  ///< for a read or a write
  std::span<std::byte> into{};
  std::span<const std::byte> from{};

  [[nodiscard]] static KeptOperation of(const SharedProbe& probe, const Fingerprint& fingerprint) {
    KeptProbe kept{{probe.keys.begin(), probe.keys.end()}, std::vector<GroupId>(probe.keys.size()), probe.there};
    for (std::size_t key = 0; key < kept.keys.size(); ++key) kept.groups[key] = probe.group_of(key);
    return {SharedEvent::Kind::probed, probe.token, probe.deadline, fingerprint, std::move(kept)};
  }
  [[nodiscard]] static KeptOperation of(const SharedRead& read, const Fingerprint& fingerprint) {
    return {SharedEvent::Kind::read, read.token, read.deadline, fingerprint, {}, read.block, read.into};
  }
  [[nodiscard]] static KeptOperation of(const SharedWrite& write, const Fingerprint& fingerprint) {
    return {SharedEvent::Kind::written, write.token, write.deadline, fingerprint, {}, write.block, {}, write.from};
  }

  /// The bytes of the block; 0 for a probe.
  [[nodiscard]] std::uint64_t block_bytes() const { return into.size() + from.size(); }
  /// The number of keys of a probe, or the bytes of a block.
  [[nodiscard]] std::uint64_t size() const { return probe.keys.size() + block_bytes(); }
};

/// Counts an operation of this size that has ended with this event. The store itself counts mismatches, because only it knows
/// their kind.
inline void count_ended(SharedStoreStat& stat, const SharedEvent& event, std::uint64_t size) {
  if (event.error == Errc::deadline_exceeded) ++stat.timed_out;
  if (event.error == Errc::io_failed) ++stat.failed;
  if (event.error == Errc::refused) ++stat.declined;
  switch (event.kind) {
    case SharedEvent::Kind::probed:
      ++stat.probes;
      stat.keys_asked += size;
      stat.keys_there += event.leading;
      break;
    case SharedEvent::Kind::read:
      if (event.error == Errc::not_found) ++stat.reads_missing;
      if (event.error) break;
      ++stat.reads;
      stat.read += Bytes{size};
      break;
    case SharedEvent::Kind::written:
      if (event.error == Errc::full) ++stat.full;
      if (event.error) break;
      ++stat.writes;
      stat.written += Bytes{size};
      break;
  }
}

}  // namespace terrace
