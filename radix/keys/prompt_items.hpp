#pragma once

#include "base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// The kinds of things, other than tokens, on which the content of a block may depend. The value is the tag of the field in the
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
  std::span<const std::byte> digest;
  /// For media and embedding_item only: the item's first token, relative to the block's first token. It is negative if the item
  /// begins in an earlier block. This one number says both where the item lies in the block and which part of the item lies
  /// there.
  std::int64_t offset = 0;
};

enum class ItemKind : std::uint8_t { media, prompt_embedding };

/// A run of tokens in a prompt that stands for something else: the placeholders of an image, or positions whose embeddings the
/// client has sent. Tokens are counted from the prompt's first token.
///
/// The digest must cover everything that determines what the model sees: the content, and how it was prepared (and so the number
/// of tokens). Two items with equal digests are taken to be the same.
struct PromptItem {
  ItemKind kind = ItemKind::media;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::span<const std::byte> digest;
};

/// The items of one prompt, and a cursor that moves over the prompt block by block. Each item is visited once for every block
/// that it overlaps. Items may overlap each other; for example, the sound of a video lies between its frames.
///
/// Ownership: digests are copied. Threads: one at a time.
class PromptItems {
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

}  // namespace terrace
