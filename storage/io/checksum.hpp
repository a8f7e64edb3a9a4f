#pragma once

#include "terrace/types.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace {

/// A digest of everything that determines the meaning of a block's bytes: model, groups, device regions. Blocks with different
/// fingerprints cannot be exchanged.
using Fingerprint = std::array<std::byte, 32>;

/// Computes XXH3-64 over key, fingerprint, length (eight bytes, little-endian) and payload, in this order. The checksum detects
/// accidents: flipped bits, torn or lost writes, a slot that holds another block. It does not protect against a user who can
/// write the files. It runs at memory speed, so the thread that moves the bytes should compute it. Threads: any.
[[nodiscard]] std::uint64_t payload_checksum(const BlockKey& key, const Fingerprint& fingerprint,
                                             std::span<const std::byte> payload) noexcept;

/// Computes the same checksum piece by piece: begin(), then add() for each piece of the payload in order, then value(). The
/// thread can do other work between two pieces. Threads: one.
class PayloadChecksum {
 public:
  void begin(const BlockKey& key, const Fingerprint& fingerprint, std::uint64_t payload_bytes) noexcept;
  void add(std::span<const std::byte> piece) noexcept;
  [[nodiscard]] std::uint64_t value() const noexcept;

 private:
  /// Storage for an XXH3_state_t. Its header is not included here, so that includers do not depend on xxHash.
  alignas(64) std::array<std::byte, 576> state_;
};

/// Computes XXH3-64 over plain bytes. Superblocks and catalog records use it for their own checksum. Threads: any.
[[nodiscard]] std::uint64_t plain_checksum(std::span<const std::byte> bytes) noexcept;

}  // namespace terrace
