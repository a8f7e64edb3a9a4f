#include "base/free_slots.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace terrace {
namespace {

constexpr std::uint32_t word_bits = 64;

std::uint64_t bit_of(std::uint32_t position) { return std::uint64_t{1} << (position % word_bits); }

}  // namespace

FreeSlots::FreeSlots(std::uint32_t capacity) : capacity_{0}, free_{0} { grow(capacity); }

/// Makes an empty bitmap for `slots` slots, and its summary levels.
void FreeSlots::make_levels(std::size_t slots) {
  levels_.clear();
  std::size_t words = slots;
  do {
    words = (words + word_bits - 1) / word_bits;
    levels_.emplace_back(words, 0);
  } while (words > 1);
}

void FreeSlots::grow(std::uint32_t capacity) {
  TERRACE_CHECK(capacity >= capacity_);
  std::vector<std::uint64_t> before;
  if (!levels_.empty()) before.swap(levels_[0]);
  make_levels(capacity);
  for (std::size_t word = 0; word < before.size(); ++word) {
    if (before[word] != 0) set_bits(word, before[word]);
  }
  for (std::uint32_t begin = capacity_; begin < capacity;) {
    const std::uint32_t end = std::min(capacity, (begin / word_bits + 1) * word_bits);
    const std::uint32_t here = end - begin;
    const std::uint64_t ones = here == word_bits ? ~std::uint64_t{0} : (std::uint64_t{1} << here) - 1;
    set_bits(begin / word_bits, ones << (begin % word_bits));
    begin = end;
  }
  free_ += capacity - capacity_;
  capacity_ = capacity;
}

bool FreeSlots::contains(SlotId slot) const {
  const std::uint32_t position = slot.value();
  return position < capacity_ && (levels_[0][position / word_bits] & bit_of(position)) != 0;
}

std::optional<SlotId> FreeSlots::take() {
  if (free_ == 0) return std::nullopt;
  const std::uint32_t position = lowest();
  clear(position);
  --free_;
  return SlotId{position};
}

std::uint32_t FreeSlots::lowest() const {
  std::uint32_t position = 0;
  for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) {
    position = position * word_bits + static_cast<std::uint32_t>(std::countr_zero((*level)[position]));
  }
  return position;
}

void FreeSlots::take_many(std::uint32_t count, std::optional<SlotId> neighbour, std::vector<SlotId>& out) {
  count = std::min(count, free_);
  free_ -= count;
  out.resize(out.size() + count);
  SlotId* taken = out.data() + out.size() - count;
  // Each step takes slots from one word of the bitmap: first the contiguous free slots after the neighbour, then the lowest free
  // slots.
  std::uint32_t position = neighbour ? neighbour->value() + 1 : capacity_;
  while (count > 0) {
    const bool follows = position < capacity_ && contains(SlotId{position});
    if (!follows) position = lowest();
    const std::size_t word = position / word_bits;
    const std::uint64_t free_from_here = levels_[0][word] >> (position % word_bits);
    const auto run = std::min(count, static_cast<std::uint32_t>(std::countr_one(free_from_here)));
    const std::uint64_t ones = run == word_bits ? ~std::uint64_t{0} : (std::uint64_t{1} << run) - 1;
    clear_bits(word, ones << (position % word_bits));
    for (std::uint32_t i = 0; i < run; ++i) *taken++ = SlotId{position + i};
    count -= run;
    position += run;
  }
}

std::optional<SlotId> FreeSlots::take_last() {
  if (free_ == 0) return std::nullopt;
  const std::uint32_t position = highest();
  clear(position);
  --free_;
  return SlotId{position};
}

std::uint32_t FreeSlots::highest() const {
  std::uint32_t position = 0;
  for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) {
    const auto leading = static_cast<std::uint32_t>(std::countl_zero((*level)[position]));
    position = position * word_bits + (word_bits - 1 - leading);
  }
  return position;
}

void FreeSlots::take_last_many(std::uint32_t count, std::vector<SlotId>& out) {
  count = std::min(count, free_);
  free_ -= count;
  out.resize(out.size() + count);
  SlotId* taken = out.data() + out.size();
  // Each step takes the highest free slots of one word of the bitmap that are contiguous.
  while (count > 0) {
    const std::uint32_t position = highest();
    const std::size_t word = position / word_bits;
    const std::uint64_t free_to_here = levels_[0][word] << (word_bits - 1 - position % word_bits);
    const auto run = std::min(count, static_cast<std::uint32_t>(std::countl_one(free_to_here)));
    const std::uint64_t ones = run == word_bits ? ~std::uint64_t{0} : (std::uint64_t{1} << run) - 1;
    clear_bits(word, ones << (position % word_bits + 1 - run));
    for (std::uint32_t i = 0; i < run; ++i) *--taken = SlotId{position - i};
    count -= run;
  }
}

std::optional<SlotId> FreeSlots::take_after(SlotId neighbour) {
  const SlotId next{neighbour.value() + 1};
  if (!contains(next)) return take();
  take_exactly(next);
  return next;
}

void FreeSlots::take_exactly(SlotId slot) {
  TERRACE_CHECK(contains(slot));
  clear(slot.value());
  --free_;
}

void FreeSlots::put_many(std::span<const SlotId> slots) {
  for (std::size_t i = 0; i < slots.size();) {
    const std::size_t word = slots[i].value() / word_bits;
    std::uint64_t bits = 0;
    for (; i < slots.size() && slots[i].value() / word_bits == word; ++i) {
      TERRACE_CHECK(slots[i].value() < capacity_ && (bits & bit_of(slots[i].value())) == 0);
      bits |= bit_of(slots[i].value());
    }
    TERRACE_CHECK((levels_[0][word] & bits) == 0);
    set_bits(word, bits);
  }
  free_ += static_cast<std::uint32_t>(slots.size());
}

void FreeSlots::set_bits(std::size_t word, std::uint64_t bits) {
  for (auto& level : levels_) {
    std::uint64_t& now = level[word];
    const bool was_empty = now == 0;
    now |= bits;
    if (!was_empty) return;
    bits = bit_of(static_cast<std::uint32_t>(word));
    word /= word_bits;
  }
}

void FreeSlots::clear(std::uint32_t position) { clear_bits(position / word_bits, bit_of(position)); }

void FreeSlots::clear_bits(std::size_t word, std::uint64_t bits) {
  for (auto& level : levels_) {
    level[word] &= ~bits;
    if (level[word] != 0) return;
    bits = bit_of(static_cast<std::uint32_t>(word));
    word /= word_bits;
  }
}

void FreeSlots::check_invariants() const {
  std::uint32_t bits = 0;
  for (const std::uint64_t word : levels_[0]) bits += static_cast<std::uint32_t>(std::popcount(word));
  TERRACE_CHECK(bits == free_);
  for (std::size_t n = 1; n < levels_.size(); ++n) {
    for (std::size_t i = 0; i < levels_[n - 1].size(); ++i) {
      const auto position = static_cast<std::uint32_t>(i);
      const bool summary = (levels_[n][position / word_bits] & bit_of(position)) != 0;
      TERRACE_CHECK(summary == (levels_[n - 1][i] != 0));
    }
  }
}

}  // namespace terrace
