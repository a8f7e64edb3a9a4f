#pragma once

#include "base/block_key.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace terrace::tools {

/// An index of cached blocks under the load of `bench index`: Terrace's control plane, or one of the baselines beside it. All of
/// them keep at most `capacity` blocks and, but for `terrace_adaptive`, give up the least recently used leaf first, the deepest
/// among equals, so that they must agree on every hit. Threads: one.
class IndexSubject {
 public:
  virtual ~IndexSubject() = default;

  /// How many of the prompt's blocks are cached, from the first. Changes nothing.
  [[nodiscard]] virtual std::uint32_t match(std::span<const BlockKey> keys) = 0;
  /// One whole request: looks the prompt up, holds what is cached, makes room for the rest, inserts it and lets go. Returns
  /// the hits. `keys` are no more than the capacity.
  virtual std::uint32_t serve(std::span<const BlockKey> keys) = 0;
  /// Gives up so many blocks, which are cached.
  virtual void evict(std::uint32_t blocks) = 0;
  /// Memory for its own books.
  [[nodiscard]] virtual std::size_t bytes() const = 0;
};

enum class SubjectKind : std::uint8_t {
  terrace_adaptive,  ///< CacheManager as it is by default, device tier alone: match, acquire, commit, release
  terrace_lru,       ///< the same with lru_policy, as the baselines have it
  tree,              ///< a tree with a node per block, a hash lookup per block, and an indexed heap of leaves
  map,               ///< an open-addressing table of keys and an intrusive LRU list, an entry a block: no tree, no leases
  floor,             ///< the same table and list with prefetching and huge pages
};
inline constexpr std::size_t subject_count = 5;

[[nodiscard]] std::string_view to_string(SubjectKind kind);
[[nodiscard]] std::unique_ptr<IndexSubject> make_subject(SubjectKind kind, std::uint32_t capacity);

}  // namespace terrace::tools
