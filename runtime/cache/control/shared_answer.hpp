#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace terrace {

/// A question to the shared store and its answer, for a model with several KV cache groups: the blocks of a prompt that it was
/// asked for, and which of them it has. HitPlanner makes the question. The answer is a hint: if the store does not have a block
/// that it has named, the block is a miss when it is read.
///
/// A plain value. Threads: one. Units: blocks of each group, by their index in the group's block table.
class SharedAnswer {
 public:
  /// Neighbouring blocks of one group.
  struct Part {
    std::uint32_t first = 0;
    std::uint32_t blocks = 0;
    std::uint32_t begin = 0;  ///< index of the key of the first block among all keys of the question
  };

  /// Makes the question empty.
  void clear() {
    parts_.clear();
    there_.clear();
  }
  /// Adds the next group's part to the question.
  void add(std::uint32_t first, std::uint32_t blocks) {
    const std::uint32_t begin = keys();
    parts_.push_back({first, blocks, begin});
  }
  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }  ///< by GroupId
  /// Number of keys of the question.
  [[nodiscard]] std::uint32_t keys() const { return parts_.empty() ? 0 : parts_.back().begin + parts_.back().blocks; }
  /// Sets the answer: one byte for each key, not 0 if the store has the block. Empty: there was no answer.
  void set(std::vector<std::uint8_t> there) { there_ = std::move(there); }

  /// Returns true if the store has this block of the group, according to its answer.
  [[nodiscard]] bool has(std::size_t group, std::uint32_t block) const {
    if (group >= parts_.size()) return false;
    const Part& part = parts_[group];
    if (block < part.first || block - part.first >= part.blocks) return false;
    const std::size_t key = std::size_t{part.begin} + (block - part.first);
    return key < there_.size() && there_[key] != 0;
  }

 private:
  std::vector<Part> parts_;
  std::vector<std::uint8_t> there_;  ///< by key
};

}  // namespace terrace
