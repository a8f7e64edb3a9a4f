#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// Which memory has which place in a ring's table of buffers. Threads: one.
class UringMemory {
 public:
  explicit UringMemory(unsigned places);

  /// A place that is free; nothing: all are taken. It is taken by add().
  [[nodiscard]] std::optional<unsigned> free_place() const;
  /// The memory, which overlaps no other, has the place that free_place() named.
  void add(std::span<std::byte> memory);
  /// The memory goes; its place, or nothing where it has none.
  std::optional<unsigned> remove(std::span<std::byte> memory);
  /// The place of the memory that holds all these bytes.
  [[nodiscard]] std::optional<unsigned> find(const std::byte* begin, std::size_t bytes) const;

 private:
  struct Piece {
    std::span<std::byte> memory;
    unsigned place;
  };
  std::vector<Piece> pieces_;  ///< by address
  std::vector<unsigned> free_;
};

}  // namespace terrace
