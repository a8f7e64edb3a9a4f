#pragma once

#include "terrace/block_store.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace terrace::test {

/// The blocks that a driver can write: eight trees of twenty blocks. Each block is the parent of two others.
class Universe {
 public:
  static constexpr std::size_t trees = 8;
  static constexpr std::size_t tree_blocks = 20;

  Universe();
  [[nodiscard]] const std::vector<StoredBlock>& blocks() const { return blocks_; }
  /// The blocks from the root to the block with this number.
  [[nodiscard]] std::vector<StoredBlock> prefix_to(std::size_t number) const;
  [[nodiscard]] const StoredBlock* find(const BlockKey& key) const;
  /// True if the block is `ancestor` or one of its descendants.
  [[nodiscard]] bool is_under(const BlockKey& key, const BlockKey& ancestor) const;

  [[nodiscard]] static const Universe& get();

 private:
  std::vector<StoredBlock> blocks_;
  std::map<BlockKey, std::size_t> numbers_;
};

/// Messages of a driver: what it is about to do, and what the store told it. Each is one letter, for a pipe.
enum class Said : char {
  write = 'w',       ///< before the call; the write may evict one block, which is reported before `called`
  remove = 'r',      ///< before the call, as with `write`
  called = 'c',      ///< the calls have returned, and their events have been reported
  written = 'W',     ///< the block is readable
  gone = 'G',        ///< the block was removed or evicted
  unreadable = 'u',  ///< a read failed, and not because the block was absent
  flushing = 'f',    ///< a flush has started
  flushed = 'F',     ///< the flush has ended
  capacity = 'x',    ///< capacity of the following starts; the key begins with the number of blocks
  started = 's',     ///< the store has started with that capacity; `there` and `absent` follow
  /// before a resize to this many blocks; dropped blocks are reported before `called` or when they are no longer held
  resize = 'z',
  resized = 'Z',  ///< the store has reached that size, and nothing is under way
  there = 't',    ///< after a start: the block is listed
  absent = 'a',
  halfway = 'h',  ///< in the middle of the operation whose number the key begins with
  wrong = '!',    ///< a read returned the bytes of another block
  done = 'd',     ///< the planned end
};

struct Saying {
  Said what = Said::done;
  BlockKey key{};
};

/// The number of a `capacity`, `resize`, `resized` or `halfway` message.
[[nodiscard]] BlockKey number_as_key(std::uint64_t number);
[[nodiscard]] std::uint64_t key_as_number(const BlockKey& key);

/// The promises of a store about its blocks, derived from the messages so far: which blocks must be there after a crash at this
/// moment, and which must not. It follows the contracts of BlockStore and FileStore, and does not look at the store.
///
/// Size: a start with fewer slots than the store may have been left with can drop any block. A start with at least as many slots
/// keeps all blocks. After a resize has ended, the store is left with the new size as soon as a flush that began later has ended.
/// Until then it may have been left with that size or with an earlier one.
class Promises {
 public:
  void hear(const Saying& saying);
  /// Compares the readable blocks of a restarted store with the promises.
  void check(const std::set<BlockKey>& served);

  [[nodiscard]] const std::set<BlockKey>& kept() const { return kept_; }
  [[nodiscard]] const std::set<BlockKey>& away() const { return away_; }
  [[nodiscard]] bool heard_wrong() const { return wrong_; }
  /// Broken promises, one sentence each.
  [[nodiscard]] const std::vector<std::string>& broken() const { return broken_; }

 private:
  void forget(const BlockKey& key);
  void forget_keeping();
  void hear_size(const Saying& saying);
  /// True if a start with the last capacity may drop blocks.
  [[nodiscard]] bool may_be_cut() const { return capacity_ < left_with_; }
  void complain(const std::string& what, const BlockKey& key);

  std::set<BlockKey> readable_;
  std::set<BlockKey> gone_;     ///< removed or evicted, and not written since then
  std::set<BlockKey> keeping_;  ///< readable when the flush began, without the blocks that were dropped since then
  std::set<BlockKey> going_away_;
  std::set<BlockKey> kept_;  ///< as `keeping_` of the last flush that ended
  std::set<BlockKey> away_;
  std::size_t evictions_possible_ = 0;  ///< by the calls that have not returned
  std::uint64_t capacity_ = 0;          ///< of the next start
  std::uint64_t left_with_ = 0;         ///< the most slots that the next start can find
  std::uint64_t open_ = 0;              ///< the most slots that can be open now
  std::uint64_t shrinking_ = 0;         ///< blocks that a resize under way may drop
  std::uint64_t size_ = 0;              ///< size that the store has reached; 0: a resize is under way
  std::uint64_t noting_ = 0;            ///< size_ when the flush began
  std::uint64_t asked_since_ = 0;       ///< the largest size that was requested since then
  std::vector<BlockKey> removing_;
  bool wrong_ = false;
  std::vector<std::string> broken_;
};

}  // namespace terrace::test
