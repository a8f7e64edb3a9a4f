#include "runtime/events/event_stream.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <utility>

namespace terrace::events {
namespace {

/// Subscribers refuse batches with more than 4096 events or 16 MiB. Here an event has at least one block.
constexpr std::size_t batch_blocks_max = 256;
/// Blocks of one batch of the present state. Each has up to one event for each tier.
constexpr std::size_t state_blocks_max = 1024;
/// Empty batches before the present state. Some subscribers take a replay only if no number is missing; of an engine that has
/// published more, they learn from later events alone.
constexpr std::uint64_t empty_batches_max = 1'000'000;

/// Calls visit(tier) for each tier of the block.
template <class Visit>
void for_each_tier(const BlockDirectory::Record& block, const Visit& visit) {
  for (const Tier tier : all_tiers) {
    if (block.is_in(tier)) visit(tier);
  }
}

/// Writes the copies of published blocks. Blocks that follow each other and are in the same tiers are written tier by tier, so
/// that they become one event for each tier. Calls written() after each such run.
template <class Written>
void write_copies(const BlockDirectory& blocks, std::span<const RecordId> ids, BatchWriter& writer, const Written& written) {
  while (!ids.empty()) {
    const std::uint8_t tiers = blocks.at(ids.front()).tiers;
    const auto other = std::ranges::find_if(ids.first(std::min(ids.size(), batch_blocks_max)),
                                            [&](RecordId id) { return blocks.at(id).tiers != tiers; });
    const auto run = ids.first(static_cast<std::size_t>(other - ids.begin()));
    for_each_tier(blocks.at(run.front()), [&](Tier tier) {
      for (const RecordId id : run) {
        const BlockDirectory::Record& block = blocks.at(id);
        writer.stored(block.key, block.group, tier, *block.description);
      }
    });
    written();
    ids = ids.subspan(run.size());
  }
}

}  // namespace

EventStream::EventStream(const EventPublisherOptions& options)
    : buffer_steps_{options.buffer_steps},
      buffer_bytes_max_{count(options.buffer_bytes)},
      blocks_{options.max_blocks},
      writer_{options.data_parallel_rank},
      state_writer_{options.data_parallel_rank} {
  writer_.cleared();  // an engine that starts again has nothing of what subscribers know
}

void EventStream::describe(const BlockTokens& blocks, double time, std::vector<Batch>& out) {
  const auto adapter = blocks.adapter.empty() ? nullptr : std::make_shared<const std::string>(blocks.adapter);
  std::vector<RecordId> to_announce;
  std::optional<BlockKey> parent = blocks.parent;
  for (std::size_t i = 0; i < blocks.keys.size(); ++i) {
    const auto id = blocks_.find_or_add(blocks.keys[i], blocks.group);
    if (!id) {
      // A router finds no block whose parent it does not know.
      stats_.not_remembered += blocks.keys.size() - i;
      break;
    }
    if (!blocks_.at(*id).description) {
      const auto tokens = blocks.tokens.subspan(i * blocks.block_tokens, blocks.block_tokens);
      blocks_.describe(*id, {.tokens = {tokens.begin(), tokens.end()}, .parent = parent, .adapter = adapter});
      if (blocks_.at(*id).is_published()) to_announce.push_back(*id);
    }
    parent = blocks.keys[i];
  }
  announce(to_announce, time, out);
}

void EventStream::apply(std::span<const KvEvent> events, double time, std::vector<Batch>& out) {
  for (const KvEvent& event : events) {
    if (event.kind == KvEvent::Kind::cleared) {
      clear(time, out);
      continue;
    }
    if (index(event.source) >= tier_count) continue;  // a shared store
    const Tier tier = all_tiers[index(event.source)];
    if (event.kind == KvEvent::Kind::stored) {
      const auto id = blocks_.find_or_add(event.key, event.group);
      if (!id) {
        ++stats_.not_remembered;
        continue;
      }
      if (blocks_.at(*id).is_in(tier)) continue;
      blocks_.add_to(tier, *id);
      const BlockDirectory::Record& block = blocks_.at(*id);
      if (!block.description) {
        ++stats_.without_tokens;
        continue;
      }
      writer_.stored(event.key, event.group, tier, *block.description);
      ++stats_.stored;
    } else {
      const auto id = blocks_.find(event.key, event.group);
      if (!id || !blocks_.at(*id).is_in(tier)) continue;
      if (blocks_.at(*id).is_published()) {
        writer_.removed(event.key, event.group, tier);
        ++stats_.removed;
      }
      blocks_.remove_from(tier, *id);
    }
    flush_if_full(time, out);
  }
}

void EventStream::lose_all(double time, std::vector<Batch>& out) {
  ++stats_.queue_overflows;
  clear(time, out);
}

void EventStream::clear(double time, std::vector<Batch>& out) {
  blocks_.clear_tiers();
  writer_.cleared();
  ++stats_.cleared;
  flush_if_full(time, out);
}

void EventStream::announce(std::span<const RecordId> blocks, double time, std::vector<Batch>& out) {
  write_copies(blocks_, blocks, writer_, [&] { flush_if_full(time, out); });
  for (const RecordId id : blocks) for_each_tier(blocks_.at(id), [&](Tier) { ++stats_.stored; });
}

void EventStream::flush_if_full(double time, std::vector<Batch>& out) {
  if (writer_.size() >= batch_blocks_max) add_batch(time, out);
}

void EventStream::flush(double time, std::vector<Batch>& out) {
  const std::size_t at_first = stats_.batches == 0 ? 1 : 0;  // that all is gone goes with the first event
  if (writer_.size() > at_first) add_batch(time, out);
}

void EventStream::add_batch(double time, std::vector<Batch>& out) {
  const auto payload = std::make_shared<const std::string>(writer_.finish(time));
  const std::uint64_t sequence = stats_.batches++;
  stats_.bytes += payload->size();
  buffer_.push_back(payload);
  buffer_bytes_ += payload->size();
  while (buffer_.size() > buffer_steps_ || (buffer_bytes_ > buffer_bytes_max_ && buffer_.size() > 1)) {
    buffer_bytes_ -= buffer_.front()->size();
    buffer_.pop_front();
    ++buffer_from_;
  }
  out.push_back({sequence, payload});
}

Replay EventStream::replay(std::uint64_t from) {
  ++stats_.replays;
  Replay replay{.next = from, .state_from = from, .buffer_from = from, .to = buffer_from_ + buffer_.size()};
  if (from >= buffer_from_) return replay;
  replay.buffer_from = buffer_from_;
  // Answers that begin while the buffer has all batches since then share one list.
  replay.state = state_.lock();
  if (!replay.state || state_at_ < buffer_from_) {
    replay.state = std::make_shared<const std::vector<RecordId>>(blocks_.published());
    state_ = replay.state;
    state_at_ = replay.to;
  }
  // There is at least one batch, which says that all other blocks are gone.
  const std::uint64_t batches = std::max<std::uint64_t>(1, (replay.state->size() + state_blocks_max - 1) / state_blocks_max);
  const std::uint64_t missing = buffer_from_ - from;
  if (batches > missing) {
    // There are not enough numbers for the state. The subscriber sees that batches are missing.
    replay.state.reset();
    replay.next = replay.state_from = buffer_from_;
    return replay;
  }
  ++stats_.snapshots;
  replay.state_from = buffer_from_ - batches;
  if (missing - batches > empty_batches_max) replay.next = replay.state_from;
  return replay;
}

std::optional<Batch> EventStream::next(Replay& replay, double time) {
  if (replay.next >= replay.to) return std::nullopt;
  std::shared_ptr<const std::string> payload;
  if (replay.next < replay.buffer_from) {
    payload = std::make_shared<const std::string>(replay.next < replay.state_from ? state_writer_.finish(time)
                                                                                  : state_batch(replay, time));
  } else if (replay.next < buffer_from_) {
    replay.was_cut = true;
    ++stats_.replays_cut;
    return std::nullopt;
  } else {
    payload = buffer_[replay.next - buffer_from_];
  }
  ++stats_.replayed_batches;
  return Batch{replay.next++, std::move(payload)};
}

std::string EventStream::state_batch(const Replay& replay, double time) {
  const std::uint64_t number = replay.next - replay.state_from;
  if (number == 0) state_writer_.cleared();
  const std::size_t first = std::min<std::size_t>(number * state_blocks_max, replay.state->size());
  std::vector<RecordId> present;
  for (const RecordId id : std::span{*replay.state}.subspan(first, std::min(state_blocks_max, replay.state->size() - first))) {
    // A block that has been forgotten since the answer began may have given its number to another one, which is welcome, too.
    const BlockDirectory::Record* const block = blocks_.record(id);
    if (block != nullptr && block->is_published()) present.push_back(id);
  }
  write_copies(blocks_, present, state_writer_, [] {});
  return state_writer_.finish(time);
}

EventPublisherStats EventStream::stats() const {
  EventPublisherStats stats = stats_;
  stats.known_blocks = blocks_.size();
  stats.published_blocks = blocks_.published_count();
  stats.buffered_batches = buffer_.size();
  return stats;
}

void EventStream::check_invariants() const {
  blocks_.check_invariants();
  TERRACE_CHECK(stats_.batches == buffer_from_ + buffer_.size());
  TERRACE_CHECK(buffer_.size() <= buffer_steps_);
}

}  // namespace terrace::events
