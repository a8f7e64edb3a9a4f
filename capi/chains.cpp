#include "capi/cache.hpp"
#include "capi/keys.hpp"
#include "capi/status.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace terrace::capi {
namespace {

static_assert(static_cast<int>(ItemKind::media) == TERRACE_ITEM_MEDIA);
static_assert(static_cast<int>(ItemKind::prompt_embedding) == TERRACE_ITEM_PROMPT_EMBEDDING);

std::span<const std::byte> bytes_of(const void* bytes, std::size_t size, const char* name) {
  if (size > 0) need(bytes, name);
  return {static_cast<const std::byte*>(bytes), size};
}

std::optional<std::string_view> text_of(const char* text) {
  return text == nullptr ? std::nullopt : std::optional<std::string_view>{text};
}

/// Makes a call with the keys of a chain.
template <class Call>
terrace_status on_chain(const terrace_chain* chain, std::string_view function, const Call& call) {
  return guarded(function, [&] {
    need(chain, "chain");
    return call(*chain->shared);
  });
}

}  // namespace
}  // namespace terrace::capi

using namespace terrace::capi;

terrace_status terrace_chain_make(const terrace_root* root, uint32_t block_tokens, terrace_chain** out) {
  return guarded(__func__, [&] {
    need(out, "out");
    *out = nullptr;
    const terrace_root given = read_struct("root", root);
    if (block_tokens == 0) throw std::invalid_argument{"block_tokens is 0, must be at least 1"};
    const terrace::BlockKey key =
        terrace::root_key({.model_digest = bytes_of(given.model_digest, given.model_digest_bytes, "root->model_digest"),
                           .fingerprint = bytes_of(given.fingerprint, given.fingerprint_bytes, "root->fingerprint"),
                           .adapter = text_of(given.adapter),
                           .tenant_salt = text_of(given.tenant_salt),
                           .weight_epoch = given.weight_epoch});
    *out = new terrace_chain{std::make_shared<terrace_chain::Keys>(terrace::KeyChain{key, block_tokens})};
  });
}

void terrace_chain_destroy(terrace_chain* chain) { delete chain; }

terrace_status terrace_chain_add_items(terrace_chain* chain, const terrace_item* items, size_t count) {
  return on_chain(chain, __func__, [&](terrace_chain::Keys& to) {
    if (count > 0) need(items, "items");
    std::vector<terrace::PromptItem> added;
    for (const terrace_item& item : std::span{items, count}) {
      if (item.kind > TERRACE_ITEM_PROMPT_EMBEDDING) {
        throw std::invalid_argument{"the kind of an item is " + std::to_string(item.kind) + ", must be a TERRACE_ITEM_ number"};
      }
      added.push_back({static_cast<terrace::ItemKind>(item.kind), item.offset, item.length,
                       bytes_of(item.digest, item.digest_bytes, "the digest of an item")});
    }
    return to.keys.add_items(added);
  });
}

terrace_status terrace_chain_append(terrace_chain* chain, const uint32_t* tokens, size_t count) {
  return on_chain(chain, __func__, [&](terrace_chain::Keys& to) {
    if (count > 0) need(tokens, "tokens");
    to.keys.append({tokens, count});
  });
}

terrace_status terrace_chain_keys(const terrace_chain* chain, const terrace_key** keys, size_t* count) {
  return on_chain(chain, __func__, [&](const terrace_chain::Keys& of) {
    need(keys, "keys");
    need(count, "count");
    *keys = reinterpret_cast<const terrace_key*>(of.keys.keys().data());
    *count = of.keys.keys().size();
  });
}

uint64_t terrace_chain_tokens(const terrace_chain* chain) { return chain == nullptr ? 0 : chain->shared->tokens(); }

uint64_t terrace_chain_tenant(const terrace_chain* chain) { return chain == nullptr ? 0 : chain->shared->tenant().value(); }

terrace_status terrace_chain_before_media(const terrace_chain* chain, uint32_t blocks, uint32_t* shorter) {
  return on_chain(chain, __func__, [&](const terrace_chain::Keys& of) {
    need(shorter, "shorter");
    *shorter = blocks;
    while (const auto across = of.keys.media_across(*shorter))
      *shorter = static_cast<uint32_t>(across->offset / of.keys.block_tokens());
  });
}

terrace_status terrace_chain_media_across(const terrace_chain* chain, uint32_t blocks, terrace_item* item) {
  return on_chain(chain, __func__, [&](const terrace_chain::Keys& of) {
    need(item, "item");
    const terrace::PromptItem across = of.keys.media_across(blocks).value_or(terrace::PromptItem{});
    *item = {across.offset, across.length, across.digest.data(), across.digest.size(), TERRACE_ITEM_MEDIA, 0};
  });
}
