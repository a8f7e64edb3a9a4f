#pragma once

#include "base/random.hpp"
#include "storage/redis/operation.hpp"
#include "storage/redis/redis_node.hpp"
#include "storage/redis/redis_options.hpp"
#include "storage/redis/slot_map.hpp"
#include "terrace/clock.hpp"
#include "terrace/shared_store.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace terrace {

/// A client of an engine that speaks the Redis protocol: a single server, or a cluster, whose slot map the client keeps up to
/// date. It is a state machine that reads a clock; RedisTransport does the I/O.
///
/// No packaged client library has all required features. hiredis 0.14 supports neither TLS nor clusters, reads 16 KiB at a time,
/// and copies each payload once more (docs/benchmarks.md, "Shared store"). Boost.Redis does not support clusters.
///
/// Ownership: options, transport, clock and secret must outlive the client, and the memory of operations must stay valid until
/// they end. Threads: one.
class RedisClient {
 public:
  static constexpr std::size_t nodes_max = 1024;   ///< nodes known at a time; a new node replaces one that is no longer used
  static constexpr std::uint32_t orders_max = 64;  ///< renewals and removals under way at one node; further ones are dropped
  static constexpr Duration map_pause = std::chrono::seconds{1};  ///< time between two requests for the slot map
  /// A server that has become a replica refuses writes for as long as the connection lasts, although its name may refer to
  /// another server by now. Connections that are older than this are then reconnected.
  static constexpr Duration role_age = std::chrono::seconds{30};
  static constexpr Duration full_pause = std::chrono::seconds{1};  ///< pause of writes to a node that is full

  /// `after_tick` is called at the end of each tick().
  RedisClient(
      const RedisOptions& options, RedisTransport& transport, const Clock& clock, std::shared_ptr<const SharedSecret> secret,
      std::function<void()> after_tick = [] {});
  ~RedisClient();
  RedisClient(const RedisClient&) = delete;
  RedisClient& operator=(const RedisClient&) = delete;

  /// Begins an operation. Its token must differ from the tokens of all operations under way. `names` are those for its
  /// fingerprint.
  void begin(KeptOperation order, std::shared_ptr<const SharedValueNames> names);
  void cancel(std::uint64_t token);
  void renew(const std::vector<StoredBlock>& blocks, const SharedValueNames& names);
  void remove(const std::vector<BlockKey>& keys, GroupId group, const SharedValueNames& names);

  /// Does the work that is due. Must be called at next_deadline(), and after sent() or received() of a channel.
  void tick();
  [[nodiscard]] TimePoint next_deadline() const;

  // Reports of the transport.
  [[nodiscard]] bool is_current(const RedisConnectionId& id) const { return nodes_[id.node]->is_current(id); }
  /// Returns the channel of a current connection.
  [[nodiscard]] Channel& channel(const RedisConnectionId& id) { return nodes_[id.node]->channel(id); }
  /// `password` is the current password; empty: none.
  void connected(const RedisConnectionId& id, std::string_view password);
  void lost(const RedisConnectionId& id, std::string_view why);

  /// Replaces the content of `out` by the events since the last call.
  void take_events(std::vector<SharedEvent>& out);
  /// Returns the bytes of blocks whose reads and writes have ended since the last call.
  [[nodiscard]] std::uint64_t take_bytes_ended() { return std::exchange(bytes_ended_, 0); }
  [[nodiscard]] bool usable() const;
  [[nodiscard]] SharedHealth health() const;
  /// Returns a number that grows with each change of health(), except changes of bytes under way and of counts.
  [[nodiscard]] std::uint64_t health_changes() const;
  [[nodiscard]] const SharedStoreStat& stat() const { return stat_; }

 private:
  friend class RedisBlockOperation;
  friend class RedisProbeOperation;
  class MapQuestion;
  class Order;

  // for operations
  /// Returns the node that has the slot, or null if no node is known to have it, or if there is no map yet.
  [[nodiscard]] RedisNode* node_of(std::uint32_t slot);
  /// Returns the node of the redirection. Null: a single server must not redirect, or there are too many used nodes.
  [[nodiscard]] RedisNode* follow(const RedisRedirection& redirection);
  /// Handles an error reply that is not a redirection.
  void refused(RedisNode& node, const std::string& error);
  void ended(const KeptOperation& order, ErrorCode error, std::uint32_t leading = 0);
  [[nodiscard]] std::unique_ptr<SharedValueReader> take_reader();
  void give_reader(std::unique_ptr<SharedValueReader> reader) { readers_.push_back(std::move(reader)); }
  /// Returns the expiry of a block in milliseconds; at least 1.
  [[nodiscard]] std::string expiry_ms(std::uint32_t depth) const;

  struct Commands {
    std::string text{};
    std::uint32_t count = 0;
  };
  void order(std::map<RedisNode*, Commands>&& by_node);
  /// Returns the node with this address, which is added if it is new. Null: there are nodes_max nodes, and all of them are in
  /// use.
  [[nodiscard]] RedisNode* node_at(const RedisAddress& address);
  /// Marks the node as used, with its share of the connections. Returns false if no connections are left.
  [[nodiscard]] bool add_to_map(RedisNode* node);
  /// Returns true while operations wait for the first map.
  [[nodiscard]] bool awaits_map() const;
  void ask_for_map(TimePoint now);
  void read_map(const RespValue& reply, const RedisNode& asked);
  void choose_used();

  const RedisOptions& options_;
  RedisTransport& transport_;
  const Clock& clock_;
  const std::shared_ptr<const SharedSecret> secret_;
  const std::function<void()> after_tick_;
  Random random_;
  std::vector<std::unique_ptr<RedisNode>> nodes_;

  // The map of a cluster.
  std::vector<RedisNode*> slots_;  ///< empty: there is no map yet. A null entry: no node has the slot
  std::vector<RedisNode*> mapped_;
  bool map_wanted_ = false;
  TimePoint map_next_{};                       ///< time from which on the map may be requested again
  const MapQuestion* map_question_ = nullptr;  ///< the request under way, unless its reply is no longer wanted
  RedisNode* map_asked_ = nullptr;
  TimePoint map_give_up_ = never;
  std::string map_trouble_;
  std::uint64_t map_changes_ = 0;

  std::unordered_map<std::uint64_t, std::shared_ptr<RedisOperation>> operations_;
  std::set<std::pair<TimePoint, std::uint64_t>> deadlines_;  ///< deadlines with their tokens
  std::vector<std::shared_ptr<RedisOperation>> without_map_;
  std::vector<std::unique_ptr<SharedValueReader>> readers_;  ///< readers that are not in use
  SharedValueWriter writer_;
  SharedWriteIds write_ids_;
  std::vector<SharedEvent> events_;
  std::uint64_t bytes_ended_ = 0;
  SharedStoreStat stat_;
};

}  // namespace terrace
