#include "lab/benches.hpp"

#include "base/check.hpp"
#include "lab/rounds.hpp"
#include "radix/keys/key_message.hpp"
#include "terrace/keys.hpp"
#include "tools/output.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <memory>
#include <stdexcept>
#include <utility>

namespace terrace::tools {
namespace {

using Prompt = std::vector<TokenId>;

/// OpenSSL digests, called as its manual recommends: the algorithm is fetched once, and the context is kept.
class Digests {
 public:
  Digests() : algorithm_{EVP_MD_fetch(nullptr, "SHA256", nullptr), EVP_MD_free}, context_{EVP_MD_CTX_new(), EVP_MD_CTX_free} {}

  BlockKey operator()(std::span<const std::byte> message) {
    BlockKey key;
    unsigned size = 0;
    const bool made = EVP_DigestInit_ex2(context_.get(), algorithm_.get(), nullptr) == 1 &&
                      EVP_DigestUpdate(context_.get(), message.data(), message.size()) == 1 &&
                      EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(key.bytes.data()), &size) == 1;
    TERRACE_CHECK(made);
    return key;
  }

 private:
  std::unique_ptr<EVP_MD, decltype(&EVP_MD_free)> algorithm_;
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

/// The messages that are digested for all blocks of all prompts, one after the other.
struct Messages {
  std::size_t message_bytes = 0;
  std::vector<std::byte> bytes;
  std::vector<BlockKey> last_keys;  ///< one for each prompt

  [[nodiscard]] std::size_t count() const { return bytes.size() / message_bytes; }
  [[nodiscard]] std::span<const std::byte> operator[](std::size_t i) const {
    return std::span{bytes}.subspan(i * message_bytes, message_bytes);
  }
};

Messages messages_of(const std::vector<Prompt>& prompts, std::uint32_t block_tokens) {
  Messages all;
  KeyMessage message;
  Digests digest;
  for (const Prompt& prompt : prompts) {
    BlockKey parent;
    for (std::size_t at = 0; at + block_tokens <= prompt.size(); at += block_tokens) {
      message.begin_block(parent, std::span{prompt}.subspan(at, block_tokens));
      parent = digest(message.bytes());
      all.message_bytes = message.bytes().size();
      all.bytes.insert(all.bytes.end(), message.bytes().begin(), message.bytes().end());
    }
    all.last_keys.push_back(parent);
  }
  return all;
}

/// Times are for one whole block.
Row measure(const std::vector<Prompt>& prompts, std::uint32_t block_tokens, unsigned rounds) {
  const Messages messages = messages_of(prompts, block_tokens);
  std::vector<BlockKey> keys(messages.count());
  Digests digest;
  Figures figures;
  for (unsigned round = 0; round <= rounds; ++round) {
    const double digest_time = 1e9 * seconds_of([&] {
                                 for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = digest(messages[i]);
                               });
    std::vector<KeyChain> chains;
    for (std::size_t i = 0; i < prompts.size(); ++i) chains.emplace_back(BlockKey{}, block_tokens);
    const double append_time = 1e9 * seconds_of([&] {
                                 for (std::size_t i = 0; i < prompts.size(); ++i) chains[i].append(prompts[i]);
                               });
    for (std::size_t i = 0; i < chains.size(); ++i) TERRACE_CHECK(chains[i].keys().back() == messages.last_keys[i]);
    if (round == 0) continue;  // the first round only warms up
    const auto blocks = static_cast<double>(keys.size());
    figures.add("digest_ns", digest_time / blocks);
    figures.add("append_ns", append_time / blocks);
  }
  Row row{{"block_tokens", block_tokens}, {"message_bytes", messages.message_bytes}};
  figures.add_medians(row);
  row["append_ratio"] = figures.median("append_ns") / figures.median("digest_ns");
  return row;
}

constexpr Column key_columns[] = {{"block_tokens", "block tokens", 12},
                                  {"message_bytes", "message", 9},
                                  {"digest_ns", "digest", 10, 1},
                                  {"append_ns", "append", 10, 1},
                                  {"append_ratio", "ratio", 8, 2}};

}  // namespace

Row bench_keys(const KeysBenchOptions& options) {
  if (options.block_tokens.empty() || options.prompts == 0 || options.rounds == 0)
    throw std::invalid_argument{"at least 1 size of block, 1 prompt and 1 round are needed"};
  for (const std::uint32_t tokens : options.block_tokens) {
    if (tokens == 0 || tokens > options.prompt_tokens) {
      throw std::invalid_argument{fmt::format("a prompt of {} tokens has no full block of {}", options.prompt_tokens, tokens)};
    }
  }
  const std::vector<Prompt> prompts = random_prompts(1, options.prompts, options.prompt_tokens);
  boost::json::array rows;
  print("{} prompts of {} tokens; nanoseconds a block, medians of {} rounds\n", options.prompts, options.prompt_tokens,
        options.rounds);
  print_head(key_columns);
  for (const std::uint32_t block_tokens : options.block_tokens) {
    add_row(rows, key_columns, measure(prompts, block_tokens, options.rounds));
  }
  return {{"prompts", options.prompts},
          {"prompt_tokens", options.prompt_tokens},
          {"rounds", options.rounds},
          {"keys", std::move(rows)}};
}

}  // namespace terrace::tools
