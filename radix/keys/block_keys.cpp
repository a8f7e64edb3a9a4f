#include "terrace/keys.hpp"

#include "base/check.hpp"
#include "radix/keys/key_message.hpp"

#include <algorithm>

namespace terrace {

/// The buffers with which a chain makes its keys.
struct KeyChain::Scratch {
  KeyMessage message;
  KeyDigest digest;
};

BlockKey root_key(const RootFields& fields) {
  KeyMessage message;
  message.begin_root(fields);
  return KeyDigest{}(message.bytes());
}

KeyChain::KeyChain(const BlockKey& root, std::uint32_t block_tokens)
    : root_{root}, block_tokens_{block_tokens}, scratch_{std::make_unique<Scratch>()} {
  TERRACE_CHECK(block_tokens > 0);
}

KeyChain::~KeyChain() = default;
KeyChain::KeyChain(KeyChain&&) noexcept = default;
KeyChain& KeyChain::operator=(KeyChain&&) noexcept = default;

void KeyChain::append(std::span<const TokenId> tokens) {
  reserve_keys(tokens.size());
  while (compose_next(tokens)) add_key();
}

Result<void> KeyChain::append_block(std::span<const TokenId> tokens, std::span<const ExtraKey> extra) {
  if (!waiting_.empty() || tokens.size() != block_tokens_) return Errc::invalid_argument;
  scratch_->message.begin_block(tip(), tokens);
  compose_extras(extra);
  add_key();
  return {};
}

Result<void> KeyChain::append_opaque(std::span<const std::byte> name, std::span<const ExtraKey> extra) {
  if (!waiting_.empty()) return Errc::invalid_argument;
  scratch_->message.begin_opaque(tip(), name);
  compose_extras(extra);
  add_key();
  return {};
}

void KeyChain::reserve_keys(std::size_t tokens) {
  const std::size_t needed = keys_.size() + (waiting_.size() + tokens) / block_tokens_;
  // Reserve at least twice the old capacity, so that a chain that grows in small steps does not copy all its keys each time.
  if (needed > keys_.capacity()) keys_.reserve(std::max(needed, 2 * keys_.capacity()));
}

bool KeyChain::compose_next(std::span<const TokenId>& tokens) {
  if (waiting_.size() + tokens.size() < block_tokens_) {
    waiting_.insert(waiting_.end(), tokens.begin(), tokens.end());
    tokens = {};
    return false;
  }
  const std::size_t taken = block_tokens_ - waiting_.size();
  if (waiting_.empty()) {
    scratch_->message.begin_block(tip(), tokens.first(taken));
  } else {
    waiting_.insert(waiting_.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(taken));
    scratch_->message.begin_block(tip(), waiting_);
    waiting_.clear();
  }
  tokens = tokens.subspan(taken);
  compose_extras({});
  return true;
}

void KeyChain::compose_extras(std::span<const ExtraKey> extra) {
  scratch_->message.add_extras(items_.next_block(block_tokens_));
  scratch_->message.add_extras(extra);
}

void KeyChain::add_key() { keys_.push_back(scratch_->digest(scratch_->message.bytes())); }

}  // namespace terrace
