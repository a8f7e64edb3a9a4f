#include "tools/replay/session.hpp"

#include "radix/block_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string_view>
#include <utility>

namespace terrace::tools {
namespace {

constexpr std::string_view model_name = "terrace-replay";

BlockKey replay_root(const ReplayOptions& options) {
  const BlockKey fingerprint = replay_fingerprint(options);
  return root_key({.model_digest = std::as_bytes(std::span{model_name}),
                   .fingerprint = fingerprint.bytes,
                   .adapter = std::nullopt,
                   .tenant_salt = std::nullopt,
                   .weight_epoch = 0});
}

}  // namespace

BlockKey replay_fingerprint(const ReplayOptions& options) {
  const std::string geometry = fmt::format("content 1, {} tokens, {} bytes", options.block_tokens, count(options.block_bytes));
  return root_key({.model_digest = std::as_bytes(std::span{model_name}),
                   .fingerprint = std::as_bytes(std::span{geometry}),
                   .adapter = std::nullopt,
                   .tenant_salt = std::nullopt,
                   .weight_epoch = 0});
}

Session::Session(const ReplayOptions& options, RequestSource& source, Progress& progress)
    : options_{options}, source_{source}, progress_{progress}, keys_{replay_root(options)}, verifier_{options.verify} {}

std::optional<Prepared> Session::next() {
  if (given_ == options_.requests_max) return std::nullopt;
  std::optional<TraceRequest> traced = source_.next();
  if (!traced) return std::nullopt;

  Prepared request;
  request.number = ++given_;
  request.timestamp_ms = traced->timestamp_ms;
  request.full_blocks = traced->input_tokens / options_.block_tokens;
  const bool has_partial = traced->input_tokens % options_.block_tokens != 0;
  std::uint32_t keyed = request.full_blocks;
  if (options_.reference) {
    keyed = std::min(keyed, options_.device_blocks);
    request.blocks = keyed;
    request.hit_blocks_max = std::numeric_limits<std::uint32_t>::max();
  } else {
    request.blocks = keyed + (has_partial ? 1 : 0);
    request.hit_blocks_max = traced->input_tokens == 0 ? 0 : (traced->input_tokens - 1) / options_.block_tokens;
  }
  const auto begin = std::chrono::steady_clock::now();
  request.keys = keys_.keys(std::span{traced->hash_ids}.first(keyed));
  key_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return request;
}

AcquireRequest Session::acquire_request(const Prepared& request) const {
  AcquireRequest wanted;
  wanted.id = RequestId{request.number};
  wanted.keys = request.keys;
  wanted.blocks = request.blocks;
  wanted.hit_blocks_max = request.hit_blocks_max;
  wanted.name_space = keys_.root().prefix64();
  return wanted;
}

Fence Session::launch(Device& device, std::shared_ptr<const ComputeJob> job) {
  const std::size_t block_bytes = count(options_.block_bytes);
  return device.launch(
      [this, block_bytes, work = std::move(job)](BlockAccess& access) { verifier_.run(*work, access, block_bytes); });
}

void Session::finish(const Prepared& request, const RequestStats& stats) {
  ++counts_.requests;
  counts_.total += request.full_blocks;
  counts_.device += stats.device;
  counts_.host += stats.host;
  counts_.storage += stats.storage;
  counts_.miss += request.full_blocks - stats.device - stats.host - stats.storage;
  counts_.joined += stats.joined;
  progress_.show(counts_.requests, counts_.hits(), counts_.total);
}

void Session::fail(std::string reason) {
  if (!failure_) failure_ = std::move(reason);
}

}  // namespace terrace::tools
