#pragma once

#include "terrace/keys.hpp"
#include "tools/plan/request_log.hpp"

#include <boost/random/mersenne_twister.hpp>
#include <boost/random/uniform_int_distribution.hpp>

#include <cstdint>
#include <vector>

namespace terrace::test {

/// The hash ids of one prompt's full blocks.
using Prompt = std::vector<std::uint64_t>;
using Prompts = std::vector<Prompt>;

inline constexpr std::uint32_t log_block_tokens = 10;

/// Requests with these full blocks and no further tokens. One comes each second.
inline tools::RequestLog log_of(const Prompts& prompts) {
  tools::RequestLog log{root_key({}), log_block_tokens};
  double now_ms = 0;
  for (const Prompt& prompt : prompts) {
    log.add({.timestamp_ms = now_ms,
             .input_tokens = static_cast<std::uint32_t>(prompt.size()) * log_block_tokens,
             .output_tokens = 1,
             .hash_ids = prompt,
             .output_ids = {}});
    now_ms += 1000;
  }
  return log;
}

/// Prompts that share prefixes, because each block has one of few ids. Some prompts are empty.
inline Prompts random_prompts(std::uint64_t seed, std::size_t count, std::size_t longest, std::uint64_t ids) {
  boost::random::mt19937_64 random{seed};
  Prompts prompts(count);
  for (Prompt& prompt : prompts) {
    prompt.resize(boost::random::uniform_int_distribution<std::size_t>{0, longest}(random));
    for (std::uint64_t& id : prompt) id = boost::random::uniform_int_distribution<std::uint64_t>{1, ids}(random);
  }
  return prompts;
}

inline bool always() { return true; }

}  // namespace terrace::test
