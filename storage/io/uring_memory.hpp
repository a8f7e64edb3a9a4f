#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// Records which piece of memory has which entry in a ring's table of buffers. Threads: one.
class UringMemory {
 public:
  explicit UringMemory(unsigned places);

  /// An entry that is free, or nothing if all are used. add() uses this entry.
  [[nodiscard]] std::optional<unsigned> free_place() const;
  /// Gives the memory the entry that free_place() returned. The memory must not overlap memory that was added before.
  void add(std::span<std::byte> memory);
  /// Removes the memory. Returns its entry, or nothing if it has none.
  std::optional<unsigned> remove(std::span<std::byte> memory);
  /// The entry of the piece of memory that contains all these bytes, or nothing.
  [[nodiscard]] std::optional<unsigned> find(const std::byte* begin, std::size_t bytes) const;

 private:
  struct Piece {
    std::span<std::byte> memory;
    unsigned place;
  };
  std::vector<Piece> pieces_;  ///< sorted by address
  std::vector<unsigned> free_;
};

}  // namespace terrace
