#pragma once

#include "base/check.hpp"
#include "base/slab.hpp"
#include "terrace/types.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace terrace {

/// Gives transfers their ids, and keeps for each what its maker needs to know when it ends. The upper 32 bits of an id are a
/// number that is unique over all tables of a manager. The lower 32 bits are the place of the transfer in its table.
///
/// Threads: one.
template <class T>
class TransferTable {
 public:
  [[nodiscard]] TransferId add(std::uint64_t& last_number, T thing) {
    const std::uint64_t place = transfers_.add({{}, std::move(thing)});
    const TransferId id{++last_number << place_bits | place};
    transfers_.at(place).id = id;
    return id;
  }
  /// Removes the transfer and returns the data that was kept for it; nothing if the transfer is not in this table.
  [[nodiscard]] std::optional<T> take(TransferId id) {
    if (find(id) == nullptr) return std::nullopt;
    return transfers_.take(place_of(id)).thing;
  }
  /// The data that is kept for the transfer; nullptr if the transfer is not in this table.
  [[nodiscard]] const T* find(TransferId id) const {
    const Crossing* const transfer = transfers_.find(place_of(id));
    return transfer == nullptr || transfer->id != id ? nullptr : &transfer->thing;
  }
  [[nodiscard]] bool empty() const { return transfers_.empty(); }

 private:
  static constexpr unsigned place_bits = 32;
  [[nodiscard]] static std::uint64_t place_of(TransferId id) { return id.value() & ((1ULL << place_bits) - 1); }
  struct Crossing {
    TransferId id;
    T thing;
  };
  Slab<Crossing> transfers_;
};

/// The transfers of a load, and how many leading layers of its blocks each has brought. Threads: one.
class LayersBrought {
 public:
  /// Stands for whole blocks.
  static constexpr std::uint32_t all_layers = 0xFFFF'FFFF;
  struct Entry {
    TransferId id;
    std::uint32_t layers = 0;
  };

  void add(TransferId id) { entries_.push_back({id}); }
  /// The transfer, which must have been added, has brought this many layers, and never fewer than before. Returns true if least()
  /// has grown.
  [[nodiscard]] bool set(TransferId id, std::uint32_t layers) {
    const std::uint32_t before = least();
    const auto found = std::ranges::find(entries_, id, &Entry::id);
    TERRACE_CHECK(found != entries_.end() && found->layers <= layers);
    found->layers = layers;
    return least() > before;
  }
  /// How many leading layers all of the transfers have brought.
  [[nodiscard]] std::uint32_t least() const {
    std::uint32_t layers = all_layers;
    for (const Entry& each : entries_) layers = std::min(layers, each.layers);
    return layers;
  }
  /// Appends the transfers that have not brought these leading layers yet.
  void append_open(std::uint32_t layers, std::vector<TransferId>& out) const {
    for (const Entry& each : entries_) {
      if (each.layers < layers) out.push_back(each.id);
    }
  }
  [[nodiscard]] std::span<const Entry> all() const { return entries_; }
  void clear() { entries_.clear(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace terrace
