// A small engine on an NVIDIA GPU, with the CUDA runtime: KV memory and a stream of its own. docs/embedding.md explains it. The
// copies and fills stand for the engine's kernels.

#include <terrace/keys.hpp>
#include <terrace/system.hpp>

#include <cuda_runtime_api.h>
#include <poll.h>

#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <vector>

namespace {

using namespace terrace;

constexpr std::uint32_t layers = 4, blocks = 16, tokens_per_block = 16;
/// The KV of one layer in one block, and the distance from a layer of a block to its next layer, in bytes.
constexpr std::size_t part = 16 << 10, pitch = blocks * part;

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error{cudaGetErrorString(error)};
}

/// Returns the number of blocks that were found, after it has compared them.
std::size_t serve(Cache& cache, std::byte* kv, cudaStream_t stream, RequestId id, const std::vector<TokenId>& prompt) {
  KeyChain chain{root_key({.model_digest = std::as_bytes(std::span{"toy"})}), tokens_per_block};
  chain.append(prompt);  // makes the keys of the full blocks; the request also needs a block for the end of the prompt
  const HashUnits units{static_cast<std::uint32_t>((prompt.size() + tokens_per_block - 1) / tokens_per_block)};
  Lease lease = cache.acquire({.id = id, .keys = chain.keys(), .units = units}).value();
  const auto order = [&] { return cache.await(lease, Cache::all_layers, stream); };  // the stream waits for the hits
  Result<void> ordered = order();
  while (!ordered && ordered.error() == Errc::not_ready) {  // a copy is not on a stream yet; an engine serves other requests
    pollfd woken{cache.wake_fd(), POLLIN, 0};
    (void)::poll(&woken, 1, 1);
    (void)cache.poll();
    ordered = order();
  }
  ordered.value();  // any other error is final: end the lease

  const auto table = cache.block_table(lease).value();
  const std::size_t hits = cache.hit_sources(lease)->size();
  const auto value = [&](std::size_t i) { return static_cast<unsigned char>(prompt[i * tokens_per_block] + i); };
  std::vector<unsigned char> seen(hits * layers * part);
  for (std::size_t i = 0; i < table.size(); ++i) {
    std::byte* const block = kv + table[i].value() * part;
    check(i < hits ? cudaMemcpy2DAsync(&seen[i * layers * part], part, block, pitch, part, layers, cudaMemcpyDeviceToHost, stream)
                   : cudaMemset2DAsync(block, pitch, value(i), part, layers, stream));
  }

  // Everything that this step does is on the stream now. Copies of its blocks wait for this point.
  const Fence done = cache.signal(stream).value();
  lease.used_until(done);
  cache.wait(lease).value();  // a copy that failed on its way shows here, before anything is shared
  (void)cache.commit(lease, chain.keys(), done).value();
  check(cudaStreamSynchronize(stream));  // only to look at the bytes
  for (std::size_t n = 0; n < seen.size(); ++n) {
    if (seen[n] != value(n / (layers * part))) throw std::runtime_error{"a hit was wrong"};
  }
  return hits;
}

}  // namespace

int main() {
  if (const auto why = cuda_unavailable()) {
    std::printf("not run: %s\n", why->c_str());
    return 0;
  }
  std::byte* kv = nullptr;
  cudaStream_t stream = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&kv), layers * pitch));
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::vector<DeviceRegion> regions;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    regions.push_back({reinterpret_cast<std::uintptr_t>(kv) + layer * pitch, part, part, layer});
  }
  CacheSystemOptions options;
  options.ranks = {RankOptions{.device = CudaGpu{.ordinal = 0}, .regions = {regions}}};
  options.pools = {{.block_bytes = Bytes{layers * part}, .device_blocks = blocks, .host_blocks = 64}};
  options.loads = LoadPolicy::always;  // a fill takes no time, so it would be faster than to load a block
  CacheSystem system{options};

  // Two prompts with the same prefix have the same first 6 blocks. Each has 2 more, and 5 tokens of a last one.
  const auto prompt = [](TokenId prefix, TokenId rest) {
    std::vector<TokenId> tokens(std::size_t{6} * tokens_per_block, prefix);
    tokens.resize(std::size_t{8} * tokens_per_block + 5, rest);
    return tokens;
  };
  const std::size_t first = serve(system.cache(), kv, stream, RequestId{1}, prompt(10, 50));
  const std::size_t shared = serve(system.cache(), kv, stream, RequestId{2}, prompt(10, 90));
  (void)serve(system.cache(), kv, stream, RequestId{3}, prompt(120, 130));  // needs slots: blocks of the first two go to the host
  (void)serve(system.cache(), kv, stream, RequestId{4}, prompt(150, 170));
  const std::size_t again = serve(system.cache(), kv, stream, RequestId{5}, prompt(10, 50));
  std::printf("blocks found: %zu, then %zu of the same prefix, and %zu that came back from the host\n", first, shared, again);
  return first == 0 && shared == 6 && again == 8 ? 0 : 1;
}
