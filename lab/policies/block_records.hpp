#pragma once

#include "base/check.hpp"
#include "terrace/policies.hpp"
#include "terrace/types.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <utility>
#include <vector>

namespace terrace::tools {

/// A policy's records about blocks: of all blocks in its tier, and of some blocks that have left the tier (ghosts). Ghosts are in
/// lines, newest first, so that the oldest can be dropped.
///
/// A block is identified by eight bytes of its key. Two blocks with equal bytes share a record. This can only make an eviction
/// decision worse; it never gives a wrong block. A record keeps its index while it exists, and then its memory is used again.
/// Nothing is allocated while there are at most as many records as were reserved. Threads: one.
template <class Data, std::size_t line_count = 1>
class BlockRecords {
 public:
  using Index = std::uint32_t;
  static constexpr Index none = 0xFFFF'FFFF;

  /// Reserves memory for this many records. Further records allocate memory when they come.
  explicit BlockRecords(std::size_t expected) {
    records_.reserve(expected);
    by_id_.reserve(expected);
  }

  [[nodiscard]] Data& operator[](Index index) { return records_[index].data; }
  [[nodiscard]] const Data& operator[](Index index) const { return records_[index].data; }
  [[nodiscard]] bool resident(Index index) const { return records_[index].copies > 0; }

  [[nodiscard]] Index find(const BlockKey& key) const {
    const auto found = by_id_.find(key.prefix64());
    return found == by_id_.end() ? none : found->second;
  }
  /// Returns the block's record. A new record is in no line and not resident.
  [[nodiscard]] Index find_or_add(const BlockKey& key) {
    const auto [place, is_new] = by_id_.try_emplace(key.prefix64(), none);
    if (!is_new) return place->second;
    Index index = 0;
    if (free_.empty()) {
      index = static_cast<Index>(records_.size());
      records_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
      records_[index] = Record{};
    }
    records_[index].id = key.prefix64();
    place->second = index;
    return index;
  }

  /// Records that the block came into the tier, and removes its record from its line. Returns true if it was not there before.
  bool enter(Index index) {
    ++blocks_;
    if (records_[index].copies++ > 0) return false;
    unlink(index);
    ++residents_;
    return true;
  }
  /// Records that the block left the tier. Returns true if no block with this record is left there. Then the record is in no
  /// line, and the caller must keep it as a ghost or forget it.
  bool leave(Index index) {
    TERRACE_CHECK(records_[index].copies > 0);
    --blocks_;
    if (--records_[index].copies > 0) return false;
    --residents_;
    return true;
  }

  /// Moves a ghost to the front of a line.
  void make_newest(Index index, std::size_t line) {
    TERRACE_CHECK(!resident(index));
    unlink(index);
    Line& to = lines_[line];
    Record& record = records_[index];
    record.line = static_cast<std::uint8_t>(line);
    record.older = to.newest;
    record.newer = none;
    (to.newest == none ? to.oldest : records_[to.newest].newer) = index;
    to.newest = index;
    ++to.size;
  }
  /// Drops the oldest ghost of the line, which must not be empty.
  void forget_oldest(std::size_t line) { forget(lines_[line].oldest); }
  void forget(Index index) {
    TERRACE_CHECK(index != none && !resident(index));
    unlink(index);
    TERRACE_CHECK(by_id_.erase(records_[index].id) == 1);
    free_.push_back(index);
  }

  /// The number of ghosts in a line.
  [[nodiscard]] std::size_t ghosts(std::size_t line = 0) const { return lines_[line].size; }
  [[nodiscard]] std::size_t residents() const { return residents_; }
  /// The number of blocks in the tier. It is larger than residents() if blocks share a record.
  [[nodiscard]] std::size_t blocks() const { return blocks_; }
  /// How many resident records satisfy `condition`, a function of Data. Looks at every record.
  template <class Condition>
  [[nodiscard]] std::size_t count_residents(Condition&& condition) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(records_, [&](const Record& record) { return record.copies > 0 && condition(record.data); }));
  }
  [[nodiscard]] std::size_t bytes_held() const {
    constexpr std::size_t a_bucket = sizeof(std::pair<std::uint64_t, Index>) + 1;
    return records_.capacity() * sizeof(Record) + free_.capacity() * sizeof(Index) + by_id_.bucket_count() * a_bucket;
  }

  void check_invariants() const {
    std::size_t ghosts_in_all = 0;
    for (std::size_t line = 0; line < line_count; ++line) {
      std::size_t size = 0;
      Index newer = none;
      for (Index at = lines_[line].newest; at != none; at = records_[at].older) {
        TERRACE_CHECK(records_[at].line == line);
        TERRACE_CHECK(records_[at].newer == newer);
        TERRACE_CHECK(!resident(at));
        newer = at;
        ++size;
      }
      TERRACE_CHECK(lines_[line].oldest == newer);
      TERRACE_CHECK(lines_[line].size == size);
      ghosts_in_all += size;
    }
    TERRACE_CHECK(residents_ <= blocks_);
    TERRACE_CHECK(by_id_.size() == residents_ + ghosts_in_all);
    TERRACE_CHECK(by_id_.size() + free_.size() == records_.size());
    for (const auto& [id, index] : by_id_) TERRACE_CHECK(records_[index].id == id);
  }

 private:
  static constexpr std::uint8_t no_line = 0xFF;

  struct Record {
    std::uint64_t id = 0;
    Data data{};
    std::uint32_t copies = 0;  ///< how many blocks in the tier have this record
    Index older = none;
    Index newer = none;
    std::uint8_t line = no_line;
  };
  struct Line {
    Index newest = none;
    Index oldest = none;
    std::size_t size = 0;
  };

  void unlink(Index index) {
    Record& record = records_[index];
    if (record.line == no_line) return;
    Line& line = lines_[record.line];
    (record.newer == none ? line.newest : records_[record.newer].older) = record.older;
    (record.older == none ? line.oldest : records_[record.older].newer) = record.newer;
    --line.size;
    record.line = no_line;
  }

  std::vector<Record> records_;
  std::vector<Index> free_;
  boost::unordered_flat_map<std::uint64_t, Index> by_id_;
  std::array<Line, line_count> lines_{};
  std::size_t residents_ = 0;
  std::size_t blocks_ = 0;
};

/// A policy that decides by records about single blocks. `Data` has the stamp of the block's last use (`last`; 0: none).
template <class Data, std::size_t line_count = 1>
class RecordPolicy : public EvictionPolicy {
 public:
  [[nodiscard]] bool follows_blocks() const final { return true; }
  void on_inserted(const BlockRun& blocks) final {
    for (const BlockKey& key : blocks.keys) insert(records_.find_or_add(key));
  }
  /// Counts uses of blocks in the tier, once for each stamp.
  void on_used(const BlockRun& blocks, std::uint64_t stamp, std::uint32_t /*known*/) override {
    for (const BlockKey& key : blocks.keys) {
      const Index index = records_.find(key);
      if (index == Records::none || !records_.resident(index)) continue;
      Data& block = records_[index];
      if (stamp <= block.last) continue;
      use(block);
      block.last = stamp;
    }
  }
  void on_removed(const BlockRun& blocks) override {
    for (const BlockKey& key : std::views::reverse(blocks.keys)) {
      const Index index = records_.find(key);
      if (records_.leave(index)) remove(index);
    }
  }
  [[nodiscard]] std::size_t ghosts() const override { return records_.ghosts(); }
  void check_invariants() const override {
    records_.check_invariants();
    TERRACE_CHECK(candidates() <= records_.blocks());
  }

 protected:
  using Records = BlockRecords<Data, line_count>;
  using Index = typename Records::Index;

  explicit RecordPolicy(std::size_t expected) : records_{expected} {}

  /// A block comes into the tier: calls Records::enter().
  virtual void insert(Index index) = 0;
  /// A block in the tier is used. `block.last` is still that of the use before.
  virtual void use(Data& /*block*/) {}
  /// No block with this record is left in the tier.
  virtual void remove(Index index) = 0;

  Records records_;
};

}  // namespace terrace::tools
