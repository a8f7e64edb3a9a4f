#pragma once

#include "base/block_key.hpp"

#include <cstddef>
#include <memory>
#include <span>

namespace terrace {

/// SHA-256 of two messages at a time on one core. A message by itself leaves most of the processor's SHA unit idle, since each
/// step waits for the one before; two messages in turn do not. Threads: one at a time.
class DigestLanes {
 public:
  /// Messages that have to be under way for the processor to be busy.
  static constexpr std::size_t lanes = 2;

  /// Null where the processor has no SHA instructions, or where the library that interleaves them was not built in.
  [[nodiscard]] static std::unique_ptr<DigestLanes> create();
  virtual ~DigestLanes() = default;

  /// Takes a message; at most `lanes` may be under way. `message` and `into` stay where they are until `owner` comes back.
  /// Returns the owner of a digest that is made, this one's or another's; null where another message has to come first.
  [[nodiscard]] virtual void* submit(std::span<const std::byte> message, BlockKey& into, void* owner) = 0;
  /// The owner of another digest, made now with whatever is under way; null where nothing is.
  [[nodiscard]] virtual void* finish() = 0;
};

}  // namespace terrace
