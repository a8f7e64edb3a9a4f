#pragma once

#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace terrace::tools {

/// An index of cached blocks under the load of `terrace-lab index`: Terrace's control plane, or one of the baselines. Each keeps
/// at most `capacity` blocks. All except `terrace_adaptive` evict the least recently used leaf first, and the deepest of equally
/// old ones, so they must agree on every hit. Threads: one.
class IndexSubject {
 public:
  virtual ~IndexSubject() = default;

  /// Returns how many leading blocks of the prompt are cached. Changes nothing.
  [[nodiscard]] virtual std::uint32_t match(std::span<const BlockKey> keys) = 0;
  /// Serves one request: looks up the prompt, holds the cached blocks, makes space for the others, inserts them, and releases
  /// all. Returns the number of hits. There are at most `capacity` keys.
  virtual std::uint32_t serve(std::span<const BlockKey> keys) = 0;
  /// Evicts this many blocks. At least that many must be cached.
  virtual void evict(std::uint32_t blocks) = 0;
  /// The memory of the index itself, in bytes.
  [[nodiscard]] virtual std::size_t bytes() const = 0;
};

enum class SubjectKind : std::uint8_t {
  terrace_adaptive,  ///< CacheManager with its defaults and only a device tier: match, acquire, commit, release
  terrace_lru,       ///< the same with lru_policy, for comparison with the baselines
  tree,              ///< a tree with one node and one hash lookup for each block, and an indexed heap of leaves
  /// an open-addressing table of keys and an intrusive LRU list with an entry for each block; no tree and no leases
  map,
  floor,  ///< the same with prefetching and huge pages
};
inline constexpr std::size_t subject_count = 5;

[[nodiscard]] std::string_view to_string(SubjectKind kind);
[[nodiscard]] std::unique_ptr<IndexSubject> make_subject(SubjectKind kind, std::uint32_t capacity);

}  // namespace terrace::tools
