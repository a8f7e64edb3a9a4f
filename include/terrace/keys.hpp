#pragma once

#include "terrace/export.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace terrace {

/// The kinds of inputs, other than tokens, on which the content of a block may depend. The value is the tag of the field in the
/// message of a key.
enum class ExtraKind : std::uint8_t {
  media = 32,             ///< an image, video or sound that begins at `offset`
  prompt_embedding = 33,  ///< embeddings in place of the tokens of this block; has no offset
  other = 34,             ///< anything else that the engine wants to distinguish; has no offset
  embedding_item = 35,    ///< a run of embeddings that begins at `offset` and may be longer than the block
};

/// One extra key of one block.
struct ExtraKey {
  ExtraKind kind = ExtraKind::other;
  std::span<const std::byte> digest{};
  /// For media and embedding_item only: the item's first token, relative to the block's first token. It is negative if the item
  /// begins in an earlier block. So this number determines both the position of the item in the block and the part of the item
  /// that lies there.
  std::int64_t offset = 0;
};

enum class ItemKind : std::uint8_t { media, prompt_embedding };

/// A run of tokens in a prompt that represents other input: the placeholders of an image, or positions whose embeddings the
/// client has sent. Tokens are counted from the first token of the prompt.
///
/// The digest must cover everything that determines the input of the model: the content, and how it was prepared (which includes
/// the number of tokens). Two items with equal digests are treated as the same.
struct PromptItem {
  ItemKind kind = ItemKind::media;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::span<const std::byte> digest{};
};

/// The items of one prompt, and a cursor that moves over the prompt block by block. Each item is visited once for every block
/// that it overlaps. Items may overlap each other; for example, the sound of a video lies between its frames.
///
/// Ownership: digests are copied. Threads: one at a time.
class TERRACE_API PromptItems {
 public:
  /// Adds items, in any order and in any number of calls, as long as no item begins before position(). Fails: invalid_argument
  /// (an item begins before position(), is empty, has an empty digest, or ends past 2^63 - 1 tokens). Nothing has changed then.
  [[nodiscard]] Result<void> add(std::span<const PromptItem> items);

  /// Moves the cursor over the next block, which has `tokens` tokens, and returns the extra keys of the items that overlap it.
  /// They are ordered by the item's first token, then by kind, then by digest, so that the order in which items were added does
  /// not matter. The result is valid until the next call.
  [[nodiscard]] std::span<const ExtraKey> next_block(std::uint32_t tokens);
  /// Returns the first token that the cursor has not passed.
  [[nodiscard]] std::uint64_t position() const { return position_; }

  /// Returns the media item that begins before `token` and continues at it, or nothing. A prefix that ends before this token ends
  /// inside that item. If there are several such items, returns the one that begins first. Prompt embeddings may be split
  /// anywhere, so they are not considered. `digest` is valid until the next add().
  [[nodiscard]] std::optional<PromptItem> media_across(std::uint64_t token) const;

  void check_invariants() const;

 private:
  struct Item {
    ItemKind kind;
    std::uint64_t begin;
    std::uint64_t end;
    std::vector<std::byte> digest;
    /// The largest end of all media items up to and including this one. It never decreases from item to item, so it can be
    /// searched.
    std::uint64_t media_reach;

    [[nodiscard]] bool operator<(const Item& other) const;
  };

  std::vector<Item> items_;        ///< sorted
  std::size_t next_ = 0;           ///< index of the first item that begins at position_ or later
  std::vector<std::size_t> open_;  ///< indexes of the items that begin before position_ and end after it
  std::uint64_t position_ = 0;
  std::vector<ExtraKey> overlaps_;  ///< the result of the last next_block()
};

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
///     kind 'O', a block named by the engine:  16 parent key, 18 the engine's bytes, then any number of extra keys
///     kind 'U', an unchained block named by the engine:  19 namespace, 18 the engine's bytes (terrace/keys.hpp)
///     extra key:          32 media and 35 run of prompt embeddings (8 bytes: the item's first token relative to the
///                         block's first, two's complement, little-endian; then the digest), 33 prompt embedding digest,
///                         34 anything else that the engine wants to distinguish
///
/// An optional field that is absent is left out, so that an absent and an empty field give different keys. Fields are in the
/// order given above. The extra keys of a prompt's items come before all others, in the order of PromptItems::next_block.

using TokenId = std::uint32_t;

/// The fields that all keys of a namespace share. If any field differs, all keys differ.
struct RootFields {
  std::span<const std::byte> model_digest{};
  std::span<const std::byte> fingerprint{};   ///< a fingerprint of the geometry
  std::optional<std::string_view> adapter{};  ///< LoRA adapter
  std::optional<std::string_view> tenant_salt{};
  std::uint64_t weight_epoch = 0;
};

/// Returns the root key of a namespace. It stands before the first block of every sequence.
[[nodiscard]] TERRACE_API BlockKey root_key(const RootFields& fields);

/// Makes the keys of one sequence's full blocks, as its tokens arrive. Every block covers `block_tokens` tokens, even a block
/// that the engine names. Items count tokens from the chain's first token.
///
/// Threads: any, one at a time. Do not use it inside a step-path call, because hashing costs a fraction of a microsecond per
/// block.
class TERRACE_API KeyChain {
 public:
  /// `block_tokens` must not be 0.
  KeyChain(const BlockKey& root, std::uint32_t block_tokens);
  ~KeyChain();
  KeyChain(KeyChain&&) noexcept;
  KeyChain& operator=(KeyChain&&) noexcept;

  /// Adds items, which stand in the prompt in place of tokens. The key of a block contains all items that overlap the block. An
  /// item must be added before the first block that it overlaps is complete. Usually a caller adds all items of a prompt at once,
  /// and later the items of the next turn. Fails: invalid_argument (an item begins in a block that already has its key; see also
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

/// Returns the hash unit of groups whose blocks have these numbers of tokens: the greatest common divisor. Throws
/// std::invalid_argument if there is no group, or if a number is 0.
[[nodiscard]] TERRACE_API std::uint32_t hash_unit(std::span<const std::uint32_t> block_tokens);

/// Finds the keys of one group's blocks in a chain of keys that was made in hash units. So a prompt is hashed only once for all
/// block sizes of the groups. The key of a block is the key of its last unit, because that key names everything before it, too.
/// It does not name the group: blocks of different groups are distinguished by the place where they are kept, or by
/// key_in_group().
///
/// A plain value. Threads: any.
class TERRACE_API GroupKeys {
 public:
  /// Throws std::invalid_argument, with both numbers in its text, if a block is not a whole number of units.
  GroupKeys(std::uint32_t unit_tokens, std::uint32_t block_tokens);

  [[nodiscard]] std::uint32_t units_per_block() const { return units_per_block_; }
  /// Returns the number of full blocks in `units` units. Units of an incomplete block do not count.
  [[nodiscard]] std::size_t blocks(std::size_t units) const { return units / units_per_block_; }
  /// Returns the number of units in `blocks` blocks.
  [[nodiscard]] std::size_t units(std::size_t blocks) const { return blocks * units_per_block_; }
  /// Returns the key of a full block. `chain` has the keys of the units. `block` must be less than blocks(chain.size()).
  [[nodiscard]] const BlockKey& key(std::span<const BlockKey> chain, std::size_t block) const;

 private:
  std::uint32_t units_per_block_;
};

/// Returns the key of a block that the engine names by bytes of any length, 0 included. The key does not depend on other blocks:
/// it is the SHA-256 digest of a message of kind 'U' (docs/block-keys.md), so it is never the key of a chained block. The
/// namespace, also bytes of any length, identifies the model, layout and rank of the blocks. It separates blocks that have equal
/// names and different content: names in two namespaces never have the same key.
///
/// Threads: any.
[[nodiscard]] TERRACE_API BlockKey opaque_key(std::span<const std::byte> key_namespace, std::span<const std::byte> name);

/// Makes the keys of one namespace, without a memory allocation for each key.
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
