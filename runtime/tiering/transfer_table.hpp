#pragma once

#include "base/slab.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <optional>
#include <utility>

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

}  // namespace terrace
