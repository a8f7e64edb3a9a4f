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
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace terrace {

/// A user of an engine that speaks the Redis protocol: a single server, or a cluster, whose map of slots it keeps up to date. It
/// is a state machine: RedisTransport moves the bytes, and a clock is read.
///
/// It is a client of our own because none that distributions package does all that is needed here. hiredis 0.14 knows neither TLS
/// nor clusters, reads 16 KiB at a time, and copies each payload once more (docs/benchmarks.md, "Shared store"). Boost.Redis
/// knows no clusters.
///
/// Ownership: options, transport, clock and secret outlive it, and so does the memory of operations until they end. Threads: one.
class RedisClient {
 public:
  static constexpr std::size_t nodes_max = 1024;  ///< known at a time; a new one takes the place of one that is not used any more
  static constexpr std::uint32_t orders_max = 64;                 ///< to one node; more are left out
  static constexpr Duration map_pause = std::chrono::seconds{1};  ///< from one question for the map to the next
  /// A server that has become a replica refuses writes for as long as it is connected, although its name may be that of another
  /// server by now. Connections that are as old as that are then made anew.
  static constexpr Duration role_age = std::chrono::seconds{30};
  static constexpr Duration full_pause = std::chrono::seconds{1};  ///< without writes to a node that is full

  RedisClient(const RedisOptions& options, RedisTransport& transport, const Clock& clock,
              std::shared_ptr<const SharedSecret> secret);
  ~RedisClient();
  RedisClient(const RedisClient&) = delete;
  RedisClient& operator=(const RedisClient&) = delete;

  /// Begins an operation. Its token is that of no other one that is under way.
  void begin(const std::shared_ptr<RedisOperation>& operation);
  void cancel(std::uint64_t token);
  void renew(const std::vector<StoredBlock>& blocks, const RedisMeaning& meaning);
  void remove(const std::vector<BlockKey>& keys, GroupId group, const RedisMeaning& meaning);

  /// Does what is due. Called at next_deadline().
  void tick() { work(); }
  [[nodiscard]] TimePoint next_deadline() const;

  // Reports of the transport.
  [[nodiscard]] bool is_current(const RedisConnectionId& id) const { return nodes_[id.node]->is_current(id); }
  /// The channel of a connection that is current.
  [[nodiscard]] Channel& channel(const RedisConnectionId& id) { return nodes_[id.node]->channel(id); }
  /// `password`: what it is now; empty: none.
  void connected(const RedisConnectionId& id, std::string_view password);
  void lost(const RedisConnectionId& id, std::string_view why);
  /// The channel was told of bytes that were sent or that have arrived.
  void moved() { work(); }

  /// The events since the last call, in `out`, which is emptied first.
  void take_events(std::vector<SharedEvent>& out);
  /// Bytes of blocks whose reads and writes have ended since the last call.
  [[nodiscard]] std::uint64_t take_bytes_ended() { return std::exchange(bytes_ended_, 0); }
  [[nodiscard]] bool usable() const;
  [[nodiscard]] SharedHealth health() const;
  /// Grows with each change of it, except that of bytes under way and of counts.
  [[nodiscard]] std::uint64_t health_changes() const;
  [[nodiscard]] const SharedStoreStat& stat() const { return stat_; }

 private:
  friend class RedisBlockOperation;
  friend class RedisProbeOperation;
  class MapQuestion;
  class Order;

  void work();
  // for operations
  /// The node that has the slot, or null if nobody is known to have it, or the map has still to come.
  [[nodiscard]] RedisNode* node_of(std::uint32_t slot);
  [[nodiscard]] bool awaits_map() const;
  void wait_for_map(std::shared_ptr<RedisOperation> operation);
  /// Null: a single server has no business with others, or there are too many nodes that are used.
  [[nodiscard]] RedisNode* follow(const RedisRedirection& redirection);
  /// A node has answered with an error that is no redirection.
  void refused(RedisNode& node, const std::string& error);
  void ended(const SharedEvent& event, TimePoint deadline);
  [[nodiscard]] std::unique_ptr<SharedValueReader> take_reader();
  void give_reader(std::unique_ptr<SharedValueReader> reader) { readers_.push_back(std::move(reader)); }
  void set_full(const RedisNode& node);
  [[nodiscard]] bool is_full(const RedisNode& node) const;
  /// How long a block stays, in milliseconds; at least 1.
  [[nodiscard]] std::string expiry_ms(std::uint32_t depth) const;

  struct Commands {
    std::string text{};
    std::uint32_t count = 0;
  };
  void order(std::map<RedisNode*, Commands>&& by_node);
  /// Null: nodes_max are known, and all of them are in use.
  [[nodiscard]] RedisNode* node_at(const RedisAddress& address);
  /// The node is used, and so is its part of the connections. Returns false if all connections are taken.
  [[nodiscard]] bool add_to_map(RedisNode* node);
  void ask_for_map(TimePoint now);
  void read_map(const RespValue& reply, const RedisNode& asked);
  void choose_used();

  const RedisOptions& options_;
  RedisTransport& transport_;
  const Clock& clock_;
  const std::shared_ptr<const SharedSecret> secret_;
  Random random_;
  std::vector<std::unique_ptr<RedisNode>> nodes_;
  std::map<const RedisNode*, TimePoint> full_until_;
  std::map<const RedisNode*, std::uint32_t> orders_;  ///< renewals and removals that are under way

  // The map of a cluster.
  std::vector<RedisNode*> slots_;  ///< empty: there is no map yet. Null: no node has the slot
  std::vector<RedisNode*> mapped_;
  bool map_wanted_ = false;
  TimePoint map_next_{};                  ///< no question before
  std::shared_ptr<bool> map_question_{};  ///< of the one that is under way: false once nobody waits for it
  RedisNode* map_asked_ = nullptr;
  TimePoint map_give_up_ = never;
  std::string map_trouble_;
  std::uint64_t map_changes_ = 0;

  std::unordered_map<std::uint64_t, std::shared_ptr<RedisOperation>> operations_;
  std::set<std::pair<TimePoint, std::uint64_t>> deadlines_;  ///< and the tokens
  std::vector<std::shared_ptr<RedisOperation>> without_map_;
  std::vector<std::unique_ptr<SharedValueReader>> readers_;  ///< not in use
  SharedValueWriter writer_;
  SharedWriteIds write_ids_;
  std::vector<SharedEvent> events_;
  std::uint64_t bytes_ended_ = 0;
  SharedStoreStat stat_;
};

}  // namespace terrace
