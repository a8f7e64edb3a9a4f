#pragma once

#include "runtime/events/event_stream.hpp"
#include "terrace/clock.hpp"
#include "terrace/event_publisher.hpp"

#include <memory>
#include <string>

namespace terrace::events {

/// The sockets of a publisher: a PUB socket for subscribers, and a ROUTER socket for those that missed batches. It speaks the
/// protocol itself instead of using libzmq, which has no limit on what strangers make it keep. EventPublisher tells the limits.
///
/// A subscriber has a place among the latest batches and no queue of its own; the batches are those of the buffer for replay. A
/// request for past batches is answered before the next one of its connection is read, as fast as that connection takes them.
///
/// Ownership: options and stream must outlive it. Threads: one, except the addresses. In a forked child, nothing may be called.
class EventServer {
 public:
  /// Binds the addresses, or begins to connect. Throws std::invalid_argument and std::system_error with one sentence.
  EventServer(const EventPublisherOptions& options, EventStream& stream);
  ~EventServer();
  EventServer(const EventServer&) = delete;
  EventServer& operator=(const EventServer&) = delete;

  [[nodiscard]] const std::string& endpoint() const;
  [[nodiscard]] const std::string& replay_endpoint() const;

  /// Sends a batch to all subscribers that are connected now.
  void publish(const Batch& batch);
  /// Waits until the descriptor is readable, `until` has come, or a peer has been served. May throw std::bad_alloc and what the
  /// stream throws; the next call goes on.
  void serve(int descriptor, TimePoint until);
  /// Sends what can be sent without waiting.
  void flush();
  /// The stream begins again with its first batch: disconnects all peers.
  void begin_again();

  /// Adds what this class counts.
  void add_to(EventPublisherStats& stats) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace terrace::events
