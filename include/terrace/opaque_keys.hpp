#pragma once

#include "terrace/export.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <memory>
#include <span>

namespace terrace {

/// Returns the key of a block that the engine names by bytes of any length, 0 included. The key does not depend on other blocks:
/// it is the SHA-256 digest of a message of kind 'U' (docs/block-keys.md), so that it is never the key of a chained block. The
/// namespace, bytes of any length too, separates blocks that have equal names and different content: it says which model, layout
/// and rank the blocks are of. Names in two namespaces never have the same key.
///
/// Threads: any.
[[nodiscard]] TERRACE_API BlockKey opaque_key(std::span<const std::byte> key_namespace, std::span<const std::byte> name);

/// Makes the keys of one namespace, without an allocation for each.
///
///     OpaqueKeys keys{as_bytes(std::span{"llama-70b, rank 0 of 4"sv})};
///     const BlockKey key = keys(name_of_the_engine);
///
/// Threads: any, one at a time.
class TERRACE_API OpaqueKeys {
 public:
  /// Copies the namespace.
  explicit OpaqueKeys(std::span<const std::byte> key_namespace);
  ~OpaqueKeys();
  OpaqueKeys(OpaqueKeys&&) noexcept;
  OpaqueKeys& operator=(OpaqueKeys&&) noexcept;

  /// Returns opaque_key() of this namespace and `name`.
  [[nodiscard]] BlockKey operator()(std::span<const std::byte> name);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace terrace
