#include "transfer/engine/transfer_scheduler.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace terrace {
namespace {

constexpr std::array<Direction, direction_count> directions{Direction::swap_out, Direction::swap_in};

std::size_t index(Direction direction) { return static_cast<std::size_t>(direction); }
std::size_t index(Urgency urgency) { return static_cast<std::size_t>(urgency); }

TransferSchedulerConfig checked(TransferSchedulerConfig config) {
  const auto has_size = [](const DevicePool& pool) { return count(pool.block_bytes) > 0; };
  if (config.pools.empty() || !std::ranges::all_of(config.pools, has_size))
    throw std::invalid_argument{"transfer scheduler: block_bytes must not be 0"};
  if (count(config.rates[index(Urgency::request)]) > 0) {
    throw std::invalid_argument{"transfer scheduler: the rate of requests must be 0, because they wait for their transfers"};
  }
  const auto has_layers = [](const DevicePool& pool) { return pool.layers > 0 && count(pool.block_bytes) % pool.layers == 0; };
  if (!std::ranges::all_of(config.pools, has_layers))
    throw std::invalid_argument{"transfer scheduler: a pool's layers must divide its blocks"};
  if (count(config.pieces.bytes) == 0 || count(config.pieces.bytes_in_flight) == 0 || config.pieces.in_flight == 0) {
    throw std::invalid_argument{"transfer scheduler: the size of pieces, and how much is under way, must not be 0"};
  }
  return config;
}

/// Returns how many parts (blocks, or layers of blocks) fit into a piece. The result is at least 1, even if a part is larger.
std::uint64_t parts_per_piece(const TransferSchedulerConfig& config, Bytes part) {
  return std::max<std::uint64_t>(config.pieces.bytes / part, 1);
}

Bytes largest_piece(const TransferSchedulerConfig& config) {
  Bytes largest{};
  for (const DevicePool& pool : config.pools) {
    const Bytes layer{count(pool.block_bytes) / pool.layers};
    for (const Bytes part : {pool.block_bytes, layer}) largest = std::max(largest, part * parts_per_piece(config, part));
  }
  return largest;
}

template <std::size_t... urgency>
std::array<TokenBucket, urgency_count> buckets(const TransferSchedulerConfig& config, std::index_sequence<urgency...>) {
  return {TokenBucket{config.rates[urgency], largest_piece(config)}...};
}

}  // namespace

TransferScheduler::TransferScheduler(TransferSchedulerConfig config)
    : config_{checked(std::move(config))}, buckets_{buckets(config_, std::make_index_sequence<urgency_count>{})} {}

void TransferScheduler::limit(Urgency urgency, BytesPerSecond per_second) {
  TERRACE_CHECK(urgency != Urgency::request);
  buckets_[index(urgency)].set_rate(per_second);
}

Result<void> TransferScheduler::submit(Transfer&& transfer) {
  const bool has_empty_run = std::ranges::any_of(transfer.runs, [](const SlotRun& run) { return run.count == 0; });
  const bool has_pool = transfer.pool.value() < config_.pools.size();
  if (transfer.runs.empty() || has_empty_run || !has_pool) return Errc::invalid_argument;
  const std::uint32_t blocks = block_count(transfer.runs);
  const Lane& lane = lanes_[index(transfer.direction)][index(transfer.urgency)];
  if (lane.queued_blocks + blocks > config_.queued_blocks_max) return Errc::refused;

  const Handle handle = entries_.add({});
  const bool is_new = handles_.emplace(transfer.id, handle).second;
  TERRACE_CHECK(is_new);  // events about two transfers with one id would be ambiguous
  if (transfer.deadline != never) deadlines_.set(handle, transfer.deadline);
  Entry& entry = entries_.at(handle);
  entry.transfer = std::move(transfer);
  if (entry.transfer.by_layer) entry.layers = pool_of(entry).layers;
  entry.outcomes.assign(blocks, BlockOutcome::cancelled);
  enqueue(handle);
  return {};
}

void TransferScheduler::raise(TransferId id, Urgency urgency) {
  const auto found = handles_.find(id);
  if (found == handles_.end()) return;
  Entry& entry = entries_.at(found->second);
  if (urgency >= entry.transfer.urgency) return;
  const bool queued = entry.queued;
  if (queued) unlink(found->second);
  entry.transfer.urgency = urgency;
  if (queued) enqueue(found->second);
}

void TransferScheduler::postpone(TransferId id, TimePoint deadline) {
  const auto found = handles_.find(id);
  if (found == handles_.end()) return;
  Entry& entry = entries_.at(found->second);
  if (entry.reported || deadline <= entry.transfer.deadline) return;
  entry.transfer.deadline = deadline;
  deadlines_.erase(found->second);
  if (deadline != never) deadlines_.set(found->second, deadline);
}

void TransferScheduler::cancel(TransferId id) {
  const auto found = handles_.find(id);
  if (found != handles_.end()) cancel(found->second);
}

void TransferScheduler::cancel_all() {
  for (auto& by_urgency : lanes_) {
    for (Lane& lane : by_urgency) {
      while (lane.first != no_handle) cancel(lane.first);
    }
  }
}

void TransferScheduler::cancel(Handle handle) {
  if (!entries_.at(handle).queued) return;  // the whole transfer has started, so it ends in the usual way
  drop_queued(handle, Errc::cancelled);
  end_if_idle(handle);
}

void TransferScheduler::expire(TimePoint now) {
  now_ = std::max(now_, now);
  while (!deadlines_.empty() && deadlines_.top().priority <= now) {
    const Handle handle = deadlines_.top().handle;
    deadlines_.erase(handle);
    Entry& entry = entries_.at(handle);
    if (entry.queued) drop_queued(handle, Errc::deadline_exceeded);
    if (entry.pieces_under_way > 0) {
      if (!entry.error) entry.error = Errc::deadline_exceeded;
      for (const UnderWay& piece : under_way_) {
        if (piece.handle != handle) continue;
        // The device may still copy this piece, so its slots must not be reused yet.
        std::fill_n(entry.outcomes.begin() + piece.first_block, piece.blocks, BlockOutcome::unconfirmed);
      }
      report(entry, TransferEvent::Kind::finished);
      entry.reported = true;
    }
    end_if_idle(handle);
  }
}

std::optional<Piece> TransferScheduler::next(Direction direction, TimePoint now) {
  expire(now);
  for (std::size_t urgency = 0; urgency < urgency_count; ++urgency) {
    const Handle handle = lanes_[index(direction)][urgency].first;
    if (handle == no_handle) continue;
    TokenBucket& bucket = buckets_[urgency];
    const Bytes cost = next_piece_bytes(entries_.at(handle));
    // Do not try less urgent lanes: a piece that waits for room must not be overtaken.
    if (!has_room(entries_.at(handle))) return std::nullopt;
    if (now < bucket.allowed_at(cost)) continue;  // the less urgent lanes have their own rate limits
    bucket.take(cost, now);
    return cut(handle);
  }
  return std::nullopt;
}

TransferId TransferScheduler::finish(std::uint64_t token, ErrorCode error, TimePoint now, Duration took) {
  now_ = std::max(now_, now);
  const auto found = std::ranges::find(under_way_, token, &UnderWay::token);
  TERRACE_CHECK(found != under_way_.end());
  const UnderWay piece = *found;
  *found = under_way_.back();
  under_way_.pop_back();

  Entry& entry = entries_.at(piece.handle);
  --entry.pieces_under_way;
  entry.copying += took;
  if (error) std::fill_n(entry.outcomes.begin() + piece.first_block, piece.blocks, BlockOutcome::failed);
  if (error && !entry.error) entry.error = error;
  const TransferId id = entry.transfer.id;
  report_layers(piece.handle);
  end_if_idle(piece.handle);
  return id;
}

void TransferScheduler::take_events(std::vector<TransferEvent>& out) {
  std::ranges::move(events_, std::back_inserter(out));
  events_.clear();
}

TimePoint TransferScheduler::oldest_piece() const {
  TimePoint oldest = never;
  for (const UnderWay& piece : under_way_) oldest = std::min(oldest, piece.began);
  return oldest;
}

TimePoint TransferScheduler::next_deadline() const {
  TimePoint soonest = deadlines_.empty() ? never : deadlines_.top().priority;
  for (const Direction direction : directions) {
    for (std::size_t urgency = 0; urgency < urgency_count; ++urgency) {
      const Handle head = lanes_[index(direction)][urgency].first;
      if (head == no_handle) continue;
      // This lane and the less urgent lanes continue when a piece ends, not at a time.
      const Entry& first = *entries_.find(head);
      if (!has_room(first)) break;
      if (buckets_[urgency].limited()) soonest = std::min(soonest, buckets_[urgency].allowed_at(next_piece_bytes(first)));
    }
  }
  return soonest;
}

TransferScheduler::Lane& TransferScheduler::lane_of(const Entry& entry) {
  return lanes_[index(entry.transfer.direction)][index(entry.transfer.urgency)];
}

TransferScheduler::Cut TransferScheduler::next_cut(const Entry& entry) const {
  const std::uint64_t parts = parts_per_piece(config_, Bytes{count(pool_of(entry).block_bytes) / entry.layers});
  const auto blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(parts, entry.blocks() - entry.block));
  // A piece takes several layers only if it takes all blocks of each.
  const std::uint64_t layers = std::clamp<std::uint64_t>(parts / entry.blocks(), 1, entry.layers - entry.layer);
  return {blocks, static_cast<std::uint32_t>(layers)};
}

Bytes TransferScheduler::next_piece_bytes(const Entry& entry) const {
  const Cut next = next_cut(entry);
  return Bytes{count(pool_of(entry).block_bytes) / entry.layers} * next.layers * next.blocks;
}

/// Returns true if the limits allow one more piece under way in its direction. The request lane has its own limits; the other
/// lanes share theirs.
bool TransferScheduler::has_room(const Entry& entry) const {
  const bool of_request = entry.transfer.urgency == Urgency::request;
  Bytes bytes = next_piece_bytes(entry);
  std::uint32_t pieces = 0;
  for (const UnderWay& piece : under_way_) {
    if (piece.of_request != of_request || entries_.find(piece.handle)->transfer.direction != entry.transfer.direction) continue;
    ++pieces;
    bytes += piece.bytes;
  }
  const std::uint32_t always = of_request ? 2 : 1;
  return pieces < config_.pieces.in_flight && (pieces < always || bytes <= config_.pieces.bytes_in_flight);
}

void TransferScheduler::enqueue(Handle handle) {
  Entry& entry = entries_.at(handle);
  Lane& lane = lane_of(entry);
  entry.queued = true;
  entry.ahead = lane.last;
  entry.behind = no_handle;
  (lane.last == no_handle ? lane.first : entries_.at(lane.last).behind) = handle;
  lane.last = handle;
  lane.queued_blocks += entry.blocks() - entry.started;
}

void TransferScheduler::unlink(Handle handle) {
  Entry& entry = entries_.at(handle);
  Lane& lane = lane_of(entry);
  (entry.ahead == no_handle ? lane.first : entries_.at(entry.ahead).behind) = entry.behind;
  (entry.behind == no_handle ? lane.last : entries_.at(entry.behind).ahead) = entry.ahead;
  lane.queued_blocks -= entry.blocks() - entry.started;
  entry.queued = false;
}

void TransferScheduler::drop_queued(Handle handle, Errc why) {
  unlink(handle);
  if (!entries_.at(handle).error) entries_.at(handle).error = why;
}

Piece TransferScheduler::cut(Handle handle) {
  Entry& entry = entries_.at(handle);
  const Cut taken_now = next_cut(entry);
  const std::uint32_t blocks = taken_now.blocks;
  const Transfer& whole = entry.transfer;
  Piece piece{{.token = ++last_token_, .direction = whole.direction, .after = whole.after, .pool = whole.pool}, whole.id};
  if (entry.layers > 1) piece.layers = LayerRange{entry.layer, taken_now.layers};
  under_way_.push_back({piece.token, handle, entry.block, blocks, entry.layer, next_piece_bytes(entry),
                        entry.transfer.urgency == Urgency::request, now_});
  for (std::uint32_t left = blocks; left > 0;) {
    const SlotRun& run = entry.transfer.runs[entry.run];
    const std::uint32_t taken = std::min(left, run.count - entry.within_run);
    piece.runs.push_back({.source = SlotId{run.source.value() + entry.within_run},
                          .destination = SlotId{run.destination.value() + entry.within_run},
                          .count = taken});
    left -= taken;
    entry.within_run += taken;
    if (entry.within_run == run.count) {
      ++entry.run;
      entry.within_run = 0;
    }
  }
  entry.block += blocks;
  if (entry.layer + taken_now.layers == entry.layers) {
    entry.started += blocks;
    lane_of(entry).queued_blocks -= blocks;
  }
  if (entry.block == entry.blocks()) {
    entry.layer += taken_now.layers;
    entry.block = 0;
    entry.run = 0;
  }
  piece.layers_of_transfer = entry.layers;
  piece.layers_started = entry.layer;
  if (entry.started == entry.blocks()) unlink(handle);
  if (!entry.first_start) entry.first_start = now_;
  ++entry.pieces_under_way;
  return piece;
}

/// Reports the layers that have arrived. Pieces are cut in the order of the layers, so all layers before the first layer that is
/// under way or not cut yet have arrived.
void TransferScheduler::report_layers(Handle handle) {
  Entry& entry = entries_.at(handle);
  if (entry.layers == 1 || entry.error) return;
  std::uint32_t arrived = entry.layer;
  for (const UnderWay& piece : under_way_) {
    if (piece.handle == handle) arrived = std::min(arrived, piece.first_layer);
  }
  if (arrived <= entry.reported_layers || arrived == entry.layers) return;
  entry.reported_layers = arrived;
  report(entry, TransferEvent::Kind::layers);
}

/// Ends the transfer if no piece of it is queued or under way.
void TransferScheduler::end_if_idle(Handle handle) {
  Entry& entry = entries_.at(handle);
  if (entry.queued || entry.pieces_under_way > 0) return;
  report(entry, entry.reported ? TransferEvent::Kind::confirmed : TransferEvent::Kind::finished);
  events_.back().runs = std::move(entry.transfer.runs);
  deadlines_.erase(handle);
  handles_.erase(entry.transfer.id);
  (void)entries_.take(handle);
}

void TransferScheduler::report(Entry& entry, TransferEvent::Kind kind) {
  TransferEvent event = event_of(entry.transfer, kind);
  if (entry.first_start) event.took = now_ - *entry.first_start;
  event.copying = entry.copying;
  event.error = entry.error;
  if (kind == TransferEvent::Kind::layers) event.layers = entry.reported_layers;
  if (kind == TransferEvent::Kind::finished) {
    // A block has arrived if all its layers have started, it did not fail, and it is not under way any more.
    std::replace(entry.outcomes.begin(), entry.outcomes.begin() + entry.started, BlockOutcome::cancelled, BlockOutcome::done);
    event.outcomes = entry.outcomes;
    event.moved = pool_of(entry).block_bytes * static_cast<std::uint64_t>(std::ranges::count(entry.outcomes, BlockOutcome::done));
  }
  events_.push_back(std::move(event));
}

void TransferScheduler::check_invariants() const {
  TERRACE_CHECK(handles_.size() == entries_.size());
  std::size_t queued = 0;
  for (const Direction direction : directions) {
    for (std::size_t urgency = 0; urgency < urgency_count; ++urgency) {
      const Lane& lane = lanes_[index(direction)][urgency];
      std::uint64_t blocks = 0;
      Handle ahead = no_handle;
      for (Handle at = lane.first; at != no_handle; at = entries_.find(at)->behind) {
        const Entry& entry = *entries_.find(at);
        TERRACE_CHECK(entry.queued);
        TERRACE_CHECK(!entry.reported);
        TERRACE_CHECK(entry.ahead == ahead);
        TERRACE_CHECK(entry.transfer.direction == direction);
        TERRACE_CHECK(index(entry.transfer.urgency) == urgency);
        TERRACE_CHECK(entry.started < entry.blocks());
        TERRACE_CHECK(entry.layer < entry.layers && entry.block < entry.blocks());
        TERRACE_CHECK(entry.layers == 1 ? entry.block == entry.started : entry.reported_layers <= entry.layer);
        blocks += entry.blocks() - entry.started;
        ++queued;
        ahead = at;
      }
      TERRACE_CHECK(lane.last == ahead);
      TERRACE_CHECK(lane.queued_blocks == blocks);
    }
  }
  TERRACE_CHECK(under_way_.size() <= 2 * direction_count * std::size_t{config_.pieces.in_flight});
  std::size_t pieces_of_entries = 0;
  std::size_t with_deadline = 0;
  for (const auto& [id, handle] : handles_) {
    const Entry& entry = *entries_.find(handle);
    TERRACE_CHECK(entry.transfer.id == id);
    TERRACE_CHECK(entry.queued || entry.pieces_under_way > 0);
    TERRACE_CHECK(entry.layers == 1 || entry.layers == pool_of(entry).layers);
    TERRACE_CHECK(deadlines_.contains(handle) == (entry.transfer.deadline != never && !entry.reported));
    queued -= entry.queued;
    pieces_of_entries += entry.pieces_under_way;
    with_deadline += deadlines_.contains(handle);
  }
  TERRACE_CHECK(queued == 0);
  TERRACE_CHECK(pieces_of_entries == under_way_.size());
  TERRACE_CHECK(with_deadline == deadlines_.size());
  deadlines_.check_invariants();
}

}  // namespace terrace
