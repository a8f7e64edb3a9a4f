#pragma once

#include "base/slab.hpp"
#include "base/strong_id.hpp"

#include <cstdint>
#include <optional>
#include <utility>

namespace terrace {

/// Names transfers, and keeps what their maker has to know when they end. The upper half of a name is a number that no other
/// transfer has, counted over all tables of a manager; the lower says where in its table the transfer stands. Threads: one.
template <class T>
class TransferTable {
 public:
  [[nodiscard]] TransferId add(std::uint64_t& last_number, T thing) {
    const std::uint64_t place = transfers_.add({{}, std::move(thing)});
    const TransferId id{++last_number << place_bits | place};
    transfers_.at(place).id = id;
    return id;
  }
  /// None where the transfer is not of this table.
  [[nodiscard]] std::optional<T> take(TransferId id) {
    if (find(id) == nullptr) return std::nullopt;
    return transfers_.take(place_of(id)).thing;
  }
  /// Null where the transfer is not of this table.
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
