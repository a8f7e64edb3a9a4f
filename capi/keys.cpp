#include "capi/keys.hpp"

#include "capi/status.hpp"
#include "terrace/keys.hpp"

#include <algorithm>
#include <stdexcept>

namespace terrace::capi {
namespace {

std::span<const std::byte> bytes_of(const void* bytes, std::size_t size) { return {static_cast<const std::byte*>(bytes), size}; }

/// Calls `each` with every name.
template <class Each>
void for_each_name(const terrace_names& names, const Each& each) {
  const auto* at = static_cast<const std::byte*>(names.bytes);
  for (std::uint32_t i = 0; i < names.count; ++i) {
    const std::uint32_t size = names.lengths == nullptr ? names.length : names.lengths[i];
    each(i, bytes_of(at, size));
    at += size;
  }
}

/// Returns the key before the first block of a prefix.
BlockKey before_first(const void* key_namespace, std::size_t namespace_bytes, const terrace_key* parent) {
  return parent != nullptr ? key_of(*parent) : root_key({.model_digest = bytes_of(key_namespace, namespace_bytes)});
}

void check_namespace(const void* key_namespace, std::size_t namespace_bytes) {
  if (namespace_bytes > 0) need(key_namespace, "key_namespace");
}

void check_names(const void* key_namespace, std::size_t namespace_bytes, const terrace_names* names, const terrace_key* out) {
  need(names, "names");
  check_namespace(key_namespace, namespace_bytes);
  if (names->count == 0) return;
  need(out, "out");
  if (names->lengths != nullptr || names->length > 0) need(names->bytes, "names->bytes");
}

}  // namespace
}  // namespace terrace::capi

using namespace terrace::capi;

terrace_status terrace_keys_of_names(const void* key_namespace, size_t namespace_bytes, const terrace_names* names,
                                     terrace_key* out) {
  return guarded(__func__, [&] {
    check_names(key_namespace, namespace_bytes, names, out);
    terrace::OpaqueKeys key{bytes_of(key_namespace, namespace_bytes)};
    for_each_name(*names, [&](std::uint32_t i, std::span<const std::byte> name) { out[i] = key_to_c(key(name)); });
  });
}

terrace_status terrace_keys_of_prefix(const void* key_namespace, size_t namespace_bytes, const terrace_key* parent,
                                      const terrace_names* names, terrace_key* out) {
  return guarded(__func__, [&] {
    check_names(key_namespace, namespace_bytes, names, out);
    terrace::KeyChain chain{before_first(key_namespace, namespace_bytes, parent), 1};
    terrace::Result<void> added;
    for_each_name(*names, [&](std::uint32_t, std::span<const std::byte> name) {
      if (added) added = chain.append_opaque(name);
    });
    if (added) std::ranges::transform(chain.keys(), out, key_to_c);
    return added;
  });
}

terrace_status terrace_keys_of_tokens(const void* key_namespace, size_t namespace_bytes, const terrace_key* parent,
                                      const uint32_t* tokens, size_t count, uint32_t block_tokens, terrace_key* out) {
  return guarded(__func__, [&] {
    check_namespace(key_namespace, namespace_bytes);
    if (count > 0) need(tokens, "tokens");
    if (block_tokens == 0) throw std::invalid_argument{"block_tokens is 0, must be at least 1"};
    if (count < block_tokens) return;
    need(out, "out");
    terrace::KeyChain chain{before_first(key_namespace, namespace_bytes, parent), block_tokens};
    chain.append({tokens, count / block_tokens * block_tokens});
    std::ranges::transform(chain.keys(), out, key_to_c);
  });
}
