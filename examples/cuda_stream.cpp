// A minimal engine with a CUDA stream and KV tensors of its own. It never waits on the host for a copy of a block: the stream
// does.
//
// Its "kernels" are calls of the driver that fill and read memory. The calls go through Terrace's table of driver functions, so
// that this file also builds where no driver is installed; an engine calls the CUDA runtime.

#include "transfer/cuda/cuda_device.hpp"
#include "transfer/cuda/driver/handles.hpp"
#include <terrace/system.hpp>

#include <terrace/cache.hpp>
#include <terrace/device.hpp>
#include <terrace/keys.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::example {

constexpr std::uint32_t layers = 4;
constexpr std::uint32_t device_blocks = 16;
constexpr std::uint64_t part_bytes = 16 << 10;  // K or V of one layer in one block
constexpr std::uint32_t tokens_per_block = 16;

/// The engine's memory and stream. Each layer has a tensor of K and one of V, with `device_blocks` blocks each.
class Engine {
 public:
  explicit Engine(const CudaDriver& cuda)
      : cuda_{cuda},
        context_{cuda, cuda_device_at(cuda, 0)},
        tensors_{allocate_device(cuda, Bytes{part_bytes * 2 * layers * device_blocks}, "the KV tensors")},
        seen_{cuda, Bytes{part_bytes}, "what the engine looks at"},
        stream_{make_stream(cuda)} {}

  [[nodiscard]] StreamRef stream() const { return stream_.get(); }
  [[nodiscard]] std::vector<DeviceRegion> regions() const {
    std::vector<DeviceRegion> regions;
    for (std::uint32_t tensor = 0; tensor < 2 * layers; ++tensor) {
      regions.push_back(
          {tensors_.get() + std::uint64_t{tensor} * device_blocks * part_bytes, part_bytes, part_bytes, tensor / 2});
    }
    return regions;
  }
  /// Writes the KV of a block. The model of this example: each byte is the number of the block.
  void compute(std::uint32_t layer, SlotId slot, std::size_t number) {
    for (const std::uint64_t part : parts(layer, slot)) {
      cuda_.check(cuda_.cuMemsetD8Async(part, static_cast<unsigned char>(number), part_bytes, stream_.get()), "cuMemsetD8Async");
    }
  }
  /// Reads the KV of a block. (To look at the result, this example waits for the stream. An engine has no reason to.)
  void attend(std::uint32_t layer, SlotId slot, std::size_t number) {
    for (const std::uint64_t part : parts(layer, slot)) {
      cuda_.check(cuda_.cuMemcpyDtoHAsync(seen_.bytes().data(), part, part_bytes, stream_.get()), "cuMemcpyDtoHAsync");
      cuda_.check(cuda_.cuStreamSynchronize(stream_.get()), "cuStreamSynchronize");
      right_ = right_ && std::ranges::all_of(seen_.bytes(), [&](std::byte b) { return b == static_cast<std::byte>(number); });
    }
  }
  [[nodiscard]] bool every_hit_was_right() const { return right_; }

 private:
  [[nodiscard]] std::vector<std::uint64_t> parts(std::uint32_t layer, SlotId slot) const {
    const std::uint64_t k = tensors_.get() + (std::uint64_t{2} * layer * device_blocks + slot.value()) * part_bytes;
    return {k, k + device_blocks * part_bytes};
  }

  const CudaDriver& cuda_;
  PrimaryContext context_;
  DeviceMemory tensors_;
  PinnedBuffer seen_;
  StreamHandle stream_;
  bool right_ = true;
};

std::size_t serve(Cache& cache, Engine& engine, RequestId id, const std::vector<TokenId>& prompt, std::size_t first_number) {
  KeyChain chain{root_key({}), tokens_per_block};
  chain.append(prompt);
  AcquireRequest wanted;
  wanted.id = id;
  wanted.keys = chain.keys();
  wanted.units = HashUnits{static_cast<std::uint32_t>(chain.keys().size())};
  wanted.by_layer = true;
  Lease lease = cache.acquire(wanted).value();
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    // From here on the stream waits for the hits of this layer, while later layers are still copied. not_ready: the copies are
    // not on the device yet. An engine with other requests serves those meanwhile; then it sleeps until wake_fd() is readable.
    Result<void> ordered = cache.await(lease, layer + 1, engine.stream());
    while (!ordered && ordered.error() == Errc::not_ready) {
      (void)cache.poll();
      std::this_thread::sleep_for(std::chrono::microseconds{50});
      ordered = cache.await(lease, layer + 1, engine.stream());
    }
    ordered.value();
    const std::span<const SlotId> table = cache.block_table(lease).value();
    const std::size_t hits = cache.hit_sources(lease)->size();
    for (std::size_t i = 0; i < hits; ++i) engine.attend(layer, table[i], first_number + i);
    for (std::size_t i = hits; i < table.size(); ++i) engine.compute(layer, table[i], first_number + i);
  }
  // Everything that the step does is on the stream. Copies of its blocks wait for this point.
  const Fence done = cache.signal(engine.stream()).value();
  // A load that failed under way shows here. Until then nothing that was computed is shared.
  cache.wait(lease).value();
  (void)cache.commit(lease, chain.keys(), done).value();
  const std::size_t hits = cache.hit_sources(lease)->size();
  cache.release(std::move(lease), done);
  return hits;
}

/// Returns true if every hit was right.
bool run(const CudaDriver& cuda, DeviceOptions device) {
  Engine engine{cuda};
  CacheSystemOptions options;
  options.ranks = {RankOptions{std::move(device), {engine.regions()}}};
  options.pools[0].block_bytes = Bytes{part_bytes * 2 * layers};
  options.pools[0].device_blocks = device_blocks;
  options.pools[0].host_blocks = 64;
  options.loads = LoadPolicy::always;  // these kernels take no time, so computing a block would be faster than to load it
  CacheSystem system{options};

  const std::vector<TokenId> prompt(std::size_t{12} * tokens_per_block, 42);
  const std::vector<TokenId> other(std::size_t{15} * tokens_per_block, 43);
  const std::size_t first = serve(system.cache(), engine, RequestId{1}, prompt, 10);
  const std::size_t second = serve(system.cache(), engine, RequestId{2}, prompt, 10);
  // The other prompt needs nearly every slot, so blocks of the first are swapped out, and later come back by layer.
  (void)serve(system.cache(), engine, RequestId{3}, other, 100);
  const std::size_t third = serve(system.cache(), engine, RequestId{4}, prompt, 10);
  std::printf("of 12 blocks %zu, %zu and %zu were hits, and they were %s\n", first, second, third,
              engine.every_hit_was_right() ? "right" : "wrong");
  return first == 0 && second == 12 && third == 12 && engine.every_hit_was_right();
}

}  // namespace terrace::example

#ifndef TERRACE_IN_A_TEST  // a test runs it over an imaginary driver
int main() {
  if (const auto why = terrace::CudaDevice::unavailable()) {
    std::printf("not run: %s\n", why->c_str());
    return 0;
  }
  return terrace::example::run(terrace::cuda_driver(), terrace::CudaGpu{}) ? 0 : 1;
}
#endif
