#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace terrace {

/// Items in the order of their last use: an LRU stack. Its first items with a total weight of C are the items that an LRU cache
/// of size C has, for every C at once, because LRU is a stack algorithm (R. L. Mattson, J. Gecsei, D. R. Slutz, I. L. Traiger:
/// "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2), 1970). So the position of an item before its use,
/// its stack distance, is the smallest cache that hits it.
///
/// Items are numbers, from 0 without large gaps. An item that stands for several blocks has their number as its weight.
///
/// Each use takes the next place in a row of places. A position is the weight of the items at later places, which a binary
/// indexed tree adds up in O(log n) (B. T. Bennett, V. J. Kruskal: "LRU stack processing", IBM Journal of Research and
/// Development 19(4), 1975; P. M. Fenwick: "A new data structure for cumulative frequency tables", Software: Practice and
/// Experience 24(3), 1994). When all places are taken, the places in use are renumbered. So memory is in proportion to the number
/// of different items.
///
/// Threads: one.
class LruStack {
 public:
  using Item = std::uint32_t;
  static constexpr std::uint32_t unknown = 0;

  /// The weight of all items above this one plus its own; `unknown` if it is not in the stack.
  [[nodiscard]] std::uint32_t position(Item item) const;
  /// Moves the item to the top, or adds it there. An item that is in the stack already keeps its weight. All weights together
  /// must stay below 2^32.
  void use(Item item, std::uint32_t weight = 1);
  /// Removes the item that was not used for the longest time. There must be one.
  Item drop_last();
  /// The weight of all items.
  [[nodiscard]] std::uint32_t weight() const { return weight_; }

 private:
  static constexpr std::uint32_t no_place = std::numeric_limits<std::uint32_t>::max();

  struct Place {
    Item item = 0;  ///< the item at this place; out of date unless place_of_ of the item is this place
    std::uint32_t weight = 0;
  };

  [[nodiscard]] bool in_use(std::uint32_t place) const { return place_of_[places_[place].item] == place; }
  void add(std::uint32_t place, std::uint32_t weight);
  void make_places();

  std::vector<std::uint32_t> place_of_;  ///< by item
  std::vector<Place> places_;
  std::vector<std::uint32_t> sums_;  ///< the binary indexed tree: entry i has the weight of the places (i - lowest bit of i, i]
  std::uint32_t first_place_ = 0;    ///< no place before it is in use
  std::uint32_t next_place_ = 0;
  std::uint32_t weight_ = 0;
};

}  // namespace terrace
