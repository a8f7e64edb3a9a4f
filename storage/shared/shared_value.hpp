#pragma once

#include "storage/io/checksum.hpp"
#include "storage/shared/sealing.hpp"
#include "terrace/block_store.hpp"
#include "terrace/shared_store.hpp"
#include "terrace/types.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

/// The format of the values that an engine keeps for a block, and their names. All numbers are little-endian.
///
/// A block is kept as one value, or, from 16 KiB on, as two values. Each value is a header of 128 bytes and a part of the block's
/// bytes. The reason for two values is the engine's allocator. It has four size classes for each power of two, and a block often
/// has exactly the size of a class, so that block and header together would waste up to a quarter of the engine's memory. So the
/// first part is 192 bytes smaller than the largest size class that the block fills, and the second part has the rest: 192 bytes
/// for a block whose size is a power of two. Measured with Redis 7.0, in bytes of `used_memory` for a byte of a block:
///
///     block        one value    7/8 and 1/8    this
///      64 KiB      1.25         1.04           1.01
///      96 KiB      1.17         1.15           1.01
///       1 MiB      1.25         1.03           1.00
///     1.5 MiB      1.17         1.15           1.00
///
/// The header:
///
///     offset  bytes
///          0      4  magic, "TRSV"
///          4      1  format version
///          5      1  flags: bit 0, the payload is sealed; the other bits are zero
///          6      1  number of this part, from 0
///          7      1  number of parts
///          8      2  group
///         10      2  0
///         12      4  depth
///         16      4  length of the block, of all parts together
///         20     12  id of the write: the same in all parts, and in no other write. Parts of two writes are never taken for one
///                    block
///         32     16  the fingerprint's first 16 bytes
///         48     32  key
///         80     32  parent's key; zero if depth is 0
///        112     16  sealed: the tag of AES-256-GCM
///        112      8  not sealed: XXH3-64 over key, whole fingerprint, length of this part, and this part of the block
///        120      8  not sealed: XXH3-64 of the 120 bytes before
///
/// A sealed payload is encrypted with AES-256-GCM. The key is derived from the deployment's secret, the whole fingerprint and the
/// block's key (SharedSecret::key_of). The nonce is the id of the write, with the number of the part XORed to its last byte. The
/// first 112 bytes of the header are the associated data.
///
/// Both parts must be replaced together, or the last part first. A probe asks for the first part.
namespace terrace {

inline constexpr std::uint8_t shared_value_version = 1;
inline constexpr std::size_t shared_header_bytes = 128;
inline constexpr std::uint32_t shared_parts_max = 2;
/// The header has 32 bits for the length of a block.
inline constexpr std::uint64_t shared_block_bytes_max = 0xffffffff;

using SharedValueHeader = std::array<std::byte, shared_header_bytes>;
using SharedWriteId = std::array<std::byte, 12>;

/// The ids of one user's writes. The first id is random, and later ids are counted up from it, because a random number for each
/// write takes as long as sending some KiB. The count is in the first eight bytes; the nonces of a block's parts differ in the
/// last byte. Threads: one.
class SharedWriteIds {
 public:
  SharedWriteIds() { fill_randomly(next_); }
  [[nodiscard]] SharedWriteId next();

 private:
  SharedWriteId next_;
};

/// How the bytes of a block are divided among its values.
struct SharedParts {
  std::uint32_t count = 1;
  std::array<std::uint64_t, shared_parts_max> bytes{};  ///< bytes of the block in each part; the header comes in addition

  [[nodiscard]] std::uint64_t offset(std::uint32_t part) const { return part == 0 ? 0 : bytes[0]; }
  [[nodiscard]] std::uint64_t value_bytes(std::uint32_t part) const { return shared_header_bytes + bytes[part]; }
};
[[nodiscard]] SharedParts shared_parts(std::uint64_t block_bytes) noexcept;

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
  explicit SharedValueNames(std::string_view prefix, const Fingerprint& fingerprint = {});
  /// Sets the fingerprint for the names from now on.
  void use(const Fingerprint& fingerprint);

  /// The name of a part.
  [[nodiscard]] std::string name(const BlockKey& key, GroupId group, std::uint32_t part) const;

 private:
  std::string start_;             ///< "PREFIX:VERSION:"
  std::string with_fingerprint_;  ///< the same, then "FINGERPRINT:{"
};

/// Makes the values of blocks, one block after the other:
///
///     writer.begin(block, fingerprint, from, ids.next());
///     for (std::uint32_t part = 0; part < writer.parts().count; ++part) send(writer.make(part, scratch));
///
/// Units: bytes. Threads: one. make() reads all bytes of its part, so call it on the thread that sends them.
class SharedValueWriter {
 public:
  /// The data to send: the header, then the payload.
  struct Part {
    SharedValueHeader header{};
    std::span<const std::byte> payload{};
  };

  /// With a secret, values are sealed.
  explicit SharedValueWriter(std::shared_ptr<const SharedSecret> secret = nullptr) : secret_{std::move(secret)} {}

  /// `from` is the whole block. It must stay valid and unchanged until the last part was made, and without a secret, until the
  /// last part was sent.
  void begin(const StoredBlock& block, const Fingerprint& fingerprint, std::span<const std::byte> from, const SharedWriteId& id);
  [[nodiscard]] const SharedParts& parts() const { return parts_; }
  /// Without a secret, the payload is a part of `from`, and `scratch` is not used. With a secret, it is in `scratch`, which must
  /// have room for it.
  [[nodiscard]] Part make(std::uint32_t part, std::span<std::byte> scratch);
  [[nodiscard]] bool seals() const { return secret_ != nullptr; }

 private:
  std::shared_ptr<const SharedSecret> secret_;
  Fingerprint fingerprint_{};
  std::span<const std::byte> from_;
  SharedParts parts_;
  SharedValueHeader header_{};  ///< the fields that are the same in every part
  SharedSecret::Key key_{};     ///< the key of this block, if there is a secret
  SealingCipher cipher_;
};

/// Checks the values of a block while they arrive, one part after the other in any order:
///
///     reader.begin(wanted, fingerprint, into.size());
///     for each part: begin_part(), then add() for each piece of its payload, then end_part()
///     reader.finish()
///
/// Each call except add() returns whether the block can still be used. Do not use the block before finish() has succeeded. After
/// a mismatch, the rest of the block need not be passed. Sealed payloads are decrypted in place. Units: bytes. Threads: one.
class SharedValueReader {
 public:
  using Mismatch = std::optional<SharedMismatch>;  ///< none: no mismatch so far

  /// With a secret, only sealed values are accepted; without one, only values that are not sealed.
  explicit SharedValueReader(std::shared_ptr<const SharedSecret> secret = nullptr) : secret_{std::move(secret)} {}

  void begin(const StoredBlock& wanted, const Fingerprint& fingerprint, std::uint64_t block_bytes);
  [[nodiscard]] const SharedParts& parts() const { return parts_; }
  /// `value_bytes` is the size of the whole value, as the engine gives it. `header` is its beginning, or the whole value if that
  /// is shorter than a header.
  [[nodiscard]] Mismatch begin_part(std::uint32_t part, std::uint64_t value_bytes, std::span<const std::byte> header);
  /// Passes the next bytes of the payload of this part; at most its remaining bytes.
  void add(std::span<std::byte> piece);
  /// Fails with `length` if bytes are missing.
  [[nodiscard]] Mismatch end_part();
  /// Fails with `length` if a part is missing.
  [[nodiscard]] Mismatch finish() const;

 private:
  [[nodiscard]] Mismatch check(std::uint32_t part, std::uint64_t value_bytes, std::span<const std::byte> header) const;
  Mismatch fail(SharedMismatch why);

  std::shared_ptr<const SharedSecret> secret_;
  Fingerprint fingerprint_{};
  SharedParts parts_;
  SharedValueHeader wanted_{};  ///< the expected content of the headers
  SharedSecret::Key key_{};     ///< the key of this block, if there is a secret
  Mismatch mismatch_;
  std::optional<SharedWriteId> write_id_;  ///< write id of the first part that arrived
  std::uint32_t verified_ = 0;             ///< a bit for each part
  std::uint32_t part_ = 0;                 ///< the part that is arriving
  std::uint64_t left_ = 0;                 ///< bytes of this part that have not arrived
  SharedValueHeader header_{};             ///< header of this part
  PayloadChecksum checksum_;
  SealingCipher cipher_;
};

}  // namespace terrace
