#pragma once

#include "terrace/clock.hpp"
#include "terrace/export.hpp"
#include "terrace/keys.hpp"
#include "terrace/result.hpp"
#include "terrace/statistics.hpp"
#include "terrace/types.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace terrace {

/// Options of an EventPublisher: where and how it publishes. The names are those of vLLM's KVEventsConfig, where it has the
/// option.
struct EventPublisherOptions {
  /// Address of the socket for subscribers: "tcp://ADDRESS:PORT", "tcp://*:PORT" for all interfaces, or "ipc://PATH". If the port
  /// is 0, the system chooses one. A socket of a dead process at PATH is replaced; any other file stays, and the address is in
  /// use. Events contain the tokens of prompts, and subscribers are not authenticated, so the default can be reached from this
  /// machine only.
  std::string endpoint = "tcp://127.0.0.1:5557";
  /// If true, the socket connects to `endpoint`, where a subscriber of several engines is bound, instead of binding it.
  bool connect = false;
  /// Address of the socket for replay requests, which is always bound. Empty: there is no replay.
  std::string replay_endpoint{};
  /// Subscribers may select messages by the beginning of their topic.
  std::string topic{};
  /// Rank of this engine among data-parallel replicas. It is a field of each batch. It is also added to the ports of the two
  /// addresses, unless they are 0 or `connect` is set, so that all replicas can have the same options.
  std::uint32_t data_parallel_rank = 0;
  /// Number of past batches that are kept for replay.
  std::uint32_t buffer_steps = 10'000;
  /// The most memory for these batches; the oldest are dropped first.
  Bytes buffer_bytes = MiB * 64;
  /// Number of batches that a subscriber may be behind (at most buffer_bytes). A slower one loses the oldest of them, and notices
  /// that by the sequence numbers.
  std::uint32_t hwm = 10'000;
  /// Number of events, and number of described blocks, that may wait for the publisher's thread (EventPublisher::publish). A
  /// single call may bring more.
  std::uint32_t max_queue_size = 100'000;
  /// Number of blocks whose tokens are kept. Each takes about 200 bytes and 4 bytes a token.
  std::uint32_t max_blocks = 1'000'000;
  /// After so long without events an empty batch is published, so that a subscriber that came late or lost the last batch notices
  /// it.
  Duration heartbeat = std::chrono::seconds{5};
};

/// Describes consecutive blocks of a prompt: the tokens behind their keys.
struct BlockTokens {
  /// The keys of the blocks, as events have them.
  std::span<const BlockKey> keys{};
  /// The tokens of all these blocks, `block_tokens` for each.
  std::span<const TokenId> tokens{};
  std::uint32_t block_tokens = 0;
  /// The key of the block before the first one; none if the prompt begins with it.
  std::optional<BlockKey> parent{};
  GroupId group{};
  /// Name of the LoRA adapter; empty: none.
  std::string_view adapter{};
};

/// Counts since the publisher was made.
struct EventPublisherStats {
  std::uint64_t batches = 0;          ///< published; also the sequence number of the next one
  std::uint64_t bytes = 0;            ///< of these batches
  std::uint64_t stored = 0;           ///< published copies of blocks, one for each tier
  std::uint64_t removed = 0;          ///< likewise
  std::uint64_t cleared = 0;          ///< published events that say that all blocks are gone
  std::uint64_t without_tokens = 0;   ///< `stored` events that were not published, because nobody has described their block
  std::uint64_t not_remembered = 0;   ///< blocks for which max_blocks left no place; nothing is published about them
  std::uint64_t queue_overflows = 0;  ///< calls of publish() that were refused; subscribers were told that all blocks are gone
  std::uint64_t descriptions_refused = 0;  ///< blocks in calls of describe() that were refused
  std::uint64_t replays = 0;               ///< requests of subscribers for past batches
  std::uint64_t replayed_batches = 0;      ///< sent in answer to them
  std::uint64_t snapshots = 0;             ///< replays that began before the buffer and got the present state instead
  std::uint64_t replays_cut = 0;           ///< replays that ended early, because the subscriber was too slow or went away
  std::uint64_t malformed_requests = 0;
  std::uint64_t batches_lost = 0;   ///< batches that a subscriber did not get, because it was too slow; of all subscribers
  std::uint64_t peers_refused = 0;  ///< connections that were closed because there was no place
  std::uint64_t peers_dropped = 0;  ///< connections that were closed because of what the peer sent, or did not read
  /// Errors in the publisher's thread, as when no memory is left. It then forgets everything and begins again with batch 0, as
  /// after a restart; the other counts begin again, too.
  std::uint64_t failures = 0;
  std::uint64_t subscribers = 0;       ///< connected now, with a subscription that fits the topic
  std::uint64_t known_blocks = 0;      ///< blocks that are remembered now
  std::uint64_t published_blocks = 0;  ///< the part of known_blocks that subscribers know now
  std::uint64_t buffered_batches = 0;  ///< kept for replay now
};

/// Publishes over ZeroMQ which blocks a cache has in device memory (medium "GPU"), host memory ("CPU") and storage ("STORAGE"),
/// in the format of vLLM, for routers that send a prompt to the engine that has most of it. docs/events.md describes the
/// messages, and what a subscriber can rely on.
///
///     EventPublisher publisher{{.endpoint = "tcp://10.0.0.7:5557", .replay_endpoint = "tcp://10.0.0.7:5558"}};
///     cache.record_events();
///     (void)publisher.describe({.keys = chain.keys(), .tokens = tokens, .block_tokens = 16});  // a new request
///     cache.take_events(events);                                                                // in every step
///     (void)publisher.publish(events);
///
/// Events of a cache have keys, and routers compare tokens. So the engine describes blocks, once, before or after they are
/// cached. Nothing is published about a block without a description. Describe only blocks of full attention whose content depends
/// on nothing but the tokens before their end and the adapter: a router knows nothing else of a prompt.
///
/// Copies in a shared store are not published, because they are equally near for every engine.
///
/// Limits: strangers can connect, so all that they can make the publisher keep is bounded. It has 256 connections of subscribers
/// and 64 for replay; if all are taken, one that has not finished its handshake is closed for a new one, otherwise the new one. A
/// frame of a peer has at most 1024 bytes and the length of the topic. Of subscriptions only those that fit the topic are kept. A
/// connection has at most 64 KiB and one batch under way; a subscriber reads from the batches that are kept anyway (hwm,
/// buffer_bytes). A request for replay is answered before the next one of its connection is read; answers do not wait for each
/// other, and each may hold 4 bytes for each published block. A peer that does not finish its handshake, or takes nothing of what
/// is sent to it, is disconnected after 30 s.
///
/// Threads: calls from any, several at once. They copy into a queue of bounded size, and make no system call but at most one
/// write to an eventfd. A thread of the publisher does everything else; no subscriber can delay a call. In a forked child, calls
/// fail with `stopped`, and the destructor does nothing; the child keeps connections open until it ends or calls exec.
class TERRACE_API EventPublisher {
 public:
  /// Binds the addresses. Throws std::invalid_argument (an option is wrong) and std::system_error (an address cannot be used, for
  /// example because another process uses its port or path), each with one sentence.
  explicit EventPublisher(const EventPublisherOptions& options);
  /// Publishes what is queued. Does not wait for subscribers.
  ~EventPublisher();
  EventPublisher(const EventPublisher&) = delete;
  EventPublisher& operator=(const EventPublisher&) = delete;

  /// Tells the tokens of blocks. Blocks that are described already keep their description. A block that is cached is published
  /// now. Fails: invalid_argument (there are not block_tokens tokens for each key), refused (the queue is full), stopped (a
  /// forked child); nothing of the call is used then, and the blocks can be described later.
  Result<void> describe(const BlockTokens& blocks);

  /// Publishes changes of the cache, in their order. None may be left out; a copy that is known already may be named again.
  /// Fails: refused (the queue is full), stopped (a forked child). After `refused` the published state is wrong, so subscribers
  /// are told that all blocks are gone, and learn from later calls alone.
  Result<void> publish(std::span<const KvEvent> events);

  [[nodiscard]] EventPublisherStats stats() const;
  /// The addresses, with the ports that are used.
  [[nodiscard]] const std::string& endpoint() const;
  [[nodiscard]] const std::string& replay_endpoint() const;
  /// Returns false in a child that was forked after the construction.
  [[nodiscard]] bool is_of_this_process() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace terrace
