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

/// XXH3-64 of plain bytes: what superblocks and catalog records check themselves with. Threads: any.
[[nodiscard]] std::uint64_t plain_checksum(std::span<const std::byte> bytes) noexcept;

}  // namespace terrace
