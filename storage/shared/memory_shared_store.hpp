#pragma once

#include "storage/shared/kept_operation.hpp"
#include "storage/shared/shared_expiry.hpp"
#include "storage/shared/shared_value.hpp"
#include "terrace/clock.hpp"
#include "terrace/shared_store.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace terrace {

/// An engine for shared values in the memory of this process. It behaves like a Redis server with the policy `volatile-ttl`: it
/// keeps values by name up to a capacity, does not interpret them, and evicts the value that expires first. Among values that
/// expire at the same time or never, it evicts the least recently used one.
///
/// Ownership: its users share it (MemorySharedStore). Threads: any, at the same time; a value is copied without a lock. Units:
/// bytes of values and their names. Times are times of the caller's clock.
class SharedMemoryEngine {
 public:
  enum class WhenFull : std::uint8_t { evict, refuse };
  using Value = std::shared_ptr<const std::vector<std::byte>>;
  struct Named {
    std::string name{};
    std::vector<std::byte> value{};
  };

  explicit SharedMemoryEngine(Bytes capacity, WhenFull when_full = WhenFull::evict)
      : capacity_{count(capacity)}, when_full_{when_full} {}

  /// Sets all values, replacing older values of the same names, or none of them. Returns false if there is no room for them.
  [[nodiscard]] bool set(std::vector<Named> values, TimePoint expires, TimePoint now);
  /// Returns a consistent snapshot of the values of all names; null for a name without a value. Counts as a use.
  [[nodiscard]] std::vector<Value> get(std::span<const std::string> names, TimePoint now);
  /// Returns whether there is a value. Does not count as a use.
  [[nodiscard]] bool has(std::string_view name, TimePoint now);
  void renew(std::string_view name, TimePoint expires, TimePoint now);
  void remove(std::string_view name);

  /// Changes a value, as another user of the engine could. Does nothing if there is no such value.
  void change(std::string_view name, const std::function<void(std::vector<std::byte>& value)>& how);
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] Bytes used() const;

 private:
  struct Order {
    TimePoint expires;
    std::uint64_t used;  ///< number of the last use

    friend auto operator<=>(const Order&, const Order&) = default;
  };
  struct Kept {
    Value value;
    Order order;
  };
  using Entries = std::map<std::string, Kept, std::less<>>;

  // The caller holds the lock.
  [[nodiscard]] static std::uint64_t bytes_of(const std::string& name, const Value& value) { return name.size() + value->size(); }
  void drop_expired(TimePoint now);
  void erase(Entries::iterator entry);
  void reorder(Entries::iterator entry, TimePoint expires);

  const std::uint64_t capacity_;
  const WhenFull when_full_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::map<Order, Entries::iterator> first_to_go_;  ///< all orders differ, because each use has its own number
  std::uint64_t uses_ = 0;
  std::uint64_t used_bytes_ = 0;
};

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

  void use(const Fingerprint& fingerprint) override { fingerprint_ = fingerprint; }
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

  /// Executes one operation now, for a caller that keeps the operations itself. Of all counts, only that of mismatches changes.
  [[nodiscard]] SharedEvent carry_out(const KeptOperation& operation);

 private:
  void queue(KeptOperation operation);
  void end(const KeptOperation& operation, const SharedEvent& event);
  [[nodiscard]] ErrorCode fetch(const KeptOperation& read, TimePoint now);
  [[nodiscard]] ErrorCode keep(const KeptOperation& write, TimePoint now);
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
  std::vector<KeptOperation> queue_;
  std::vector<SharedEvent> ended_;
  mutable std::mutex stat_mutex_;
  SharedStoreStat stat_;
};

}  // namespace terrace
