#include "terrace/keys.hpp"

#include "base/check.hpp"
#include "radix/keys/key_message.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

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

// ---- unchained keys -----------------------------------------------------------------------------------------------------------

struct OpaqueKeys::State {
  std::vector<std::byte> key_namespace;
  KeyMessage message;
  KeyDigest digest;
};

OpaqueKeys::OpaqueKeys(std::span<const std::byte> key_namespace) : state_{std::make_unique<State>()} {
  state_->key_namespace.assign(key_namespace.begin(), key_namespace.end());
}

OpaqueKeys::~OpaqueKeys() = default;
OpaqueKeys::OpaqueKeys(OpaqueKeys&&) noexcept = default;
OpaqueKeys& OpaqueKeys::operator=(OpaqueKeys&&) noexcept = default;

BlockKey OpaqueKeys::operator()(std::span<const std::byte> name) {
  state_->message.begin_unchained(state_->key_namespace, name);
  return state_->digest(state_->message.bytes());
}

BlockKey opaque_key(std::span<const std::byte> key_namespace, std::span<const std::byte> name) {
  return OpaqueKeys{key_namespace}(name);
}

// ---- keys of groups ----------------------------------------------------------------------------------------------------------

std::uint32_t hash_unit(std::span<const std::uint32_t> block_tokens) {
  if (block_tokens.empty()) throw std::invalid_argument{"a hash unit needs at least one group"};
  std::uint32_t unit = 0;
  for (const std::uint32_t tokens : block_tokens) {
    if (tokens == 0) throw std::invalid_argument{"a group's blocks must have at least one token"};
    unit = std::gcd(unit, tokens);
  }
  return unit;
}

GroupKeys::GroupKeys(std::uint32_t unit_tokens, std::uint32_t block_tokens) {
  if (unit_tokens == 0 || block_tokens == 0 || block_tokens % unit_tokens != 0) {
    std::string text{"a group's block of "};
    text.append(std::to_string(block_tokens)).append(" tokens is not a whole number of hash units of ");
    throw std::invalid_argument{text.append(std::to_string(unit_tokens)).append(" tokens")};
  }
  units_per_block_ = block_tokens / unit_tokens;
}

const BlockKey& GroupKeys::key(std::span<const BlockKey> chain, std::size_t block) const {
  TERRACE_CHECK(block < blocks(chain.size()));
  return chain[units(block + 1) - 1];
}

}  // namespace terrace
