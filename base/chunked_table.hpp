#pragma once

#include "base/large_memory.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace terrace {

/// A table of plain data that grows at its end. Its memory comes in chunks of one huge page. A std::vector of millions of rows
/// can hold twice the memory that it uses, and it copies all rows when it grows; this table does neither. Only the first chunk
/// starts small and grows by copying, so rows may move until the first chunk is full.
///
/// Ownership: the table keeps its memory until it is destroyed. Threads: one. Errors: throws std::bad_alloc if there is no
/// memory.
template <class Row>
class ChunkedTable {
 public:
  ChunkedTable() = default;
  ~ChunkedTable() {
    if (chunks_.empty()) return;
    for (std::size_t i = 1; i < chunks_.size(); ++i) unmap_memory(chunks_[i], chunk_bytes);
    release_first();
  }
  ChunkedTable(ChunkedTable&& other) noexcept
      : chunks_{std::exchange(other.chunks_, {})},
        size_{std::exchange(other.size_, 0)},
        capacity_{std::exchange(other.capacity_, 0)} {}
  ChunkedTable(const ChunkedTable&) = delete;
  ChunkedTable& operator=(const ChunkedTable&) = delete;

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] Row& operator[](std::size_t i) { return chunks_[i >> chunk_bits][i & (chunk_rows - 1)]; }
  [[nodiscard]] const Row& operator[](std::size_t i) const { return chunks_[i >> chunk_bits][i & (chunk_rows - 1)]; }

  Row& push_back(const Row& row) {
    if (size_ == capacity_) grow();
    return *::new (&(*this)[size_++]) Row{row};
  }
  void pop_back() { --size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] const Row& front() const { return (*this)[0]; }
  [[nodiscard]] const Row& back() const { return (*this)[size_ - 1]; }
  /// Appends default-constructed rows until the table has `size` rows.
  void extend_to(std::size_t size) {
    while (size_ < size) push_back(Row{});
  }
  [[nodiscard]] std::size_t bytes_held() const { return capacity_ * sizeof(Row); }

 private:
  static constexpr unsigned chunk_bits = std::bit_width(huge_page_bytes / sizeof(Row)) - 1;
  static constexpr std::size_t chunk_rows = std::size_t{1} << chunk_bits;
  static constexpr std::size_t chunk_bytes = chunk_rows * sizeof(Row);
  static constexpr std::size_t first_rows = 16;
  static constexpr std::size_t row_alignment = std::max(alignof(Row), std::size_t{16});

  void grow() {
    static_assert(std::is_trivially_copyable_v<Row> && std::is_trivially_destructible_v<Row>);
    if (capacity_ < chunk_rows) {
      const std::size_t rows = std::max(first_rows, capacity_ * 2);
      void* const memory = rows < chunk_rows ? ::operator new(rows * sizeof(Row), std::align_val_t{row_alignment})
                                             : map_memory(chunk_bytes, HugePages::yes);
      auto* const larger = static_cast<Row*>(memory);
      if (chunks_.empty()) {
        chunks_.push_back(larger);
      } else {
        std::memcpy(static_cast<void*>(larger), chunks_.front(), size_ * sizeof(Row));
        release_first();
        chunks_.front() = larger;
      }
      capacity_ = rows;
    } else {
      chunks_.push_back(static_cast<Row*>(map_memory(chunk_bytes, HugePages::yes)));
      capacity_ += chunk_rows;
    }
  }
  void release_first() {
    if (capacity_ < chunk_rows) {
      ::operator delete(chunks_.front(), std::align_val_t{row_alignment});
    } else {
      unmap_memory(chunks_.front(), chunk_bytes);
    }
  }

  std::vector<Row*> chunks_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace terrace
