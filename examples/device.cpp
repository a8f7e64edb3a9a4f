// An example of a Device of your own, with which a cache serves requests. docs/how-to/add-a-device.md shows parts of this file.

#include <terrace/host_memory.hpp>
#include <terrace/keys.hpp>
#include <terrace/system.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace {

using namespace terrace;

/// The device's memory, which compute reads and writes in place.
struct Blocks final : BlockAccess {
  explicit Blocks(const DevicePool& pool) : at(pool.slots, std::vector<std::byte>(count(pool.block_bytes))) {}
  std::span<const std::byte> read(PoolId, SlotId slot, std::span<std::byte>) override { return at[slot.value()]; }
  std::span<std::byte> write_target(PoolId, SlotId slot, std::span<std::byte>) override { return at[slot.value()]; }
  void written(PoolId, SlotId, std::span<std::byte>) override {}
  std::vector<std::vector<std::byte>> at;
};

/// A device in ordinary memory that does everything at once: it computes in launch(), and copies in submit(). A device for
/// production has streams instead, because submit() must not block. It has one pool, without layers and regions.
class InlineDevice final : public Device, private HostChunkObserver {
 public:
  explicit InlineDevice(const PoolMemory& pool)
      : pool_{pool}, info_{"inline", {{pool.slots, checked_size(pool.share, *pool.host)}}}, blocks_{info_.pool()} {
    pool_.host->observe(*this).value();
  }
  ~InlineDevice() override { pool_.host->unobserve(*this); }
  const DeviceInfo& info() const override { return info_; }
  void set_waker(Waker& waker) override { waker_ = &waker; }

  void submit(CopyCommand command) override {
    check_slots(command, info_.pool(), *pool_.host);
    // Compute is done when launch() returns. So no command has to wait for its fence.
    const bool out = command.direction == Direction::swap_out;
    for (const SlotRun& run : command.runs) {
      for (std::uint32_t i = 0; i < run.count; ++i) {
        const SlotId source{run.source.value() + i}, destination{run.destination.value() + i};
        const std::span<std::byte> here = blocks_.at[(out ? source : destination).value()];
        const std::span<std::byte> host =
            pool_.host->block(out ? destination : source).subspan(count(pool_.share.offset), here.size());
        std::ranges::copy(out ? here : host, (out ? host : here).begin());
      }
    }
    done_.push_back({.token = command.token, .error = {}});
    waker_->wake();
  }
  std::size_t poll(std::vector<CopyDone>& done) override {
    done.insert(done.end(), done_.begin(), done_.end());
    return std::exchange(done_, {}).size();
  }

  Fence launch(ComputeWork work) override {
    work(blocks_);
    return Fence{++reached_};
  }
  Fence reached() const override { return Fence{reached_}; }
  Fence after_all_work() const override { return Fence{reached_}; }
  std::uint32_t pinned_slots() const { return pinned_slots_; }

 private:
  // Chunks of host memory come and go. A device that needs pinned memory pins and unpins them here.
  Result<void> chunk_added(const HostChunk& chunk) override {
    pinned_slots_ += chunk.slots.count;
    return {};
  }
  void chunk_removing(const HostChunk& chunk) override { pinned_slots_ -= chunk.slots.count; }

  const PoolMemory pool_;
  const DeviceInfo info_;
  Blocks blocks_;
  Waker* waker_ = nullptr;      // set before the first submit()
  std::vector<CopyDone> done_;  // used by the thread of submit() and poll()
  std::atomic<std::uint64_t> reached_{0};
  std::atomic<std::uint32_t> pinned_slots_{0};
};

/// Returns the number of blocks that were found and had the right bytes.
std::size_t serve(CacheSystem& system, RequestId id, TokenId token, std::uint32_t blocks) {
  KeyChain chain{root_key({}), 16};
  chain.append(std::vector<TokenId>(std::size_t{16} * blocks, token));
  AcquireRequest wanted;
  wanted.id = id;
  wanted.keys = chain.keys();
  Lease lease = system.cache().acquire(wanted).value();
  system.cache().wait(lease).value();
  const std::span<const SlotId> table = system.cache().block_table(lease).value();
  const std::size_t hits = system.cache().hit_sources(lease)->size();
  std::size_t right = 0;
  const Fence done = system.device().launch([&](BlockAccess& access) {
    for (std::size_t i = 0; i < table.size(); ++i) {
      const auto value = static_cast<std::byte>(token + i);
      if (i >= hits) std::ranges::fill(access.write_target(table[i], {}), value);
      if (i < hits && std::ranges::count(access.read(table[i], {}), value) == 4096) ++right;
    }
  });
  lease.used_until(done);
  (void)system.cache().commit(lease, chain.keys(), done).value();
  return right;
}

}  // namespace

int main() {
  CacheSystemOptions options;
  options.ranks[0].device =
      CustomDevice{[](std::span<const PoolMemory> pools) { return std::make_shared<InlineDevice>(pools[0]); }};
  options.pools = {{.block_bytes = KiB * 4, .device_blocks = 16, .host_blocks = 64}};
  options.loads = LoadPolicy::always;  // a fill takes no time, so it would be faster than to load a block
  CacheSystem system{options};
  const std::uint32_t pinned = static_cast<const InlineDevice&>(system.device()).pinned_slots();

  const std::size_t first = serve(system, RequestId{1}, 10, 12);
  (void)serve(system, RequestId{2}, 100, 15);  // needs nearly every slot: the first blocks go to the host
  const std::size_t again = serve(system, RequestId{3}, 10, 12);
  std::printf("of 12 blocks %zu and %zu came back, with %u host slots\n", first, again, pinned);
  return first == 0 && again == 12 && pinned == 64 ? 0 : 1;
}
