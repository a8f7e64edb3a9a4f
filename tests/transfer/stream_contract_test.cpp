// Streams and memory of an engine: the contract, for the emulated device.
#include "tests/transfer/stream_contract.hpp"
#include "terrace/emulated_stream.hpp"
#include "transfer/emulated/emulated_device.hpp"

namespace terrace::contract {
namespace {

class EmulatedEngine {
 public:
  void open(const EnginePool& pool) {
    device_.emplace(
        std::array{PoolMemory{.slots = engine_slots, .host = &pool.arena, .share = pool.share, .regions = pool.regions}});
  }
  Device& device() { return *device_; }
  StreamRef stream(int number) { return streams_.at(static_cast<std::size_t>(number)).ref(); }
  void run(int stream, std::function<void()> work) { streams_.at(static_cast<std::size_t>(stream)).run(std::move(work)); }
  void synchronize(int stream) { streams_.at(static_cast<std::size_t>(stream)).synchronize(); }
  std::uint64_t allocate(std::size_t bytes) {
    memory_.push_back(std::make_unique<std::byte[]>(bytes));
    return reinterpret_cast<std::uintptr_t>(memory_.back().get());
  }
  std::byte* at(std::uint64_t address) { return reinterpret_cast<std::byte*>(address); }

 private:
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::array<EmulatedStream, 3> streams_;
  std::optional<EmulatedDevice> device_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Emulated, StreamContract, EmulatedEngine);

}  // namespace
}  // namespace terrace::contract
