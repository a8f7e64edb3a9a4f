#pragma once

#include "base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// What a block's content may depend on beside its tokens. The value is the field's tag in a key's message.
enum class ExtraKind : std::uint8_t {
  media = 32,             ///< an image, video or sound that begins at `offset`
  prompt_embedding = 33,  ///< embeddings in place of this very block's tokens; no offset
  other = 34,             ///< anything else that the engine wants to tell apart; no offset
  embedding_item = 35,    ///< a run of embeddings, perhaps longer than the block, that begins at `offset`
};

/// One such thing, as one block sees it.
struct ExtraKey {
  ExtraKind kind = ExtraKind::other;
  std::span<const std::byte> digest;
  /// media and embedding_item only: where the item begins, in tokens from the block's first; less than 0 where the item began
  /// in an earlier block. One number says both where in the block an item lies and which part of the item lies in the block.
  std::int64_t offset = 0;
};

enum class ItemKind : std::uint8_t { media, prompt_embedding };

/// A run of a prompt's tokens that stands for something else: the placeholders of an image, or positions whose embeddings the
/// client brought. Tokens are counted from the prompt's first.
///
/// The digest covers all that makes the item what the model sees: content, and how it was prepared (so also how many tokens it
/// takes). Two items of equal digest are taken to be the same.
struct PromptItem {
  ItemKind kind = ItemKind::media;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::span<const std::byte> digest;
};

/// The items of one prompt, and a cursor that walks over them block by block, so that each is looked at once for every block
/// that it overlaps and never again. Items may overlap (a video's sound lies between its frames). Digests are copied.
/// Threads: one at a time.
class PromptItems {
 public:
  /// Items may come in any order and in several calls, as long as none begins before position(). Fails: invalid_argument (one
  /// that begins there, an empty item, an empty digest, one that ends past 2^63 - 1 tokens); nothing changed.
  [[nodiscard]] Result<void> add(std::span<const PromptItem> items);

  /// Moves on by a block, and says what overlaps it: in the order in which items begin, those that begin together by kind and
  /// then by digest, so that the order in which they were added does not matter. Valid until the next call.
  [[nodiscard]] std::span<const ExtraKey> next_block(std::uint32_t tokens);
  /// The first token that next_block() has not passed.
  [[nodiscard]] std::uint64_t position() const { return position_; }

  /// The media item that begins before this token and goes on with it: a prefix that ends here ends inside the item. Where
  /// there are several, the one that begins first. Prompt embeddings may be split anywhere. `digest` is valid until the next
  /// add().
  [[nodiscard]] std::optional<PromptItem> media_across(std::uint64_t token) const;

  void check_invariants() const;

 private:
  struct Item {
    ItemKind kind;
    std::uint64_t begin;
    std::uint64_t end;
    std::vector<std::byte> digest;
    /// How far this media item and those before it reach: never less from item to item, so that it can be searched.
    std::uint64_t media_reach;

    [[nodiscard]] bool operator<(const Item& other) const;
  };

  std::vector<Item> items_;        ///< sorted
  std::size_t next_ = 0;           ///< the first item that begins at position_ or later
  std::vector<std::size_t> open_;  ///< items that begin before position_ and end after it
  std::uint64_t position_ = 0;
  std::vector<ExtraKey> overlaps_;  ///< of the block passed last
};

}  // namespace terrace
