#include "transfer/engine/lanes.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <utility>

namespace terrace {
namespace {

constexpr std::array<Direction, direction_count> directions{Direction::swap_out, Direction::swap_in};

std::size_t index(Direction direction) { return static_cast<std::size_t>(direction); }
std::size_t index(Urgency urgency) { return static_cast<std::size_t>(urgency); }

LanesConfig checked(LanesConfig config) {
  bool has_size = count(config.block_bytes) > 0;
  for (const Bytes bytes : config.other_block_bytes) has_size &= count(bytes) > 0;
  if (!has_size) throw std::invalid_argument{"transfer lanes: block_bytes must not be 0"};
  if (count(config.rates[index(Urgency::request)]) > 0) {
    throw std::invalid_argument{"transfer lanes: requests wait for their transfers, which have no rate"};
  }
  config.other_layers.resize(config.other_block_bytes.size(), 1);
  bool has_layers = config.layers > 0 && count(config.block_bytes) % config.layers == 0;
  for (std::size_t i = 0; i < config.other_layers.size(); ++i) {
    has_layers &= config.other_layers[i] > 0 && count(config.other_block_bytes[i]) % config.other_layers[i] == 0;
  }
  if (!has_layers) throw std::invalid_argument{"transfer lanes: a pool's layers must divide its blocks"};
  if (config.pieces_in_flight == 0) throw std::invalid_argument{"transfer lanes: pieces_in_flight must not be 0"};
  return config;
}

/// Whole blocks, or layers of blocks: at least one, however large that is.
std::uint64_t parts_per_piece(const LanesConfig& config, Bytes part) {
  return std::max<std::uint64_t>(config.piece_bytes / part, 1);
}

Bytes largest_piece(const LanesConfig& config) {
  Bytes largest{};
  const auto consider = [&](Bytes block, std::uint32_t layers) {
    const Bytes layer{count(block) / layers};
    for (const Bytes part : {block, layer}) largest = std::max(largest, part * parts_per_piece(config, part));
  };
  consider(config.block_bytes, config.layers);
  for (std::size_t i = 0; i < config.other_block_bytes.size(); ++i) consider(config.other_block_bytes[i], config.other_layers[i]);
  return largest;
}

template <std::size_t... urgency>
std::array<TokenBucket, urgency_count> buckets(const LanesConfig& config, std::index_sequence<urgency...>) {
  return {TokenBucket{config.rates[urgency], largest_piece(config)}...};
}

}  // namespace

Lanes::Lanes(LanesConfig config)
    : config_{checked(std::move(config))}, buckets_{buckets(config_, std::make_index_sequence<urgency_count>{})} {}

void Lanes::limit(Urgency urgency, Bytes per_second) {
  TERRACE_CHECK(urgency != Urgency::request);
  buckets_[index(urgency)].set_rate(per_second);
}

Result<void> Lanes::submit(TransferPlan&& plan) {
  const bool has_empty_run = std::ranges::any_of(plan.runs, [](const SlotRun& run) { return run.count == 0; });
  const bool has_pool = plan.pool.value() <= config_.other_block_bytes.size();
  if (plan.runs.empty() || has_empty_run || !has_pool) return Errc::invalid_argument;
  const std::uint32_t blocks = block_count(plan.runs);
  const Lane& lane = lanes_[index(plan.direction)][index(plan.urgency)];
  if (lane.queued_blocks + blocks > config_.queued_blocks_max) return Errc::refused;

  Handle handle = static_cast<Handle>(jobs_.size());
  if (free_.empty()) {
    jobs_.emplace_back();
  } else {
    handle = free_.back();
    free_.pop_back();
  }
  const bool is_new = handles_.emplace(plan.job, handle).second;
  TERRACE_CHECK(is_new);  // events about two jobs of one name would be ambiguous
  if (plan.deadline != never) deadlines_.set(handle, plan.deadline);
  Job& job = jobs_[handle];
  job.plan = std::move(plan);
  if (job.plan.by_layer) job.layers = layers_of(job.plan.pool);
  job.outcomes.assign(blocks, BlockOutcome::cancelled);
  enqueue(handle);
  return {};
}

void Lanes::raise(JobId id, Urgency urgency) {
  const auto found = handles_.find(id);
  if (found == handles_.end()) return;
  Job& job = jobs_[found->second];
  if (urgency >= job.plan.urgency) return;
  const bool queued = job.queued;
  if (queued) unlink(found->second);
  job.plan.urgency = urgency;
  if (queued) enqueue(found->second);
}

void Lanes::cancel(JobId id) {
  const auto found = handles_.find(id);
  if (found != handles_.end()) cancel(found->second);
}

void Lanes::cancel_all() {
  for (auto& by_urgency : lanes_) {
    for (Lane& lane : by_urgency) {
      while (lane.first != nobody) cancel(lane.first);
    }
  }
}

void Lanes::cancel(Handle handle) {
  if (!jobs_[handle].queued) return;  // all of it has started: it ends as it would have
  drop_queued(handle, Errc::cancelled);
  settle(handle);
}

void Lanes::expire(TimePoint now) {
  now_ = std::max(now_, now);
  while (!deadlines_.empty() && deadlines_.top().priority <= now) {
    const Handle handle = deadlines_.top().handle;
    deadlines_.erase(handle);
    Job& job = jobs_[handle];
    if (job.queued) drop_queued(handle, Errc::deadline_exceeded);
    if (job.pieces_under_way > 0) {
      if (!job.error) job.error = Errc::deadline_exceeded;
      for (const UnderWay& piece : under_way_) {
        if (piece.handle != handle) continue;
        std::fill_n(job.outcomes.begin() + piece.first_block, piece.blocks, BlockOutcome::unconfirmed);
      }
      report(job, TransferEvent::Kind::finished);
      job.reported = true;
    }
    settle(handle);
  }
}

std::optional<Piece> Lanes::next(Direction direction, TimePoint now) {
  expire(now);
  const std::uint32_t under_way = in_flight_[index(direction)];
  if (under_way == config_.pieces_in_flight) return std::nullopt;
  for (std::size_t urgency = 0; urgency < urgency_count; ++urgency) {
    const Handle handle = lanes_[index(direction)][urgency].first;
    if (handle == nobody) continue;
    if (urgency != index(Urgency::request) && under_way > 0) return std::nullopt;
    TokenBucket& bucket = buckets_[urgency];
    const Bytes cost = next_piece_bytes(jobs_[handle]);
    if (now < bucket.allowed_at(cost)) continue;  // those below it have rates of their own
    bucket.take(cost, now);
    return cut(handle);
  }
  return std::nullopt;
}

void Lanes::finish(std::uint64_t token, ErrorCode error, TimePoint now, Duration took) {
  now_ = std::max(now_, now);
  const auto found = std::ranges::find(under_way_, token, &UnderWay::token);
  TERRACE_CHECK(found != under_way_.end());
  const UnderWay piece = *found;
  *found = under_way_.back();
  under_way_.pop_back();

  Job& job = jobs_[piece.handle];
  --in_flight_[index(job.plan.direction)];
  --job.pieces_under_way;
  job.copying += took;
  if (error) std::fill_n(job.outcomes.begin() + piece.first_block, piece.blocks, BlockOutcome::failed);
  if (error && !job.error) job.error = error;
  tell_layers(piece.handle);
  settle(piece.handle);
}

void Lanes::take_events(std::vector<TransferEvent>& out) {
  std::ranges::move(events_, std::back_inserter(out));
  events_.clear();
}

TimePoint Lanes::next_deadline() const {
  TimePoint soonest = deadlines_.empty() ? never : deadlines_.top().priority;
  for (std::size_t urgency = 0; urgency < urgency_count; ++urgency) {
    if (!buckets_[urgency].limited()) continue;
    for (const Direction direction : directions) {
      const Handle head = lanes_[index(direction)][urgency].first;
      // Beside a piece under way it is its finish() that lets the next one go, not time.
      if (head == nobody || in_flight_[index(direction)] > 0) continue;
      soonest = std::min(soonest, buckets_[urgency].allowed_at(next_piece_bytes(jobs_[head])));
    }
  }
  return soonest;
}

Lanes::Lane& Lanes::lane_of(const Job& job) { return lanes_[index(job.plan.direction)][index(job.plan.urgency)]; }

Bytes Lanes::block_bytes(const Job& job) const {
  const std::size_t pool = job.plan.pool.value();
  return pool == 0 ? config_.block_bytes : config_.other_block_bytes[pool - 1];
}

std::uint32_t Lanes::layers_of(PoolId pool) const {
  return pool.value() == 0 ? config_.layers : config_.other_layers[pool.value() - 1U];
}

Lanes::Cut Lanes::next_cut(const Job& job) const {
  const std::uint64_t parts = parts_per_piece(config_, Bytes{count(block_bytes(job)) / job.layers});
  const auto blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(parts, job.blocks() - job.block));
  // Several layers only where each is whole.
  const std::uint64_t layers = std::clamp<std::uint64_t>(parts / job.blocks(), 1, job.layers - job.layer);
  return {blocks, static_cast<std::uint32_t>(layers)};
}

Bytes Lanes::next_piece_bytes(const Job& job) const {
  const Cut next = next_cut(job);
  return Bytes{count(block_bytes(job)) / job.layers} * next.layers * next.blocks;
}

void Lanes::enqueue(Handle handle) {
  Job& job = jobs_[handle];
  Lane& lane = lane_of(job);
  job.queued = true;
  job.ahead = lane.last;
  job.behind = nobody;
  (lane.last == nobody ? lane.first : jobs_[lane.last].behind) = handle;
  lane.last = handle;
  lane.queued_blocks += job.blocks() - job.started;
}

void Lanes::unlink(Handle handle) {
  Job& job = jobs_[handle];
  Lane& lane = lane_of(job);
  (job.ahead == nobody ? lane.first : jobs_[job.ahead].behind) = job.behind;
  (job.behind == nobody ? lane.last : jobs_[job.behind].ahead) = job.ahead;
  lane.queued_blocks -= job.blocks() - job.started;
  job.queued = false;
}

void Lanes::drop_queued(Handle handle, Errc why) {
  unlink(handle);
  if (!jobs_[handle].error) jobs_[handle].error = why;
}

Piece Lanes::cut(Handle handle) {
  Job& job = jobs_[handle];
  const Cut taken_now = next_cut(job);
  const std::uint32_t blocks = taken_now.blocks;
  Piece piece{.token = ++last_token_,
              .job = job.plan.job,
              .pool = job.plan.pool,
              .direction = job.plan.direction,
              .after = job.plan.after,
              .runs = {}};
  if (job.layers > 1) piece.layers = LayerRange{job.layer, taken_now.layers};
  under_way_.push_back({piece.token, handle, job.block, blocks, job.layer});
  for (std::uint32_t left = blocks; left > 0;) {
    const SlotRun& run = job.plan.runs[job.run];
    const std::uint32_t taken = std::min(left, run.count - job.within_run);
    piece.runs.push_back({.source = SlotId{run.source.value() + job.within_run},
                          .destination = SlotId{run.destination.value() + job.within_run},
                          .count = taken});
    left -= taken;
    job.within_run += taken;
    if (job.within_run == run.count) {
      ++job.run;
      job.within_run = 0;
    }
  }
  job.block += blocks;
  if (job.layer + taken_now.layers == job.layers) {
    job.started += blocks;
    lane_of(job).queued_blocks -= blocks;
  }
  if (job.block == job.blocks()) {
    job.layer += taken_now.layers;
    job.block = 0;
    job.run = 0;
  }
  if (job.started == job.blocks()) unlink(handle);
  if (!job.first_start) job.first_start = now_;
  ++job.pieces_under_way;
  ++in_flight_[index(job.plan.direction)];
  return piece;
}

/// Pieces are cut in the order of the layers: what is before all that is under way or still to be cut has arrived.
void Lanes::tell_layers(Handle handle) {
  Job& job = jobs_[handle];
  if (job.layers == 1 || job.error) return;
  std::uint32_t arrived = job.layer;
  for (const UnderWay& piece : under_way_) {
    if (piece.handle == handle) arrived = std::min(arrived, piece.first_layer);
  }
  if (arrived <= job.told_layers || arrived == job.layers) return;
  job.told_layers = arrived;
  report(job, TransferEvent::Kind::layers);
}

/// Ends the job if nothing of it can start or move any more.
void Lanes::settle(Handle handle) {
  Job& job = jobs_[handle];
  if (job.queued || job.pieces_under_way > 0) return;
  report(job, job.reported ? TransferEvent::Kind::confirmed : TransferEvent::Kind::finished);
  events_.back().runs = std::move(job.plan.runs);
  release(handle);
}

void Lanes::report(Job& job, TransferEvent::Kind kind) {
  TransferEvent event{.job = job.plan.job,
                      .kind = kind,
                      .direction = job.plan.direction,
                      .layers = 0,
                      .outcomes = {},
                      .moved = {},
                      .took = job.first_start ? now_ - *job.first_start : Duration{},
                      .copying = job.copying,
                      .error = job.error};
  if (kind == TransferEvent::Kind::layers) event.layers = job.told_layers;
  if (kind == TransferEvent::Kind::finished) {
    // What has started whole, did not fail and is not under way any more has arrived.
    std::replace(job.outcomes.begin(), job.outcomes.begin() + job.started, BlockOutcome::cancelled, BlockOutcome::done);
    event.outcomes = job.outcomes;
    event.moved = block_bytes(job) * static_cast<std::uint64_t>(std::ranges::count(job.outcomes, BlockOutcome::done));
  }
  events_.push_back(std::move(event));
}

void Lanes::release(Handle handle) {
  deadlines_.erase(handle);
  handles_.erase(jobs_[handle].plan.job);
  jobs_[handle] = Job{};
  free_.push_back(handle);
}

void Lanes::check_invariants() const {
  TERRACE_CHECK(handles_.size() + free_.size() == jobs_.size());
  std::size_t queued = 0;
  for (const Direction direction : directions) {
    for (std::size_t urgency = 0; urgency < urgency_count; ++urgency) {
      const Lane& lane = lanes_[index(direction)][urgency];
      std::uint64_t blocks = 0;
      Handle ahead = nobody;
      for (Handle at = lane.first; at != nobody; at = jobs_[at].behind) {
        const Job& job = jobs_[at];
        TERRACE_CHECK(job.queued);
        TERRACE_CHECK(!job.reported);
        TERRACE_CHECK(job.ahead == ahead);
        TERRACE_CHECK(job.plan.direction == direction);
        TERRACE_CHECK(index(job.plan.urgency) == urgency);
        TERRACE_CHECK(job.started < job.blocks());
        TERRACE_CHECK(job.layer < job.layers && job.block < job.blocks());
        TERRACE_CHECK(job.layers == 1 ? job.block == job.started : job.told_layers <= job.layer);
        blocks += job.blocks() - job.started;
        ++queued;
        ahead = at;
      }
      TERRACE_CHECK(lane.last == ahead);
      TERRACE_CHECK(lane.queued_blocks == blocks);
    }
  }
  std::size_t pieces = 0;
  for (const Direction direction : directions) {
    TERRACE_CHECK(in_flight_[index(direction)] <= config_.pieces_in_flight);
    pieces += in_flight_[index(direction)];
  }
  TERRACE_CHECK(under_way_.size() == pieces);
  std::size_t pieces_of_jobs = 0;
  std::size_t with_deadline = 0;
  for (const auto& [id, handle] : handles_) {
    const Job& job = jobs_[handle];
    TERRACE_CHECK(job.plan.job == id);
    TERRACE_CHECK(job.queued || job.pieces_under_way > 0);
    TERRACE_CHECK(job.layers == 1 || job.layers == layers_of(job.plan.pool));
    TERRACE_CHECK(deadlines_.contains(handle) == (job.plan.deadline != never && !job.reported));
    queued -= job.queued;
    pieces_of_jobs += job.pieces_under_way;
    with_deadline += deadlines_.contains(handle);
  }
  TERRACE_CHECK(queued == 0);
  TERRACE_CHECK(pieces_of_jobs == pieces);
  TERRACE_CHECK(with_deadline == deadlines_.size());
  deadlines_.check_invariants();
}

}  // namespace terrace
