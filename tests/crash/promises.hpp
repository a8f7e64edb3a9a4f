#pragma once

#include "base/block_key.hpp"
#include "storage/index/block_store.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace terrace::test {

/// The blocks that a driver may write: eight trees of twenty, each block the parent of two.
class Universe {
 public:
  static constexpr std::size_t trees = 8;
  static constexpr std::size_t tree_blocks = 20;

  Universe();
  [[nodiscard]] const std::vector<StoredBlock>& blocks() const { return blocks_; }
  /// From its root to the block of this number.
  [[nodiscard]] std::vector<StoredBlock> prefix_to(std::size_t number) const;
  [[nodiscard]] const StoredBlock* find(const BlockKey& key) const;
  /// Whether the block is `ancestor` or below it.
  [[nodiscard]] bool is_under(const BlockKey& key, const BlockKey& ancestor) const;

  [[nodiscard]] static const Universe& get();

 private:
  std::vector<StoredBlock> blocks_;
  std::map<BlockKey, std::size_t> numbers_;
};

/// What a driver of a store says that it is about to do, and what it was told. One letter, for a pipe.
enum class Said : char {
  write = 'w',       ///< about to ask for it; it may cost one block its place, which is told before `called`
  remove = 'r',      ///< about to ask for it, as above
  called = 'c',      ///< the calls have returned, and their events are told
  written = 'W',     ///< readable now
  gone = 'G',        ///< removed or evicted
  unreadable = 'u',  ///< a read failed for another reason than that the block is not there
  flushing = 'f',    ///< a flush has begun
  flushed = 'F',     ///< and ended
  capacity = 'x',    ///< of the starts that follow; the key begins with the number of blocks
  started = 's',     ///< with that capacity; `there` and `absent` follow
  resize = 'z',      ///< about to ask for so many blocks; what goes by it is told before `called`, or when what holds it ends
  resized = 'Z',     ///< has come to that size, and nothing is under way
  there = 't',       ///< after a start, which lists the universe
  absent = 'a',
  halfway = 'h',  ///< of the operation whose number the key begins with
  wrong = '!',    ///< a read has brought another block's bytes
  done = 'd',     ///< the end, as planned
};

struct Saying {
  Said what = Said::done;
  BlockKey key{};
};

/// The number that a `capacity`, `resize`, `resized` or `halfway` says.
[[nodiscard]] BlockKey number_as_key(std::uint64_t number);
[[nodiscard]] std::uint64_t key_as_number(const BlockKey& key);

/// What a store has promised of its blocks by what was said so far: what must be there after a crash at this moment, and what
/// must not. By the word of BlockStore and FileStore alone, without a look at the store.
///
/// Size. A start whose capacity has fewer slots than the store may have been left with gives up any of the blocks; with as many
/// or more it keeps them all. A resize that has ended leaves the store with its size once a flush that began later has ended;
/// until then the store may have been left with that size or those before.
class Promises {
 public:
  void hear(const Saying& saying);
  /// Holds a restarted store's readable blocks against the promises.
  void check(const std::set<BlockKey>& served);

  [[nodiscard]] const std::set<BlockKey>& kept() const { return kept_; }
  [[nodiscard]] const std::set<BlockKey>& away() const { return away_; }
  [[nodiscard]] bool heard_wrong() const { return wrong_; }
  /// Promises that were broken, a sentence each.
  [[nodiscard]] const std::vector<std::string>& broken() const { return broken_; }

 private:
  void forget(const BlockKey& key);
  void forget_keeping();
  void hear_size(const Saying& saying);
  /// Whether a start with the capacity that was told last may give up blocks.
  [[nodiscard]] bool may_be_cut() const { return capacity_ < left_with_; }
  void complain(const std::string& what, const BlockKey& key);

  std::set<BlockKey> readable_;
  std::set<BlockKey> gone_;     ///< removed or evicted, and not written since
  std::set<BlockKey> keeping_;  ///< as of the beginning of the flush, less what went since
  std::set<BlockKey> going_away_;
  std::set<BlockKey> kept_;  ///< as of the beginning of the last flush that ended, less what went since
  std::set<BlockKey> away_;
  std::size_t evictions_possible_ = 0;  ///< by the calls at hand
  std::uint64_t capacity_ = 0;          ///< of the next start
  std::uint64_t left_with_ = 0;         ///< the most slots that it may find
  std::uint64_t open_ = 0;              ///< the most slots that may be open now
  std::uint64_t shrinking_ = 0;         ///< blocks that may go by a resize that has not ended
  std::uint64_t size_ = 0;              ///< that the store has come to; 0: it is on its way
  std::uint64_t noting_ = 0;            ///< size_ as of the beginning of the flush
  std::uint64_t asked_since_ = 0;       ///< the largest size that was asked for since then
  std::vector<BlockKey> removing_;
  bool wrong_ = false;
  std::vector<std::string> broken_;
};

}  // namespace terrace::test
