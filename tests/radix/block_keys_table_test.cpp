// A table of prompts that must never share a key, however contrived they are. Each row is compared with every other row.

#include "terrace/keys.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace terrace {
namespace {

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span{text}); }

using Name = std::optional<std::string_view>;
constexpr Name none = std::nullopt;

/// Everything that the key of a block can depend on, in plain form.
struct Prompt {
  std::string_view model = "model";
  std::string_view fingerprint = "print";
  Name adapter;
  Name salt;
  std::uint64_t epoch = 0;
  std::vector<TokenId> tokens{1, 2, 3, 4};
  std::uint32_t block_tokens = 4;
  std::vector<PromptItem> items;
  std::vector<ExtraKey> extra;
  std::optional<std::string> opaque;  ///< the engine's own name for the block, instead of tokens
};

BlockKey root_of(const Prompt& p) { return root_key({bytes(p.model), bytes(p.fingerprint), p.adapter, p.salt, p.epoch}); }

/// The key of the last block of the prompt.
BlockKey key_of(const Prompt& p) {
  KeyChain chain{root_of(p), p.block_tokens};
  EXPECT_TRUE(chain.add_items(p.items));
  if (p.opaque) {
    EXPECT_TRUE(chain.append_opaque(bytes(*p.opaque), p.extra));
  } else {
    const std::size_t before = p.tokens.size() - p.block_tokens;
    chain.append(std::span{p.tokens}.first(before));
    EXPECT_TRUE(chain.append_block(std::span{p.tokens}.subspan(before), p.extra));
  }
  return chain.keys().back();
}

std::string raw(const auto& value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }
std::string raw_tokens(std::vector<TokenId> tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(TokenId)};
}
std::string field(char tag, const std::string& value) { return tag + raw(std::uint64_t{value.size()}) + value; }

constexpr std::string_view image = "\x01\x02\x03\x04\x05\x06\x07\x08-image";
constexpr std::string_view same_low_bits = "\x01\x02\x03\x04\x05\x06\x07\x08-other";
constexpr std::string_view same_high_bits = "\x09\x02\x03\x04\x05\x06\x07\x08-image";

PromptItem media(std::uint64_t offset, std::uint64_t length, std::string_view digest) {
  return {ItemKind::media, offset, length, bytes(digest)};
}
PromptItem embedding(std::uint64_t offset, std::uint64_t length, std::string_view digest) {
  return {ItemKind::prompt_embedding, offset, length, bytes(digest)};
}
ExtraKey other(std::string_view digest) { return {ExtraKind::other, bytes(digest), 0}; }

/// Memory that rows refer to.
const std::string opaque_bytes = raw_tokens({1, 2, 3, 4});
const std::string offset_then_digest = raw(std::int64_t{1}) + std::string{image};
const std::string digest_with_offset = raw(std::int64_t{0}) + std::string{image};
const std::string whole_media_field = field(32, raw(std::int64_t{0}) + std::string{image});

struct Row {
  std::string name;
  Prompt prompt;
};

std::vector<Row> table() {
  std::vector<Row> rows;
  const auto row = [&](std::string name, const std::function<void(Prompt&)>& change) {
    Row made{std::move(name), {}};
    change(made.prompt);
    rows.push_back(std::move(made));
  };
  row("nothing special", [](Prompt&) {});

  // The parts of a namespace.
  row("no model", [](Prompt& p) { p.model = ""; });
  row("no fingerprint", [](Prompt& p) { p.fingerprint = ""; });
  row("model takes the fingerprint's first byte", [](Prompt& p) { p.model = "modelp", p.fingerprint = "rint"; });
  row("fingerprint takes the model's last byte", [](Prompt& p) { p.model = "mode", p.fingerprint = "lprint"; });
  row("model and fingerprint exchanged", [](Prompt& p) { p.model = "print", p.fingerprint = "model"; });
  row("all in the model", [](Prompt& p) { p.model = "modelprint", p.fingerprint = ""; });
  row("adapter a", [](Prompt& p) { p.adapter = "a"; });
  row("adapter b", [](Prompt& p) { p.adapter = "b"; });
  row("salt named like an adapter", [](Prompt& p) { p.salt = "a"; });
  row("adapter and salt of one name", [](Prompt& p) { p.adapter = "a", p.salt = "a"; });
  row("adapter a, salt b", [](Prompt& p) { p.adapter = "a", p.salt = "b"; });
  row("adapter b, salt a", [](Prompt& p) { p.adapter = "b", p.salt = "a"; });
  row("adapter ab", [](Prompt& p) { p.adapter = "ab"; });
  row("salt ab", [](Prompt& p) { p.salt = "ab"; });
  row("empty adapter", [](Prompt& p) { p.adapter = ""; });
  row("empty salt", [](Prompt& p) { p.salt = ""; });
  row("both empty", [](Prompt& p) { p.adapter = "", p.salt = ""; });
  row("empty adapter, salt a", [](Prompt& p) { p.adapter = "", p.salt = "a"; });
  row("adapter a, empty salt", [](Prompt& p) { p.adapter = "a", p.salt = ""; });
  row("adapter with a null byte behind it", [](Prompt& p) { p.adapter = std::string_view{"a\0", 2}; });
  row("adapter in capitals", [](Prompt& p) { p.adapter = "A"; });
  static const std::string adapter_and_salt = "a" + field(4, "b");
  row("adapter that contains a salt's field", [](Prompt& p) { p.adapter = adapter_and_salt; });
  row("epoch 1", [](Prompt& p) { p.epoch = 1; });
  row("epoch 256", [](Prompt& p) { p.epoch = 256; });
  row("epoch 2^56", [](Prompt& p) { p.epoch = std::uint64_t{1} << 56; });
  row("adapter that looks like the epoch's field", [](Prompt& p) {
    static const std::string text = raw(std::uint64_t{1});
    p.adapter = text;
  });

  // Tokens.
  row("another first token", [](Prompt& p) { p.tokens[0] = 9; });
  row("another last token", [](Prompt& p) { p.tokens[3] = 9; });
  row("two tokens exchanged", [](Prompt& p) { p.tokens = {2, 1, 3, 4}; });
  row("a token with another high byte", [](Prompt& p) { p.tokens[0] = 0x0100'0001; });
  row("tokens shifted by a byte", [](Prompt& p) { p.tokens = {1 << 8, 2 << 8, 3 << 8, 4 << 8}; });
  row("the same tokens in blocks of 2", [](Prompt& p) { p.block_tokens = 2; });
  row("its first block of 2", [](Prompt& p) { p.block_tokens = 2, p.tokens = {1, 2}; });
  row("a block of 2 of the later tokens", [](Prompt& p) { p.block_tokens = 2, p.tokens = {3, 4}; });
  row("the same block behind another", [](Prompt& p) { p.tokens = {7, 7, 7, 7, 1, 2, 3, 4}; });
  row("the same block behind itself", [](Prompt& p) { p.tokens = {1, 2, 3, 4, 1, 2, 3, 4}; });

  // Media.
  row("image", [](Prompt& p) { p.items = {media(0, 1, image)}; });
  row("image that shares its low bits", [](Prompt& p) { p.items = {media(0, 1, same_low_bits)}; });
  row("image that shares all but its low bits", [](Prompt& p) { p.items = {media(0, 1, same_high_bits)}; });
  row("image whose digest is cut", [](Prompt& p) { p.items = {media(0, 1, image.substr(0, 8))}; });
  row("image whose digest is cut more", [](Prompt& p) { p.items = {media(0, 1, image.substr(0, 1))}; });
  row("image one token later", [](Prompt& p) { p.items = {media(1, 1, image)}; });
  row("image whose digest begins with an offset", [](Prompt& p) { p.items = {media(0, 1, offset_then_digest)}; });
  row("image whose digest begins with its offset", [](Prompt& p) { p.items = {media(0, 1, digest_with_offset)}; });
  row("image twice", [](Prompt& p) { p.items = {media(0, 1, image), media(1, 1, image)}; });
  row("image twice in one place", [](Prompt& p) { p.items = {media(0, 1, image), media(0, 1, image)}; });
  row("two images", [](Prompt& p) { p.items = {media(0, 1, image), media(1, 1, same_low_bits)}; });
  row("two images exchanged", [](Prompt& p) { p.items = {media(0, 1, same_low_bits), media(1, 1, image)}; });
  static const std::string joined = std::string{image} + std::string{same_low_bits};
  row("two images' digests in one", [](Prompt& p) { p.items = {media(0, 1, joined)}; });
  static const std::string contains = std::string{image} + field(32, raw(std::int64_t{1}) + std::string{same_low_bits});
  row("image that contains another's field", [](Prompt& p) { p.items = {media(0, 1, contains)}; });
  const std::vector<TokenId> two_blocks{5, 6, 7, 8, 1, 2, 3, 4};
  row("two blocks", [&](Prompt& p) { p.tokens = two_blocks; });
  row("image that ends before the block", [&](Prompt& p) { p.tokens = two_blocks, p.items = {media(2, 2, image)}; });
  row("image that began 1 token before", [&](Prompt& p) { p.tokens = two_blocks, p.items = {media(3, 2, image)}; });
  row("image that began 2 tokens before", [&](Prompt& p) { p.tokens = two_blocks, p.items = {media(2, 3, image)}; });
  row("image that begins with the block", [&](Prompt& p) { p.tokens = two_blocks, p.items = {media(4, 1, image)}; });
  row("image that begins 1 token later", [&](Prompt& p) { p.tokens = two_blocks, p.items = {media(5, 1, image)}; });

  // Prompt embeddings.
  row("embeddings", [](Prompt& p) { p.items = {embedding(0, 1, image)}; });
  row("embeddings that share low bits", [](Prompt& p) { p.items = {embedding(0, 1, same_low_bits)}; });
  row("embeddings one token later", [](Prompt& p) { p.items = {embedding(1, 1, image)}; });
  row("embeddings that began before", [&](Prompt& p) { p.tokens = two_blocks, p.items = {embedding(3, 2, image)}; });
  row("embeddings and image", [](Prompt& p) { p.items = {embedding(0, 1, image), media(1, 1, image)}; });
  row("image and embeddings", [](Prompt& p) { p.items = {media(0, 1, image), embedding(1, 1, image)}; });
  row("image and embeddings in one place", [](Prompt& p) { p.items = {media(0, 1, image), embedding(0, 1, image)}; });
  row("embedding of the block", [](Prompt& p) { p.extra = {{ExtraKind::prompt_embedding, bytes(image), 0}}; });
  row("embedding of the block, digest with an offset", [](Prompt& p) {
    p.extra = {{ExtraKind::prompt_embedding, bytes(digest_with_offset), 0}};
  });
  row("empty embedding of the block", [](Prompt& p) { p.extra = {{ExtraKind::prompt_embedding, {}, 0}}; });

  // Extra values from the engine.
  row("a word", [](Prompt& p) { p.extra = {other(image)}; });
  row("a word with an offset", [](Prompt& p) { p.extra = {other(digest_with_offset)}; });
  row("an empty word", [](Prompt& p) { p.extra = {other("")}; });
  row("two empty words", [](Prompt& p) { p.extra = {other(""), other("")}; });
  row("two words", [](Prompt& p) { p.extra = {other("ab"), other("c")}; });
  row("two words with the boundary shifted", [](Prompt& p) { p.extra = {other("a"), other("bc")}; });
  row("two words exchanged", [](Prompt& p) { p.extra = {other("c"), other("ab")}; });
  row("two words in one", [](Prompt& p) { p.extra = {other("abc")}; });
  row("a word that is an image's whole field", [](Prompt& p) { p.extra = {other(whole_media_field)}; });

  // One field placed inside another, as it would look if keys did not include lengths.
  static const std::string no_length(8, '\0');
  static const std::string two_words_in_one = "ab" + (static_cast<char>(34) + no_length) + "c";
  row("a word that holds another without its length", [](Prompt& p) { p.extra = {other(two_words_in_one)}; });
  static const std::string model_and_print = "model" + (static_cast<char>(2) + no_length) + "print";
  row("model that holds the fingerprint without its length", [](Prompt& p) { p.model = model_and_print, p.fingerprint = ""; });
  static const std::string print_and_adapter = "print" + (static_cast<char>(3) + no_length) + "a";
  row("fingerprint that holds an adapter without its length", [](Prompt& p) { p.fingerprint = print_and_adapter; });

  // Block names from the engine.
  row("name of the tokens' bytes", [](Prompt& p) { p.opaque = opaque_bytes; });
  row("name of a whole token field", [](Prompt& p) { p.opaque = field(17, opaque_bytes); });
  row("empty name", [](Prompt& p) { p.opaque = ""; });
  row("name with an image", [](Prompt& p) { p.opaque = opaque_bytes, p.items = {media(0, 1, image)}; });
  row("name with the image's field in it", [](Prompt& p) { p.opaque = opaque_bytes + whole_media_field; });
  row("name of a key's bytes", [](Prompt& p) { p.opaque = raw(key_of(Prompt{}).bytes); });
  row("name of the root's bytes", [](Prompt& p) { p.opaque = raw(root_of(Prompt{}).bytes); });
  row("name with an adapter", [](Prompt& p) { p.opaque = opaque_bytes, p.adapter = "a"; });
  return rows;
}

TEST(BlockKeysTable, no_two_rows_share_a_key) {
  std::map<BlockKey, std::string> seen;
  for (const Row& row : table()) {
    const BlockKey key = key_of(row.prompt);
    EXPECT_EQ(key, key_of(row.prompt)) << row.name;
    const auto [at, is_new] = seen.emplace(key, row.name);
    EXPECT_TRUE(is_new) << "\"" << row.name << "\" has the key of \"" << at->second << "\"";
    // A root is a key too, and the parent of first blocks. It must differ from every block's key.
    const auto [root_at, _] = seen.emplace(root_of(row.prompt), "a root");
    EXPECT_EQ(root_at->second, "a root") << "a root has the key of \"" << root_at->second << "\"";
  }
}

/// The opposite promise: the same prompt, described differently, has the same key.
TEST(BlockKeysTable, the_same_prompt_said_differently_has_the_same_key) {
  Prompt one;
  one.items = {media(0, 2, image), media(1, 1, same_low_bits)};
  Prompt exchanged = one;
  std::swap(exchanged.items[0], exchanged.items[1]);
  EXPECT_EQ(key_of(one), key_of(exchanged));

  Prompt by_hand;
  by_hand.extra = {{ExtraKind::media, bytes(image), 0}, {ExtraKind::media, bytes(same_low_bits), 1}};
  EXPECT_EQ(key_of(one), key_of(by_hand));

  Prompt elsewhere = one;
  elsewhere.items.push_back(media(4, 10, "behind the block"));
  EXPECT_EQ(key_of(one), key_of(elsewhere));
}

}  // namespace
}  // namespace terrace
