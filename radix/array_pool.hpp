#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace terrace {

/// Memory for the tree's per-node arrays, in size classes of elements (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, …: four
/// per doubling, so that at most a fifth is slack), cut from large slabs and recycled by class: once warm, nothing is
/// allocated. Threads: one.
class ArrayPool {
 public:
  /// `element_bytes`: of all arrays of a node together, per element; a multiple of 4.
  explicit ArrayPool(std::size_t element_bytes) : element_bytes_{element_bytes} {}

  /// The smallest class that holds `elements` (at least 1).
  [[nodiscard]] static std::uint32_t capacity_for(std::uint32_t elements);
  /// Uninitialised, aligned to 8. `capacity` comes from capacity_for.
  [[nodiscard]] std::byte* take(std::uint32_t capacity);
  void put(std::byte* arrays, std::uint32_t capacity);

  /// From the system, used or not.
  [[nodiscard]] std::size_t bytes_held() const { return bytes_held_; }

 private:
  [[nodiscard]] static std::size_t class_of(std::uint32_t capacity);

  std::size_t element_bytes_;
  std::vector<std::vector<std::byte*>> free_;  ///< by class
  std::vector<std::unique_ptr<std::byte[]>> slabs_;
  std::byte* cursor_ = nullptr;
  std::size_t left_ = 0;
  std::size_t bytes_held_ = 0;
};

}  // namespace terrace
