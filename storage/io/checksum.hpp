#pragma once

#include "base/block_key.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace {

/// Digest of what a block's bytes mean: model, groups, device regions. Blocks of another fingerprint are noise to us.
using Fingerprint = std::array<std::byte, 32>;

/// XXH3-64 over key, fingerprint, length (eight bytes, little-endian) and payload, in this order. It guards against accidents
/// (flipped bits, torn and lost writes, a slot that holds another block), not against someone who may write the files.
/// Runs at memory speed, so it belongs on the thread that moves the bytes. Threads: any.
[[nodiscard]] std::uint64_t payload_checksum(const BlockKey& key, const Fingerprint& fingerprint,
                                             std::span<const std::byte> payload) noexcept;

/// The same, made piece by piece: begin(), add() of the payload's pieces in their order, value(). Between two pieces a thread can
/// look after other things. Threads: one.
class PayloadChecksum {
 public:
  void begin(const BlockKey& key, const Fingerprint& fingerprint, std::uint64_t payload_bytes) noexcept;
  void add(std::span<const std::byte> piece) noexcept;
  [[nodiscard]] std::uint64_t value() const noexcept;

 private:
  /// The library's, whose header must not be seen from here.
  alignas(64) std::array<std::byte, 576> state_;
};

/// XXH3-64 of plain bytes: what superblocks and catalog records check themselves with. Threads: any.
[[nodiscard]] std::uint64_t plain_checksum(std::span<const std::byte> bytes) noexcept;

}  // namespace terrace
