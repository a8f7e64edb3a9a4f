#pragma once

#include "base/strong_id.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace terrace {

/// Context parallelism: the tokens of one sequence are dealt out to several ranks, `interleave` at a time, so that each keeps a
/// share of every block. A block of the cache (its key, its entry in the block table) then stands for the tokens of all ranks
/// together, and each rank's slot holds block_tokens of them. With 2 ranks, blocks of 4 tokens a rank, dealt 2 at a time:
///
///     token        0 1 2 3 4 5 6 7 | 8 9 …
///     rank         0 0 1 1 0 0 1 1 | 0 0 …
///     block        0 0 0 0 0 0 0 0 | 1 1 …
///     offset       0 1 0 1 2 3 2 3 | 0 1 …      in the rank's slot
///
/// So a cache under context parallelism is the cache that it always was, with blocks of tokens_per_block() tokens: one manager
/// decides, its block tables hold for every rank, and a hit is the same on all. Ranks are given, never discovered. Pure.
class ContextSpread {
 public:
  struct Sizes {
    std::uint32_t block_tokens = 0;   ///< in a rank's slot
    std::uint32_t decode_ranks = 1;   ///< among which a sequence's KV is spread while decoding,
    std::uint32_t prefill_ranks = 1;  ///< and, beside that, while prefilling
    std::uint32_t interleave = 1;     ///< tokens in a row on one rank; divides block_tokens
  };
  /// Where a token's KV is.
  struct Place {
    std::uint32_t rank = 0;
    std::uint64_t block = 0;   ///< index in the block table
    std::uint32_t offset = 0;  ///< in the rank's slot, in tokens

    friend bool operator==(const Place&, const Place&) = default;
  };

  /// Throws std::invalid_argument where the sizes do not go together.
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
  /// The rank's number here: decode ranks of one prefill rank follow one another.
  [[nodiscard]] std::uint32_t rank(std::uint32_t prefill_rank, std::uint32_t decode_rank) const {
    return prefill_rank * sizes_.decode_ranks + decode_rank;
  }
  /// Of all ranks together: the size of a block for keys, hits and tables.
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

  /// Of a sequence of so many tokens: how many the rank keeps,
  [[nodiscard]] std::uint64_t tokens_on(std::uint32_t rank, std::uint64_t tokens) const {
    const std::uint64_t round = std::uint64_t{ranks()} * sizes_.interleave;
    const std::uint64_t rest = tokens % round;
    const std::uint64_t before = std::uint64_t{rank} * sizes_.interleave;  // of the rest, to the ranks before
    const std::uint64_t here = rest - std::min(rest, before);
    return tokens / round * sizes_.interleave + std::min<std::uint64_t>(here, sizes_.interleave);
  }
  /// how many blocks its table needs, on every rank,
  [[nodiscard]] std::uint64_t blocks_for(std::uint64_t tokens) const {
    return tokens / tokens_per_block() + (tokens % tokens_per_block() == 0 ? 0 : 1);
  }
  /// and how many blocks may be hits where at least one token is to be computed.
  [[nodiscard]] std::uint64_t hit_blocks_max(std::uint64_t tokens) const {
    return tokens == 0 ? 0 : (tokens - 1) / tokens_per_block();
  }
  /// Tokens that so many hit blocks save, all ranks together.
  [[nodiscard]] std::uint64_t hit_tokens(std::uint64_t blocks) const { return blocks * tokens_per_block(); }

  /// The token's place in the rank's KV memory, in tokens from the first slot's start; nothing where another rank keeps it.
  /// `table` reaches that far.
  [[nodiscard]] std::optional<std::uint64_t> cell(std::span<const SlotId> table, std::uint32_t rank, std::uint64_t token) const {
    const Place place = place_of(token);
    if (place.rank != rank) return std::nullopt;
    return std::uint64_t{table[place.block].value()} * sizes_.block_tokens + place.offset;
  }

 private:
  Sizes sizes_;
};

}  // namespace terrace
