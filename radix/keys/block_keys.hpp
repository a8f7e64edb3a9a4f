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

/// How block keys are made. docs/block-keys.md describes the same encoding in words, with golden vectors, so that other programs
/// can compute keys.
///
/// A key is the SHA-256 digest of a message of this form:
///
///     "TRC"  version (1 byte, 2)  kind (1 byte)  field*
///     field = tag (1 byte)  length (8 bytes, little-endian)  `length` bytes
///
///     kind 'R', a root:   1 model digest, 2 geometry fingerprint, 3 adapter, 4 tenant salt,
///                         5 weight epoch (8 bytes, little-endian)
///     kind 'B', a block:  16 parent key, 17 token ids (4 bytes each, little-endian), then any number of extra keys
///     kind 'F', a block with a foreign name:  16 space key, 18 the name
///     kind 'O', a block named by the engine:  16 parent key, 18 the engine's bytes, then any number of extra keys
///     extra key:          32 media and 35 run of prompt embeddings (8 bytes: the item's first token relative to the
///                         block's first, two's complement, little-endian; then the digest), 33 prompt embedding digest,
///                         34 anything else that the engine wants to distinguish
///
/// An optional field that is absent is left out, so that an absent and an empty field give different keys. Fields are in the
/// order given above. The extra keys of a prompt's items come before all others, in the order of PromptItems::next_block.

using TokenId = std::uint32_t;

/// The fields that all keys of a namespace share. If any field differs, all keys differ.
struct RootFields {
  std::span<const std::byte> model_digest;
  std::span<const std::byte> fingerprint;   ///< a fingerprint of the geometry
  std::optional<std::string_view> adapter;  ///< LoRA adapter
  std::optional<std::string_view> tenant_salt;
  std::uint64_t weight_epoch = 0;
};

/// Returns the root key of a namespace. It stands before the first block of every sequence.
[[nodiscard]] BlockKey root_key(const RootFields& fields);

/// Returns the key of a block that another program has named, for an OffloadCache. The name is bytes of any length. `space` is
/// the key of a namespace, as root_key() makes it: equal names in different namespaces have different keys. The message has a
/// kind of its own, so the key never equals one of a KeyChain. It does not depend on any other block.
[[nodiscard]] BlockKey foreign_key(const BlockKey& space, std::span<const std::byte> name);
/// The keys of many names, in order. Faster than one call for each.
[[nodiscard]] std::vector<BlockKey> foreign_keys(const BlockKey& space, std::span<const std::span<const std::byte>> names);

/// Makes the keys of one sequence's full blocks, as its tokens arrive. Every block covers `block_tokens` tokens, even a block
/// that the engine names. Items count tokens from the chain's first token.
///
/// Threads: any, one at a time. Do not use it inside a step-path call, because hashing costs a fraction of a microsecond per
/// block.
class KeyChain {
 public:
  /// `block_tokens` must not be 0.
  KeyChain(const BlockKey& root, std::uint32_t block_tokens);
  ~KeyChain();
  KeyChain(KeyChain&&) noexcept;
  KeyChain& operator=(KeyChain&&) noexcept;

  /// Adds items, which stand in the prompt in place of tokens. The key of a block contains all items that overlap the block. An
  /// item must be added before the first block that it overlaps is complete: usually a caller adds all items of a prompt at once,
  /// and later those of the next turn. Fails: invalid_argument (an item begins in a block that has its key already; see also
  /// PromptItems::add). Nothing has changed then.
  [[nodiscard]] Result<void> add_items(std::span<const PromptItem> items) { return items_.add(items); }

  /// Adds tokens. Each block that they complete gets its key. The tokens of an incomplete block wait for more tokens.
  void append(std::span<const TokenId> tokens);
  /// Adds one full block with extra keys, which follow the extra keys of its items. Fails: invalid_argument (there are not
  /// exactly block_tokens tokens, or tokens of an incomplete block are waiting). Nothing has changed then.
  [[nodiscard]] Result<void> append_block(std::span<const TokenId> tokens, std::span<const ExtraKey> extra);
  /// Adds one full block that the engine names by bytes of any length. Items and extra keys are added as in append_block().
  /// Fails: invalid_argument (tokens of an incomplete block are waiting). Nothing has changed then.
  [[nodiscard]] Result<void> append_opaque(std::span<const std::byte> name, std::span<const ExtraKey> extra = {});

  [[nodiscard]] const BlockKey& root() const { return root_; }
  /// Returns the keys of all full blocks, from the first. They are valid until the next append.
  [[nodiscard]] std::span<const BlockKey> keys() const { return keys_; }
  [[nodiscard]] std::uint32_t block_tokens() const { return block_tokens_; }
  /// Returns the number of tokens in the incomplete last block.
  [[nodiscard]] std::size_t tokens_waiting() const { return waiting_.size(); }

  /// Returns the media item inside which a match of `blocks` blocks ends, or nothing if it ends inside none. An engine whose
  /// encoder computes an item as a whole must shorten the match, so that it ends before the block in which the item begins. Then
  /// it asks again, because items may overlap.
  [[nodiscard]] std::optional<PromptItem> media_across(std::size_t blocks) const {
    return items_.media_across(std::uint64_t{blocks} * block_tokens_);
  }

 private:
  struct Scratch;

  void reserve_keys(std::size_t tokens);
  /// Takes the tokens of one block and writes the message for its key. Returns false if there are too few: then all of them wait.
  [[nodiscard]] bool compose_next(std::span<const TokenId>& tokens);
  void compose_extras(std::span<const ExtraKey> extra);
  /// Appends the key of the message.
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
