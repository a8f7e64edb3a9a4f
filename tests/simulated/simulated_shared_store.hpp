#pragma once

#include "storage/resilience/circuit_breaker.hpp"
#include "storage/shared/kept_operation.hpp"
#include "storage/shared/memory_shared_store.hpp"
#include "terrace/shared_store.hpp"
#include "tests/simulated/simulated_shared_engine.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace terrace {

struct SimulatedSharedOptions {
  MemorySharedOptions memory{};
  BreakerOptions breaker{};  ///< one for each node
  /// When an operation without a deadline ends with io_failed if nobody answers.
  Duration give_up = std::chrono::seconds{5};
};

/// A shared store in virtual time, without threads: one user of a SimulatedSharedEngine. Each operation has a time at which it is
/// answered and a fault, drawn when it begins; poll() carries out what is due by the clock, with a MemorySharedStore. So
/// operations overtake each other.
///
/// The engine sees the bytes of a write when it ends. The memory of a read is overwritten at random until it ends. So a caller
/// that uses either too early is found by the content of blocks.
///
/// Ownership: the engine outlives its users. Threads: one.
class SimulatedSharedStore final : public SharedStore {
 public:
  explicit SimulatedSharedStore(SimulatedSharedEngine& engine, SimulatedSharedOptions options = {});

  void use(const Fingerprint& fingerprint) override { fingerprint_ = fingerprint; }
  void probe(const SharedProbe& probe) override;
  void read(std::span<const SharedRead> batch) override;
  void write(std::span<const SharedWrite> batch) override;
  void renew(std::span<const StoredBlock> blocks) override;
  void remove(std::span<const BlockKey> keys, GroupId group) override;
  void cancel(std::uint64_t token) override;
  std::size_t poll(std::vector<SharedEvent>& out) override;
  [[nodiscard]] std::size_t in_flight() const override { return operations_.size() + ended_.size(); }
  [[nodiscard]] TimePoint next_deadline() const override;
  void set_waker(Waker* waker) override { waker_ = waker; }
  [[nodiscard]] bool usable() const override;
  [[nodiscard]] SharedHealth health() const override;
  [[nodiscard]] SharedStoreStat stat() const override;

 private:
  enum class Fault : std::uint8_t { none, silent, failing, full, lost };
  using Admission = CircuitBreaker::Admission;
  struct Operation {
    KeptOperation kept;
    TimePoint until = never;  ///< deadline, or when the store gives up
    TimePoint due = never;    ///< time of the answer
    Fault fault = Fault::none;
    std::vector<std::pair<std::uint32_t, Admission>> asked{};  ///< the nodes
  };

  void begin(KeptOperation kept);
  [[nodiscard]] std::uint32_t node_of(const BlockKey& key) const;
  [[nodiscard]] bool waits_for_node(const Operation& operation) const;
  [[nodiscard]] TimePoint ends_at(const Operation& operation) const;
  void answer(const Operation& operation);
  void give_up(const Operation& operation);
  void end(const Operation& operation, ErrorCode error, std::uint32_t leading = 0);
  [[nodiscard]] std::uint32_t known_leading(const Operation& operation);
  [[nodiscard]] std::uint32_t forget_some(const KeptProbe& probe, std::uint32_t leading);
  [[nodiscard]] ErrorCode keep(const Operation& operation);
  void keep_values(const KeptOperation& write);
  void overwrite(std::span<std::byte> memory);

  SimulatedSharedEngine& engine_;
  MemorySharedStore memory_;
  const Duration give_up_;
  Waker* waker_ = nullptr;
  Fingerprint fingerprint_{};
  std::vector<CircuitBreaker> breakers_;  ///< by node
  std::vector<Operation> operations_;
  std::vector<SharedEvent> ended_;
  SharedStoreStat stat_;
};

}  // namespace terrace
