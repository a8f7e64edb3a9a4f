#pragma once

#include "base/block_key.hpp"
#include "base/result.hpp"
#include "radix/keys/prompt_items.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace terrace {

/// How keys are made. docs/block-keys.md gives the same encoding in words, with golden vectors, so that other programs can
/// compute keys.
///
/// A key is SHA-256 over a message of this form:
///
///     "TRC"  version (1 byte, 2)  kind (1 byte)  field*
///     field = tag (1 byte)  length (8 bytes, little-endian)  that many bytes
///
/// kind 'R', a root:   1 model digest, 2 geometry fingerprint, 3 adapter, 4 tenant salt, 5 weight epoch (8 bytes, little-endian)
/// kind 'B', a block:  16 parent key, 17 token ids (4 bytes each, little-endian), then any number of extra keys
/// kind 'O', a block named by the engine:  16 parent key, 18 the engine's bytes, then any number of extra keys
/// extra key:          32 media and 35 run of prompt embeddings (8 bytes: where the item begins, in tokens from the block's
///                     first, two's complement, little-endian; then the digest), 33 prompt embedding digest, 34 anything else
///                     that the engine wants to tell apart
///
/// Absent optional fields are left out, so that absent and empty differ; fields stand in the order given. The extra keys of a
/// prompt's items come first, in the order of PromptItems::next_block.

using TokenId = std::uint32_t;

/// What all keys of a namespace have in common. Any field changed is another namespace.
struct RootFields {
  std::span<const std::byte> model_digest;
  std::span<const std::byte> fingerprint;   ///< of the geometry
  std::optional<std::string_view> adapter;  ///< LoRA adapter
  std::optional<std::string_view> tenant_salt;
  std::uint64_t weight_epoch = 0;
};

[[nodiscard]] BlockKey root_key(const RootFields& fields);

/// The keys of one sequence's full blocks, made as its tokens arrive. Use it on any thread, one at a time, and never inside a
/// step-path call: hashing costs a fraction of a microsecond a block.
///
/// Each block is `block_tokens` tokens, also one that the engine names; items count tokens from the chain's first.
class KeyChain {
 public:
  /// `block_tokens` must not be 0.
  KeyChain(const BlockKey& root, std::uint32_t block_tokens);
  ~KeyChain();
  KeyChain(KeyChain&&) noexcept;
  KeyChain& operator=(KeyChain&&) noexcept;

  /// Says what stands in the prompt in place of tokens; a block's key contains the items that overlap the block. At any time
  /// before the first block that an item overlaps is complete: usually all of a prompt's at once, and later a new turn's.
  /// Fails: invalid_argument (an item that begins in a block whose key is made, and see PromptItems::add); nothing changed.
  [[nodiscard]] Result<void> add_items(std::span<const PromptItem> items) { return items_.add(items); }

  /// Adds tokens; each block they complete gets its key. What is left over waits for more.
  void append(std::span<const TokenId> tokens);
  /// Adds one full block with extra keys, which follow those of the items that overlap it. Fails: invalid_argument (not exactly
  /// block_tokens tokens, or tokens of an unfinished block are waiting); nothing changed.
  [[nodiscard]] Result<void> append_block(std::span<const TokenId> tokens, std::span<const ExtraKey> extra);
  /// Adds one full block that the engine names itself, by bytes of any length; items and extra keys as above. Fails:
  /// invalid_argument (tokens of an unfinished block are waiting); nothing changed.
  [[nodiscard]] Result<void> append_opaque(std::span<const std::byte> name, std::span<const ExtraKey> extra = {});

  [[nodiscard]] const BlockKey& root() const { return root_; }
  /// One per full block, from the first. Valid until the next append.
  [[nodiscard]] std::span<const BlockKey> keys() const { return keys_; }
  [[nodiscard]] std::uint32_t block_tokens() const { return block_tokens_; }
  /// Tokens of the unfinished last block.
  [[nodiscard]] std::size_t tokens_waiting() const { return waiting_.size(); }

  /// The media item inside which a match of so many blocks ends, if it does. An engine whose encoder makes an item as a whole
  /// leaves the match at the block in which the item begins; ask again for that, since items may overlap.
  [[nodiscard]] std::optional<PromptItem> media_across(std::size_t blocks) const {
    return items_.media_across(std::uint64_t{blocks} * block_tokens_);
  }

 private:
  struct Scratch;

  void reserve_keys(std::size_t tokens);
  /// Takes a block's tokens and writes its message. False where there are too few: then all of them wait.
  [[nodiscard]] bool compose_next(std::span<const TokenId>& tokens);
  void compose_extras(std::span<const ExtraKey> extra);
  /// The key of the message.
  void add_key();
  [[nodiscard]] const BlockKey& tip() const { return keys_.empty() ? root_ : keys_.back(); }

  BlockKey root_;
  std::uint32_t block_tokens_;
  std::vector<BlockKey> keys_;
  std::vector<TokenId> waiting_;
  PromptItems items_;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace terrace
