#pragma once

#include "radix/keys/block_keys.hpp"
#include "radix/keys/digest_lanes.hpp"

#include <memory>
#include <span>

namespace terrace {

/// Makes the keys of several prompts at a time, as many as the processor digests at once on one core. Within a prompt each key
/// waits for the one before; between prompts nothing does. The keys are those that KeyChain::append makes. Where the processor
/// or the build has no lanes, or there is one prompt, it is KeyChain::append. Threads: one at a time.
class KeyLanes {
 public:
  struct Append {
    KeyChain* chain = nullptr;
    std::span<const TokenId> tokens;
  };

  KeyLanes() : digests_{DigestLanes::create()} {}

  /// Adds to each chain its tokens. No chain may be there twice.
  void append_all(std::span<const Append> appends);
  /// 1: one prompt after another.
  [[nodiscard]] std::size_t lanes() const { return digests_ == nullptr ? 1 : DigestLanes::lanes; }

 private:
  std::unique_ptr<DigestLanes> digests_;
};

}  // namespace terrace
