#pragma once

#include "storage/io/checksum.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace terrace {

/// The names of the values of blocks in an engine:
///
///     PREFIX:VERSION:FINGERPRINT:{GROUP:KEY}:PART
///     terrace:1:00112233445566778899aabbccddeeff:{0:b04c...}:1
///
/// FINGERPRINT is the first 16 bytes of the fingerprint, so blocks of other models or weights have other names. FINGERPRINT,
/// GROUP and KEY are hexadecimal. A Redis cluster puts names with the same text in braces on the same node: all parts of a block
/// are on one node, and the blocks of a prompt are distributed over all nodes. Access rules of an engine can use the prefix.
/// Units: bytes. Threads: one.
class SharedValueNames {
 public:
  /// Returns true if the text has 1 to 64 characters, each of a-z, A-Z, 0-9 or one of "-_.:/".
  [[nodiscard]] static bool is_prefix(std::string_view prefix) noexcept;

  /// `prefix` must satisfy is_prefix().
  explicit SharedValueNames(std::string_view prefix);
  /// Sets the fingerprint for the names from now on.
  void use(const Fingerprint& fingerprint);

  /// Appends the name of a part.
  void append(std::string& out, const BlockKey& key, GroupId group, std::uint32_t part) const;
  [[nodiscard]] std::string name(const BlockKey& key, GroupId group, std::uint32_t part) const;

 private:
  std::string start_;             ///< "PREFIX:VERSION:"
  std::string with_fingerprint_;  ///< the same, then "FINGERPRINT:{"
};

}  // namespace terrace
