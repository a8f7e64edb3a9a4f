// A small engine on an NVIDIA GPU, with the CUDA runtime: KV memory and a stream of its own. docs/embedding.md explains it. The
// copies and fills stand for the engine's kernels.

#include <terrace/keys.hpp>
#include <terrace/system.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
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
  KeyChain chain{root_key({}), tokens_per_block};
  chain.append(prompt);
  Lease lease = cache.acquire({.id = id, .keys = chain.keys()}).value();
  cache.wait(lease).value();  // until the hits are on the device; an engine serves other requests, and poll() tells it

  const auto table = cache.block_table(lease).value();
  const std::size_t hits = cache.hit_sources(lease)->size();
  std::vector<unsigned char> seen(hits * layers * part);
  for (std::size_t i = 0; i < table.size(); ++i) {
    std::byte* const block = kv + table[i].value() * part;
    check(i < hits ? cudaMemcpy2DAsync(&seen[i * layers * part], part, block, pitch, part, layers, cudaMemcpyDeviceToHost, stream)
                   : cudaMemset2DAsync(block, pitch, static_cast<int>(prompt[0] + i), part, layers, stream));
  }

  // Everything that this step does is on the stream now. Copies of its blocks wait for this point.
  const Fence done = cache.signal(stream).value();
  lease.used_until(done);
  (void)cache.commit(lease, chain.keys(), done).value();
  check(cudaStreamSynchronize(stream));  // only to look at the bytes
  for (std::size_t n = 0; n < seen.size(); ++n) {
    if (seen[n] != ((prompt[0] + n / (layers * part)) & 0xFF)) throw std::runtime_error{"a hit was wrong"};
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

  const std::vector<TokenId> prompt(std::size_t{12} * tokens_per_block, 10), other(std::size_t{15} * tokens_per_block, 100);
  const std::size_t first = serve(system.cache(), kv, stream, RequestId{1}, prompt);
  (void)serve(system.cache(), kv, stream, RequestId{2}, other);  // needs nearly every slot: the first blocks go to the host
  const std::size_t again = serve(system.cache(), kv, stream, RequestId{3}, prompt);
  std::printf("of 12 blocks %zu and %zu were hits\n", first, again);
  return first == 0 && again == 12 ? 0 : 1;
}
