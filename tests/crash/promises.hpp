#pragma once

#include "base/block_key.hpp"
#include "storage/block_store.hpp"

#include <cstddef>
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
  [[nodiscard]] std::vector<StoredBlock> path_to(std::size_t number) const;
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
  resizing = 'x',    ///< the next start gives up what it has no room for; the key begins with the number of blocks
  there = 't',       ///< after a start, which lists the universe
  absent = 'a',
  halfway = 'h',     ///< of the operation whose number the key begins with
  wrong = '!',       ///< a read has brought another block's bytes
  done = 'd',        ///< the end, as planned
};

struct Saying {
  Said what = Said::done;
  BlockKey key{};
};

/// What a store has promised of its blocks by what was said so far: what must be there after a crash at this moment, and what
/// must not. By the word of BlockStore and FileStore alone, without a look at the store.
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
  void complain(const std::string& what, const BlockKey& key);

  std::set<BlockKey> readable_;
  std::set<BlockKey> gone_;     ///< removed or evicted, and not written since
  std::set<BlockKey> keeping_;  ///< as of the beginning of the flush, less what went since
  std::set<BlockKey> leaving_;
  std::set<BlockKey> kept_;  ///< as of the beginning of the last flush that ended, less what went since
  std::set<BlockKey> away_;
  std::size_t evictions_possible_ = 0;  ///< by the calls at hand
  std::vector<BlockKey> removing_;
  bool wrong_ = false;
  std::vector<std::string> broken_;
};

}  // namespace terrace::test
