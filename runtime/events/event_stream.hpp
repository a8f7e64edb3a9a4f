#pragma once

#include "runtime/events/batch_writer.hpp"
#include "runtime/events/block_directory.hpp"
#include "terrace/event_publisher.hpp"
#include "terrace/statistics.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace::events {

/// One batch, as it is published and as it is kept for replay.
struct Batch {
  std::uint64_t sequence = 0;
  std::shared_ptr<const std::string> payload{};
};

/// The answer to a request for past batches, which is sent piece by piece (EventStream::next). Its batches have consecutive
/// numbers:
///
///     from      state_from                    buffer_from            to
///      | empty   | the present state           | batches of the buffer |
///
/// The first two parts exist only if the subscriber asks for batches that the buffer does not have any more. The state and then
/// the later batches give the same as all batches from the beginning would: the last event of a block and tier decides.
struct Replay {
  std::uint64_t next = 0;
  std::uint64_t state_from = 0;
  std::uint64_t buffer_from = 0;
  std::uint64_t to = 0;
  std::shared_ptr<const std::vector<RecordId>> state{};  ///< null: there is no such part
  bool was_cut = false;                                  ///< the buffer has dropped batches that were not sent yet
};

/// Turns changes of a cache into numbered batches of events, and keeps batches for subscribers that missed them. The first batch
/// begins by saying that all blocks are gone. It has no thread, clock or socket.
///
/// Threads: one.
class EventStream {
 public:
  explicit EventStream(const EventPublisherOptions& options);

  /// Adds what came since the last call, with `time` in seconds since 1970: descriptions and then changes. Appends the batches.
  void describe(const BlockTokens& blocks, double time, std::vector<Batch>& out);
  void apply(std::span<const KvEvent> events, double time, std::vector<Batch>& out);
  /// Changes were lost, so that it is not known which blocks are where.
  void lose_all(double time, std::vector<Batch>& out);
  /// Ends the batch that is being collected, if there is one.
  void flush(double time, std::vector<Batch>& out);
  /// Makes an empty batch.
  void beat(double time, std::vector<Batch>& out) { add_batch(time, out); }

  /// Begins the answer to a request for all batches from this number on.
  [[nodiscard]] Replay replay(std::uint64_t from);
  /// Returns the next batch of the answer; nothing at its end.
  [[nodiscard]] std::optional<Batch> next(Replay& replay, double time);

  /// Counts of what this class does. Its owner adds its own.
  [[nodiscard]] EventPublisherStats stats() const;
  void check_invariants() const;

 private:
  void announce(std::span<const RecordId> blocks, double time, std::vector<Batch>& out);
  void clear(double time, std::vector<Batch>& out);
  void flush_if_full(double time, std::vector<Batch>& out);
  void add_batch(double time, std::vector<Batch>& out);
  [[nodiscard]] std::string state_batch(const Replay& replay, double time);

  std::size_t buffer_steps_;
  std::size_t buffer_bytes_max_;
  BlockDirectory blocks_;
  BatchWriter writer_;
  BatchWriter state_writer_;
  std::deque<std::shared_ptr<const std::string>> buffer_;
  std::uint64_t buffer_from_ = 0;  ///< number of the first batch of the buffer
  std::size_t buffer_bytes_ = 0;
  std::weak_ptr<const std::vector<RecordId>> state_;  ///< of the answers under way
  std::uint64_t state_at_ = 0;                        ///< the number of the next batch when it was made
  EventPublisherStats stats_{};
};

}  // namespace terrace::events
