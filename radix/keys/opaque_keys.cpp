#include "terrace/opaque_keys.hpp"

#include "radix/keys/key_message.hpp"

#include <vector>

namespace terrace {

struct OpaqueKeys::State {
  std::vector<std::byte> name_space;
  KeyMessage message;
  KeyDigest digest;
};

OpaqueKeys::OpaqueKeys(std::span<const std::byte> name_space) : state_{std::make_unique<State>()} {
  state_->name_space.assign(name_space.begin(), name_space.end());
}

OpaqueKeys::~OpaqueKeys() = default;
OpaqueKeys::OpaqueKeys(OpaqueKeys&&) noexcept = default;
OpaqueKeys& OpaqueKeys::operator=(OpaqueKeys&&) noexcept = default;

BlockKey OpaqueKeys::operator()(std::span<const std::byte> name) {
  state_->message.begin_unchained(state_->name_space, name);
  return state_->digest(state_->message.bytes());
}

BlockKey opaque_key(std::span<const std::byte> name_space, std::span<const std::byte> name) {
  return OpaqueKeys{name_space}(name);
}

}  // namespace terrace
