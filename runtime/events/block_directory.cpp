#include "runtime/events/block_directory.hpp"

#include "base/check.hpp"

#include <utility>

namespace terrace::events {

std::optional<RecordId> BlockDirectory::find(const BlockKey& key, GroupId group) const {
  const RecordId found = by_key_.find(key, [&](RecordId id) { return at(id).key == key && at(id).group == group; });
  if (found == KeyTable<RecordId>::none) return std::nullopt;
  return found;
}

std::optional<RecordId> BlockDirectory::find_or_add(const BlockKey& key, GroupId group) {
  if (const auto found = find(key, group)) return found;
  if (records_.size() >= blocks_max_) {
    if (spare_.empty()) return std::nullopt;
    forget(spare_.front());
  }
  Record record;
  record.key = key;
  record.group = group;
  const RecordId id{records_.add(std::move(record))};
  by_key_.insert(key, id);
  records_.at(id.value()).spare = spare_.insert(spare_.end(), id);
  return id;
}

void BlockDirectory::describe(RecordId id, Description description) {
  Record& record = records_.at(id.value());
  TERRACE_CHECK(!record.description.has_value());
  record.description = std::move(description);
  update(id, false);
}

void BlockDirectory::set_tiers(RecordId id, std::uint8_t tiers) {
  Record& record = records_.at(id.value());
  const bool was_published = record.is_published();
  record.tiers = tiers;
  update(id, was_published);
}

void BlockDirectory::update(RecordId id, bool was_published) {
  Record& record = records_.at(id.value());
  if (record.tiers == 0 && !record.description) return forget(id);
  const bool is_published = record.is_published();
  if (is_published == was_published) return;
  if (is_published) spare_.erase(record.spare);
  else record.spare = spare_.insert(spare_.end(), id);
}

void BlockDirectory::forget(RecordId id) {
  const Record record = records_.take(id.value());
  by_key_.erase(record.key, id);
  if (!record.is_published()) spare_.erase(record.spare);
}

void BlockDirectory::clear_tiers() {
  std::vector<RecordId> in_tiers;
  records_.for_each([&](std::uint32_t number, const Record& record) {
    if (record.tiers != 0) in_tiers.emplace_back(number);
  });
  for (const RecordId id : in_tiers) set_tiers(id, 0);
}

std::vector<RecordId> BlockDirectory::published() const {
  std::vector<RecordId> order;
  order.reserve(published_count());
  std::vector<bool> is_listed;
  std::vector<RecordId> prefix;  // blocks to be listed, each before its parent
  records_.for_each([&](std::uint32_t number, const Record&) {
    std::optional<RecordId> next{number};
    while (next && at(*next).is_published()) {
      if (is_listed.size() <= next->value()) is_listed.resize(next->value() + std::size_t{1});
      if (is_listed[next->value()]) break;
      is_listed[next->value()] = true;
      prefix.push_back(*next);
      const std::optional<BlockKey>& parent = at(*next).description->parent;
      next = parent ? find(*parent, at(*next).group) : std::nullopt;
    }
    order.insert(order.end(), prefix.rbegin(), prefix.rend());
    prefix.clear();
  });
  return order;
}

void BlockDirectory::check_invariants() const {
  std::size_t spare = 0;
  records_.for_each([&](std::uint32_t number, const Record& record) {
    TERRACE_CHECK(find(record.key, record.group) == RecordId{number});
    TERRACE_CHECK(record.tiers != 0 || record.description.has_value());
    if (record.is_published()) return;
    TERRACE_CHECK(*record.spare == RecordId{number});
    ++spare;
  });
  TERRACE_CHECK(spare == spare_.size());
  TERRACE_CHECK(records_.size() == by_key_.size());
  TERRACE_CHECK(records_.size() <= blocks_max_);
}

}  // namespace terrace::events
