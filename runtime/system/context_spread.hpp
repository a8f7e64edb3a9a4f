#pragma once

#include "terrace/types.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace terrace {

/// The layout of context parallelism: the tokens of one sequence are distributed over several ranks, `interleave` tokens at a
/// time, so that each rank keeps a part of every block.
///
/// A block of the cache (its key, its entry in the block table) stands for the tokens of all ranks together. The slot of each
/// rank holds block_tokens of them. Example: 2 ranks, 4 tokens per rank and block, 2 tokens at a time:
///
///     token        0 1 2 3 4 5 6 7 | 8 9 …
///     rank         0 0 1 1 0 0 1 1 | 0 0 …
///     block        0 0 0 0 0 0 0 0 | 1 1 …
///     offset       0 1 0 1 2 3 2 3 | 0 1 …      in the slot of the rank
///
/// The cache itself does not change: it has blocks of tokens_per_block() tokens, one manager decides, the block tables hold for
/// every rank, and a hit is the same on all ranks. The caller gives the number of ranks. This class only computes; it has no
/// state that changes.
class ContextSpread {
 public:
  struct Sizes {
    std::uint32_t block_tokens = 0;   ///< tokens in the slot of one rank
    std::uint32_t decode_ranks = 1;   ///< ranks over which the KV of a sequence is spread in decode
    std::uint32_t prefill_ranks = 1;  ///< further factor for prefill: there are decode_ranks * prefill_ranks ranks
    std::uint32_t interleave = 1;     ///< consecutive tokens on one rank; must divide block_tokens
  };
  /// The place of the KV of a token.
  struct Place {
    std::uint32_t rank = 0;
    std::uint64_t block = 0;   ///< index in the block table
    std::uint32_t offset = 0;  ///< in the slot of the rank, in tokens

    friend bool operator==(const Place&, const Place&) = default;
  };

  /// Throws std::invalid_argument if the sizes do not fit each other.
  explicit ContextSpread(const Sizes& sizes) : sizes_{sizes} {
    const auto refuse = [](const std::string& why) { throw std::invalid_argument{"context parallelism: " + why}; };
    if (sizes.block_tokens == 0) refuse("block_tokens is 0: a slot holds one token at least");
    if (sizes.decode_ranks == 0 || sizes.prefill_ranks == 0) refuse("there is one decode and one prefill rank at least");
    if (sizes.interleave == 0 || sizes.block_tokens % sizes.interleave != 0) {
      refuse("interleave is " + std::to_string(sizes.interleave) + ": it must divide block_tokens, which is " +
             std::to_string(sizes.block_tokens));
    }
    if (std::uint64_t{sizes.decode_ranks} * sizes.prefill_ranks * sizes.block_tokens > UINT32_MAX) {
      refuse("a block of all ranks together has more tokens than 32 bits count");
    }
  }

  [[nodiscard]] std::uint32_t ranks() const { return sizes_.decode_ranks * sizes_.prefill_ranks; }
  /// The number of the rank in this class. The decode ranks of one prefill rank have consecutive numbers.
  [[nodiscard]] std::uint32_t rank(std::uint32_t prefill_rank, std::uint32_t decode_rank) const {
    return prefill_rank * sizes_.decode_ranks + decode_rank;
  }
  /// Size of a block for keys, hits and block tables: its tokens on all ranks together.
  [[nodiscard]] std::uint32_t tokens_per_block() const { return sizes_.block_tokens * ranks(); }

  [[nodiscard]] Place place_of(std::uint64_t token) const {
    const auto in_block = static_cast<std::uint32_t>(token % tokens_per_block());
    const std::uint32_t deal = in_block / sizes_.interleave;
    return {deal % ranks(), token / tokens_per_block(), deal / ranks() * sizes_.interleave + in_block % sizes_.interleave};
  }
  [[nodiscard]] std::uint64_t token_at(const Place& place) const {
    const std::uint32_t deal = place.offset / sizes_.interleave * ranks() + place.rank;
    return place.block * tokens_per_block() + std::uint64_t{deal} * sizes_.interleave + place.offset % sizes_.interleave;
  }

  /// Number of the first `tokens` tokens of a sequence that the rank keeps.
  [[nodiscard]] std::uint64_t tokens_on(std::uint32_t rank, std::uint64_t tokens) const {
    const std::uint64_t round = std::uint64_t{ranks()} * sizes_.interleave;
    const std::uint64_t rest = tokens % round;
    // out of `rest`: tokens that go to the ranks before this one
    const std::uint64_t before = std::uint64_t{rank} * sizes_.interleave;
    const std::uint64_t here = rest - std::min(rest, before);
    return tokens / round * sizes_.interleave + std::min<std::uint64_t>(here, sizes_.interleave);
  }
  /// Number of blocks in the block table of a sequence of `tokens` tokens, on every rank.
  [[nodiscard]] std::uint64_t blocks_for(std::uint64_t tokens) const {
    return tokens / tokens_per_block() + (tokens % tokens_per_block() == 0 ? 0 : 1);
  }
  /// The most blocks that can be hits if at least one token must be computed.
  [[nodiscard]] std::uint64_t hit_units_max(std::uint64_t tokens) const {
    return tokens == 0 ? 0 : (tokens - 1) / tokens_per_block();
  }
  /// Number of tokens that `blocks` hit blocks save, on all ranks together.
  [[nodiscard]] std::uint64_t hit_tokens(std::uint64_t blocks) const { return blocks * tokens_per_block(); }

  /// Place of the token in the KV memory of the rank, in tokens from the start of the first slot. None if another rank keeps the
  /// token. `table` must include the block of the token.
  [[nodiscard]] std::optional<std::uint64_t> cell(std::span<const SlotId> table, std::uint32_t rank, std::uint64_t token) const {
    const Place place = place_of(token);
    if (place.rank != rank) return std::nullopt;
    return std::uint64_t{table[place.block].value()} * sizes_.block_tokens + place.offset;
  }

 private:
  Sizes sizes_;
};

}  // namespace terrace
