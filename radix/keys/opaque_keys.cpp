#include "terrace/keys.hpp"

#include "radix/keys/key_message.hpp"

#include <vector>

namespace terrace {

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

}  // namespace terrace
