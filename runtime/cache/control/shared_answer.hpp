#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace terrace {

/// The blocks of a prompt that the shared store has, according to its answer to a question of SharedQuestions. The answer is a
/// hint: if the store does not have a block that it has named, the block is a miss when it is read.
///
/// For a model with a single group, the answer is a place: the store has the blocks before it that no tier has. For a model with
/// several groups, the question names parts of each group, and the answer tells for each block of these parts.
///
/// A plain value. Threads: one. Units: blocks of each group, by their index in the group's block table.
class SharedAnswer {
 public:
  /// The store is assumed to have all blocks.
  [[nodiscard]] static SharedAnswer everything() {
    SharedAnswer all;
    all.end_ = std::numeric_limits<std::uint32_t>::max();
    return all;
  }
  /// Makes question and answer empty: the store has nothing.
  void clear() {
    parts_.clear();
    there_.clear();
    end_ = 0;
  }
  /// Several groups: adds the part of the next group to the question, `blocks` blocks from `first` on.
  void add(std::uint32_t first, std::uint32_t blocks) {
    const std::uint32_t begin = parts_.empty() ? 0 : parts_.back().begin + parts_.back().blocks;
    parts_.push_back({first, blocks, begin});
  }
  /// Sets the answer. `end`: a single group's place. `there`: one byte for each block of the question, not 0 if the store has it.
  void set(std::uint32_t end, std::vector<std::uint8_t> there) {
    end_ = end;
    there_ = std::move(there);
  }

  /// Returns true if the store has this block of the group.
  [[nodiscard]] bool has(std::size_t group, std::uint32_t block) const {
    if (parts_.empty()) return block < end_;
    const Part& part = parts_[group];
    if (block < part.first || block - part.first >= part.blocks) return false;
    const std::size_t place = std::size_t{part.begin} + (block - part.first);
    return place < there_.size() && there_[place] != 0;
  }

 private:
  /// Neighbouring blocks of one group.
  struct Part {
    std::uint32_t first = 0;
    std::uint32_t blocks = 0;
    std::uint32_t begin = 0;  ///< index of the first block among all blocks of the question
  };
  std::vector<Part> parts_;          ///< by GroupId; empty for a single group
  std::vector<std::uint8_t> there_;  ///< by block of the question
  std::uint32_t end_ = 0;
};

}  // namespace terrace
