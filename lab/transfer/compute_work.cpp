#include "lab/transfer/compute_work.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <vector>

namespace terrace::tools {
namespace {

std::uint64_t sum(std::span<const std::byte> bytes) {
  std::uint64_t all = 0;
  for (std::size_t at = 0; at + sizeof all <= bytes.size(); at += sizeof all) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    all += word;
  }
  return all;
}

class EmulatedWork final : public ComputeWork {
 public:
  EmulatedWork(Device& device, std::uint32_t blocks, Bytes block_bytes)
      : device_{device}, block_bytes_{block_bytes}, blocks_{blocks_of_a_step(blocks, block_bytes)} {}

  [[nodiscard]] std::span<const ComputeKind> kinds() const override { return kinds_; }

  void start(ComputeKind) override {
    done_ = device_.launch([this](BlockAccess& access) {
      std::vector<std::byte> scratch(count(block_bytes_));
      const auto begin = std::chrono::steady_clock::now();
      std::uint64_t all = 0;
      for (std::uint32_t block = 0; block < blocks_; ++block) all += sum(access.read(SlotId{block}, scratch));
      took_ = std::chrono::steady_clock::now() - begin;
      static volatile std::uint64_t kept = 0;  // prevents the compiler from removing the reads
      kept = kept + all;
    });
  }

  [[nodiscard]] std::optional<Duration> ended() override {
    if (device_.reached() < done_) return std::nullopt;
    return took_;
  }

 private:
  static constexpr ComputeKind kinds_[] = {ComputeKind::memory};

  /// So many that a step takes a few milliseconds, and reads more than fits into a cache.
  static std::uint32_t blocks_of_a_step(std::uint32_t blocks, Bytes block_bytes) {
    constexpr Bytes wanted = MiB * 32;
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted / block_bytes, 1, blocks));
  }

  Device& device_;
  Bytes block_bytes_;
  std::uint32_t blocks_;
  Fence done_;
  Duration took_{};  ///< written by the thread that computes, before `done_`
};

}  // namespace

std::string_view to_string(ComputeKind kind) {
  switch (kind) {
    case ComputeKind::memory: return "memory";
    case ComputeKind::arithmetic: return "arithmetic";
    case ComputeKind::input: return "input";
  }
  return "?";
}

std::unique_ptr<ComputeWork> make_emulated_work(Device& device, std::uint32_t blocks, Bytes block_bytes) {
  return std::make_unique<EmulatedWork>(device, blocks, block_bytes);
}

}  // namespace terrace::tools
