#include "tests/crash/promises.hpp"

#include "tests/storage/blocks.hpp"

#include <algorithm>
#include <cstring>

namespace terrace::test {

Universe::Universe() {
  for (std::size_t tree = 0; tree < trees; ++tree) {
    const std::size_t first = tree * tree_blocks;
    blocks_.push_back(root_block(first + 1));
    for (std::size_t n = 1; n < tree_blocks; ++n) blocks_.push_back(child_of(blocks_[first + (n - 1) / 2], first + n + 1));
  }
  for (std::size_t n = 0; n < blocks_.size(); ++n) numbers_.emplace(blocks_[n].key, n);
}

const Universe& Universe::get() {
  static const Universe universe;
  return universe;
}

std::vector<StoredBlock> Universe::prefix_to(std::size_t number) const {
  std::vector<StoredBlock> prefix{blocks_[number]};
  while (prefix.back().depth > 0) prefix.push_back(*find(prefix.back().parent));
  std::reverse(prefix.begin(), prefix.end());
  return prefix;
}

const StoredBlock* Universe::find(const BlockKey& key) const {
  const auto found = numbers_.find(key);
  return found == numbers_.end() ? nullptr : &blocks_[found->second];
}

bool Universe::is_under(const BlockKey& key, const BlockKey& ancestor) const {
  for (const StoredBlock* block = find(key); block != nullptr; block = find(block->parent)) {
    if (block->key == ancestor) return true;
    if (block->depth == 0) break;
  }
  return false;
}

BlockKey number_as_key(std::uint64_t number) {
  BlockKey key;
  std::memcpy(key.bytes.data(), &number, sizeof number);
  return key;
}

std::uint64_t key_as_number(const BlockKey& key) {
  std::uint64_t number = 0;
  std::memcpy(&number, key.bytes.data(), sizeof number);
  return number;
}

void Promises::complain(const std::string& what, const BlockKey& key) {
  broken_.push_back(what + " " + to_hex(key).substr(0, 12));
}

void Promises::forget(const BlockKey& key) {
  for (auto* keys : {&readable_, &keeping_, &kept_}) keys->erase(key);
  gone_.insert(key);
}

void Promises::forget_keeping() {
  for (auto* keys : {&readable_, &keeping_, &kept_}) keys->clear();
}

void Promises::hear_size(const Saying& saying) {
  const std::uint64_t blocks = key_as_number(saying.key);
  switch (saying.what) {
    case Said::capacity: capacity_ = blocks; break;
    case Said::started:
      if (may_be_cut()) forget_keeping();
      left_with_ = open_ = size_ = capacity_;
      noting_ = asked_since_ = shrinking_ = 0;
      break;
    case Said::resize:
      shrinking_ = open_ > blocks ? open_ - blocks : 0;
      for (auto* most : {&open_, &left_with_, &asked_since_}) *most = std::max(*most, blocks);
      size_ = 0;
      break;
    case Said::resized:
      open_ = size_ = blocks;
      shrinking_ = 0;
      break;
    case Said::flushing:
      noting_ = size_;
      asked_since_ = 0;
      break;
    case Said::flushed:
      if (noting_ > 0) left_with_ = std::max(noting_, asked_since_);
      break;
    default: break;
  }
}

void Promises::hear(const Saying& saying) {
  hear_size(saying);
  const BlockKey& key = saying.key;
  switch (saying.what) {
    case Said::write:
      ++evictions_possible_;
      for (auto* keys : {&gone_, &going_away_, &away_}) keys->erase(key);
      break;
    case Said::remove: removing_.push_back(key); break;
    case Said::called:
      evictions_possible_ = 0;
      removing_.clear();
      break;
    case Said::written: readable_.insert(key); break;
    case Said::gone: forget(key); break;
    case Said::unreadable:
      if (kept_.contains(key)) complain("promised and not readable:", key);
      break;
    case Said::flushing:
      keeping_ = readable_;
      going_away_ = gone_;
      break;
    case Said::flushed:
      kept_ = keeping_;
      away_.insert(going_away_.begin(), going_away_.end());
      break;
    case Said::there:
      if (away_.contains(key)) complain("came back from the dead at a start:", key);
      readable_.insert(key);
      gone_.erase(key);
      break;
    case Said::absent:
      if (kept_.contains(key)) complain("promised and lost at a start:", key);
      forget(key);
      break;
    case Said::wrong:
      complain("another block's bytes were served for", key);
      wrong_ = true;
      break;
    case Said::capacity:
    case Said::started:
    case Said::resize:
    case Said::resized:
    case Said::halfway:
    case Said::done: break;
  }
}

void Promises::check(const std::set<BlockKey>& served) {
  std::vector<BlockKey> lost;
  for (const BlockKey& key : kept_) {
    const bool is_being_removed = std::any_of(removing_.begin(), removing_.end(),
                                              [&](const BlockKey& root) { return Universe::get().is_under(key, root); });
    if (!served.contains(key) && !is_being_removed && !may_be_cut()) lost.push_back(key);
  }
  // Calls that had not returned may have evicted blocks without an event, and so may a resize under way.
  if (lost.size() > evictions_possible_ + shrinking_) {
    for (const BlockKey& key : lost) complain("promised and lost:", key);
  }
  for (const BlockKey& key : away_) {
    if (served.contains(key)) complain("came back from the dead:", key);
  }
}

}  // namespace terrace::test
