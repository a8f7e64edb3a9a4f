#include "storage/resilience/scrub.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace terrace {
namespace {

/// How many times a block's own time its read may wait for the owner's operations.
constexpr int patience = 9;
/// Hundreds of them are still a time that can be counted.
constexpr Duration block_time_max = std::chrono::hours{24 * 30};

Duration time_of(Bytes block_bytes, Bytes bandwidth) {
  if (count(bandwidth) == 0) return {};
  const double seconds = static_cast<double>(count(block_bytes)) / static_cast<double>(count(bandwidth));
  const double most = std::chrono::duration<double>{block_time_max}.count();
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>{std::min(seconds, most)});
}

std::size_t buffer_bytes(Bytes block_bytes) {
  if (count(block_bytes) == 0) throw std::invalid_argument{"a scrub needs blocks of at least one byte"};
  return count(block_bytes) * Scrub::reads_max(block_bytes);
}

}  // namespace

Scrub::Scrub(Bytes block_bytes, const ScrubOptions& options, IoEngine* engine)
    : block_bytes_{block_bytes}, buffer_{buffer_bytes(block_bytes)}, reads_(reads_max(block_bytes)), engine_{engine} {
  take(options);
  for (std::size_t n = 0; n < reads_.size(); ++n) {
    reads_[n] = {n, {}, buffer_.span(n * count(block_bytes), count(block_bytes)), false};
  }
  if (engine_ != nullptr) engine_->register_memory(buffer_.span());
}

Scrub::~Scrub() {
  if (engine_ != nullptr) engine_->forget_memory(buffer_.span());
}

void Scrub::take(const ScrubOptions& options) {
  if (options.period < Duration::zero()) throw std::invalid_argument{"the period of a scrub must not be negative"};
  options_ = options;
  block_time_ = time_of(block_bytes_, options.bandwidth);
  counted_.bandwidth = options.bandwidth;
}

void Scrub::start(GuardedStore& store, TimePoint now, std::uint64_t first) {
  TERRACE_CHECK(store_ == nullptr);
  TERRACE_CHECK(store.block_bytes() == block_bytes_);
  store_ = &store;
  store.set_background(this);
  first_ = first;
  next_pass_ = now;
  wake_at_ = is_on() ? now : never;
}

void Scrub::set(const ScrubOptions& options, TimePoint now) {
  take(options);
  // What a slower pace had put far away is no further than the new one would put it.
  due_ = std::min(due_, now + block_time_);
  waits_until_ = std::min(waits_until_, std::max(due_, now) + patience * block_time_);
  if (!in_pass_ && counted_.passes > 0) next_pass_ = pass_began_ + std::max(options_.period, period_min);
  wake_at_ = is_on() && store_ != nullptr && under_way_ == 0 ? now : never;
}

void Scrub::poll(TimePoint now) {
  wake_at_ = never;
  // What closes the breaker wakes: its probe is somebody's operation. So does the end of a read.
  if (!is_on() || store_->read_breaker().state() != TierBreaker::State::closed) {
    held_up_ = true;
    return;
  }
  if (under_way_ > 0) return;
  if (!in_pass_ && now < next_pass_) {
    wake_at_ = next_pass_;
    return;
  }
  if (!in_pass_) begin_pass(now);
  // The next read is due now, and its wait for the owner's operations begins.
  if (std::exchange(held_up_, false)) {
    due_ = std::max(due_, now);
    waits_until_ = due_ + patience * block_time_;
  }
  const auto reads = static_cast<Duration::rep>(reads_.size());
  due_ = std::max(due_, now - reads * block_time_);
  waits_until_ = std::max(waits_until_, now - (reads - 1) * (patience + 1) * block_time_);
  const Owner owner = store_->in_flight() > 0 ? Owner::busy : Owner::idle;
  const TimePoint next = std::max(look_at_, owner == Owner::busy ? std::max(due_, waits_until_) : due_);
  if (now < next) {
    wake_at_ = next;
  } else {
    go_on(now, owner);
  }
}

void Scrub::begin_pass(TimePoint now) {
  in_pass_ = held_up_ = true;
  pass_began_ = now;
  counted_.place = 0;
  counted_.places = store_->walk(0, 0).places;
  if (first_ >= counted_.places) first_ = counted_.places > 0 ? first_ % counted_.places : 0;
  counted_.began_at = at_ = first_;
  leg_ = Leg::to_the_end;
}

void Scrub::go_on(TimePoint now, Owner owner) {
  std::uint32_t looks = looks_max;
  std::size_t found = 0;
  while (found < reads_.size() && due_ <= now && (owner == Owner::idle || waits_until_ <= now)) {
    const std::optional<BlockKey> key = find(looks);
    if (!key && leg_ == Leg::over) {
      if (found == 0) return end_pass(now);
      break;  // it ends when these have been read
    }
    const bool taken = key && store_->takes_in_background(*key);
    if (key && !taken) ++counted_.passed_over;
    if (!taken) {
      look_at_ = now + look_pause;
      break;
    }
    reads_[found++].key = *key;
    due_ += block_time_;
    if (owner == Owner::busy) waits_until_ += (patience + 1) * block_time_;
  }
  if (found == 0) {
    wake_at_ = look_at_;
    return;
  }
  if (owner == Owner::idle) waits_until_ = std::max(due_, now) + patience * block_time_;
  under_way_ = found;
  store_->read_in_background({reads_.data(), found});
}

std::optional<BlockKey> Scrub::find(std::uint32_t& looks) {
  while (looks > 0 && leg_ != Leg::over) {
    const std::uint64_t left = leg_ == Leg::to_the_end ? looks : first_ - at_;
    const StoreStep step = store_->walk(at_, static_cast<std::uint32_t>(std::min<std::uint64_t>(looks, left)));
    const std::uint64_t looked = step.next > at_ ? step.next - at_ : 0;  // none where the store ends before by now
    looks -= static_cast<std::uint32_t>(looked);
    counted_.places = step.places;
    counted_.place = std::min(counted_.place + looked, step.places);
    at_ = step.next;
    if (leg_ == Leg::to_the_end && step.is_last()) {
      leg_ = Leg::to_where_it_began;
      at_ = 0;
    }
    if (leg_ == Leg::to_where_it_began && at_ >= std::min(first_, step.places)) leg_ = Leg::over;
    if (step.key) return step.key;
  }
  return std::nullopt;
}

void Scrub::end_pass(TimePoint now) {
  in_pass_ = false;
  ++counted_.passes;
  counted_.last_pass_ended = now;
  counted_.last_pass_took = now - pass_began_;
  wake_at_ = next_pass_ = pass_began_ + std::max(options_.period, period_min);
}

void Scrub::on_read(const StoreEvent& event) {
  TERRACE_CHECK(under_way_ > 0);
  --under_way_;
  if (!event.error) {
    ++counted_.blocks;
    counted_.read += block_bytes_;
  } else if (event.error == Errc::corrupt) {
    ++counted_.corrupt;
  } else if (event.error != Errc::not_found) {
    ++counted_.io_failed;
  }
}

ScrubHealth Scrub::health() const {
  ScrubHealth health = counted_;
  health.next_pass = is_on() && !in_pass_ ? next_pass_ : never;
  if (!is_on() || store_ == nullptr) return health;
  const bool closed = store_->read_breaker().state() == TierBreaker::State::closed;
  health.state = !in_pass_ ? ScrubState::resting : closed ? ScrubState::running : ScrubState::paused;
  return health;
}

const char* to_string(ScrubState state) noexcept {
  switch (state) {
    case ScrubState::off: return "off";
    case ScrubState::resting: return "resting";
    case ScrubState::running: return "running";
    case ScrubState::paused: return "paused";
  }
  return "?";
}

}  // namespace terrace
