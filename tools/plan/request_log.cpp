#include "tools/plan/request_log.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace terrace::tools {
namespace {

constexpr std::size_t numbers_max = std::numeric_limits<std::uint32_t>::max();

}  // namespace

void RequestLog::add(const TraceRequest& request) {
  if (requests_.size() == numbers_max) throw std::length_error{"the workload has too many requests"};
  const std::uint32_t full = request.input_tokens / block_tokens_;
  TERRACE_CHECK(request.hash_ids.size() >= full);
  Request added{.blocks = full, .output_tokens = request.output_tokens};
  for (const BlockKey& key : keys_.keys(std::span{request.hash_ids}.first(full))) {
    if (blocks_.size() == numbers_max) throw std::length_error{"the workload has too many different blocks"};
    const auto [at, is_new] = numbers_.try_emplace(key, different_blocks());
    if (is_new) blocks_.push_back({key, added.last});
    added.last = at->second;
  }
  if (requests_.empty()) earliest_ms_ = latest_ms_ = request.timestamp_ms;
  earliest_ms_ = std::min(earliest_ms_, request.timestamp_ms);
  latest_ms_ = std::max(latest_ms_, request.timestamp_ms);
  requests_.push_back(added);
  total_blocks_ += full;
  tokens_ += request.input_tokens;
  longest_ = std::max(longest_, full);
}

std::uint64_t RequestLog::blocks_within(std::uint64_t capacity) const {
  if (capacity >= longest_) return total_blocks_;
  std::uint64_t within = 0;
  for (const Request& request : requests_) within += std::min<std::uint64_t>(request.blocks, capacity);
  return within;
}

void RequestLog::read(const Request& request, std::vector<BlockNumber>& into) const {
  into.resize(request.blocks);
  BlockNumber block = request.last;
  for (std::size_t depth = request.blocks; depth-- > 0;) {
    into[depth] = block;
    block = blocks_[block].previous;
  }
}

}  // namespace terrace::tools
