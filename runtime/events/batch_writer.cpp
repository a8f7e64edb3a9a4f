#include "runtime/events/batch_writer.hpp"

#include "runtime/events/msgpack.hpp"

#include <array>
#include <string_view>

namespace terrace::events {
namespace {

using namespace msgpack;

/// By tier.
constexpr std::array<std::string_view, tier_count> media{"GPU", "CPU", "STORAGE"};

bool same_adapter(const std::shared_ptr<const std::string>& a, const std::shared_ptr<const std::string>& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

void put_key(std::string& out, const BlockKey& key) { put_bytes(out, key.bytes); }

}  // namespace

void BatchWriter::stored(const BlockKey& key, GroupId group, Tier tier, const Description& description) {
  const bool goes_on = continues(Kind::stored, group, tier) && description.parent == keys_.back() &&
                       description.tokens.size() == block_tokens_ && same_adapter(description.adapter, adapter_);
  if (!goes_on) {
    begin(Kind::stored, group, tier);
    block_tokens_ = description.tokens.size();
    parent_ = description.parent;
    adapter_ = description.adapter;
  }
  keys_.push_back(key);
  tokens_.insert(tokens_.end(), description.tokens.begin(), description.tokens.end());
  ++size_;
}

void BatchWriter::removed(const BlockKey& key, GroupId group, Tier tier) {
  if (!continues(Kind::removed, group, tier)) begin(Kind::removed, group, tier);
  keys_.push_back(key);
  ++size_;
}

void BatchWriter::cleared() {
  end();
  put_map(events_, 1);
  put_text(events_, "type");
  put_text(events_, "AllBlocksCleared");
  ++event_count_;
  ++size_;
}

std::string BatchWriter::finish(double time) {
  end();
  std::string batch;
  batch.reserve(events_.size() + 32);
  put_array(batch, 3);
  put_double(batch, time);
  put_array(batch, event_count_);
  batch += events_;
  put_unsigned(batch, rank_);
  events_.clear();
  event_count_ = size_ = 0;
  return batch;
}

bool BatchWriter::continues(Kind kind, GroupId group, Tier tier) const {
  return kind_ == kind && group_ == group && tier_ == tier;
}

void BatchWriter::begin(Kind kind, GroupId group, Tier tier) {
  end();
  kind_ = kind;
  group_ = group;
  tier_ = tier;
}

void BatchWriter::end() {
  if (kind_ == Kind::none) return;
  const bool is_stored = kind_ == Kind::stored;
  put_map(events_, is_stored ? 9 : 4);
  put_text(events_, "type");
  put_text(events_, is_stored ? "BlockStored" : "BlockRemoved");
  put_text(events_, "block_hashes");
  put_array(events_, keys_.size());
  for (const BlockKey& key : keys_) put_key(events_, key);
  if (is_stored) {
    put_text(events_, "parent_block_hash");
    parent_ ? put_key(events_, *parent_) : put_nil(events_);
    put_text(events_, "token_ids");
    put_array(events_, tokens_.size());
    for (const TokenId token : tokens_) put_unsigned(events_, token);
    put_text(events_, "block_size");
    put_unsigned(events_, block_tokens_);
    put_text(events_, "lora_id");  // vLLM has replaced it by the name
    put_nil(events_);
    put_text(events_, "lora_name");
    adapter_ != nullptr ? put_text(events_, *adapter_) : put_nil(events_);
  }
  put_text(events_, "medium");
  put_text(events_, media[index(tier_)]);
  put_text(events_, "group_idx");
  put_unsigned(events_, group_.value());
  ++event_count_;
  kind_ = Kind::none;
  keys_.clear();
  tokens_.clear();
}

}  // namespace terrace::events
