#pragma once

#include "storage/shared/kept_operation.hpp"
#include "storage/shared/shared_expiry.hpp"
#include "storage/shared/shared_memory_engine.hpp"
#include "storage/shared/shared_value.hpp"
#include "storage/shared/shared_value_names.hpp"
#include "terrace/shared_store.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace terrace {

struct MemorySharedOptions {
  std::string prefix = "terrace";  ///< prefix of the names of all values (SharedValueNames::is_prefix())
  SharedExpiry expiry{};
  std::shared_ptr<const SharedSecret> secret{};  ///< null: values are not sealed
};

/// A shared store on an engine in memory: caches of one process that use the same engine share their blocks. It is for tests,
/// examples and replays without a server, and it is the simplest example of the SharedStore contract. The values have the same
/// format as in every shared store, so the same checks detect damage.
///
/// The next poll() executes the submitted operations in order, and copies the bytes. Operations whose deadline has passed by then
/// are not executed. Ownership: the clock must outlive the store. Threads: as for SharedStore.
class MemorySharedStore final : public SharedStore {
 public:
  /// Throws std::invalid_argument if the prefix is not valid.
  MemorySharedStore(std::shared_ptr<SharedMemoryEngine> engine, const Clock& clock, MemorySharedOptions options = {});

  void use(const Fingerprint& fingerprint) override;
  void probe(const SharedProbe& probe) override;
  void read(std::span<const SharedRead> batch) override;
  void write(std::span<const SharedWrite> batch) override;
  void renew(std::span<const StoredBlock> blocks) override;
  void remove(std::span<const BlockKey> keys, GroupId group) override;
  void cancel(std::uint64_t token) override;
  std::size_t poll(std::vector<SharedEvent>& out) override;
  [[nodiscard]] std::size_t in_flight() const override { return queue_.size() + ended_.size(); }
  void set_waker(Waker* waker) override { waker_ = waker; }
  [[nodiscard]] bool usable() const override { return true; }
  [[nodiscard]] SharedHealth health() const override;
  [[nodiscard]] SharedStoreStat stat() const override;

 private:
  struct Operation {
    std::uint64_t token;
    TimePoint deadline;
    Fingerprint fingerprint;  ///< the fingerprint at the time of the call
    KeptOperation what;
  };

  void queue(Operation operation);
  void end(const Operation& operation, ErrorCode error, std::uint32_t leading = 0);
  void carry_out(const Operation& operation, TimePoint now);
  [[nodiscard]] std::uint32_t leading(const KeptProbe& probe, TimePoint now);
  [[nodiscard]] ErrorCode fetch(const KeptRead& read, const Fingerprint& fingerprint, TimePoint now);
  [[nodiscard]] ErrorCode keep(const KeptWrite& write, const Fingerprint& fingerprint, TimePoint now);
  [[nodiscard]] TimePoint expires(std::uint32_t depth, TimePoint now) const;

  const std::shared_ptr<SharedMemoryEngine> engine_;
  const Clock& clock_;
  const MemorySharedOptions options_;
  Waker* waker_ = nullptr;
  Fingerprint fingerprint_{};
  SharedValueNames names_;
  SharedValueReader reader_;
  SharedValueWriter writer_;
  SharedWriteIds write_ids_;
  std::vector<std::byte> scratch_;
  std::vector<Operation> queue_;
  std::vector<SharedEvent> ended_;
  mutable std::mutex stat_mutex_;
  SharedStoreStat stat_;
};

}  // namespace terrace
