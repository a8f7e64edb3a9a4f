#pragma once

#include "terrace/clock.hpp"
#include "terrace/types.hpp"

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

/// An engine for shared values in the memory of this process. It behaves as a Redis server whose policy is `volatile-ttl`: it
/// keeps values by name up to a capacity, knows nothing of blocks, and makes room by giving up the value that expires first. Of
/// values that expire at the same time or never, the least recently used one goes.
///
/// Ownership: its users share it (MemorySharedStore). Threads: any, at the same time; a value is copied without a lock. Units:
/// bytes of values and their names. Times are those of the caller's clock.
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

  /// Sets all values, in place of older ones of the same names, or none. Returns false if there is no room for them.
  [[nodiscard]] bool set(std::vector<Named> values, TimePoint expires, TimePoint now);
  /// Returns the values of all names as they are at one time; null where there is none. A use.
  [[nodiscard]] std::vector<Value> get(std::span<const std::string> names, TimePoint now);
  /// Not a use.
  [[nodiscard]] bool has(std::string_view name, TimePoint now);
  void renew(std::string_view name, TimePoint expires, TimePoint now);
  void remove(std::string_view name);

  /// Changes a value as somebody else who may write to the engine would. Does nothing if there is no such value.
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

  // With the lock.
  [[nodiscard]] static std::uint64_t bytes_of(const std::string& name, const Value& value) { return name.size() + value->size(); }
  void drop_expired(TimePoint now);
  void erase(Entries::iterator entry);
  void reorder(Entries::iterator entry, TimePoint expires);

  const std::uint64_t capacity_;
  const WhenFull when_full_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::map<Order, Entries::iterator> first_to_go_;  ///< no two orders are the same, because each use has its own number
  std::uint64_t uses_ = 0;
  std::uint64_t used_bytes_ = 0;
};

}  // namespace terrace
