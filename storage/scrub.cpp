#include "storage/scrub.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace terrace {
namespace {

/// How many times a block's own time its read may wait for the owner's operations.
constexpr int patience = 9;
constexpr Duration block_time_max = std::chrono::hours{24 * 365};

Duration time_of(Bytes block_bytes, Bytes bandwidth) {
  if (count(bandwidth) == 0) return {};
  const double seconds = static_cast<double>(count(block_bytes)) / static_cast<double>(count(bandwidth));
  const double most = std::chrono::duration<double>{block_time_max}.count();
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>{std::min(seconds, most)});
}

}  // namespace

Scrub::Scrub(Bytes block_bytes, const ScrubOptions& options, IoEngine* engine)
    : block_bytes_{block_bytes}, buffer_{count(block_bytes)}, engine_{engine} {
  take(options);
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

void Scrub::start(GuardedStore& store, TimePoint now) {
  TERRACE_CHECK(store_ == nullptr);
  TERRACE_CHECK(store.block_bytes() == block_bytes_);
  store_ = &store;
  store.set_background(this);
  next_pass_ = due_ = now;
  wake_at_ = is_on() ? now : never;
}

void Scrub::set(const ScrubOptions& options, TimePoint now) {
  take(options);
  // What a slower pace had put far away is no further than the new one would put it.
  due_ = std::min(due_, now + block_time_);
  if (!in_pass_ && counted_.passes > 0) next_pass_ = pass_began_ + std::max(options_.period, period_min);
  wake_at_ = is_on() && store_ != nullptr && !reading_ ? now : never;
}

void Scrub::poll(TimePoint now) {
  wake_at_ = never;
  // The end of a read wakes, and so does what closes the breaker: its probe is somebody's operation.
  if (!is_on() || reading_ || store_->breaker().state() != TierBreaker::State::closed) {
    held_up_ = true;
    return;
  }
  if (!in_pass_ && now < next_pass_) {
    wake_at_ = next_pass_;
    return;
  }
  if (!in_pass_) {
    in_pass_ = held_up_ = true;
    pass_began_ = now;
    counted_.place = 0;
  }
  // Its wait for the owner's operations begins now.
  if (std::exchange(held_up_, false)) due_ = std::max(due_, now);
  if (now < due_) {
    wake_at_ = due_;
  } else if (now < due_ + patience * block_time_ && store_->in_flight() > 0) {
    wake_at_ = due_ + patience * block_time_;
  } else {
    go_on(now);
  }
}

void Scrub::go_on(TimePoint now) {
  const StoreStep step = store_->walk(counted_.place, looks_max);
  counted_.place = step.next;
  counted_.places = step.places;
  if (!step.key && step.is_last()) return end_pass(now);
  if (step.key && store_->read_in_background({0, *step.key, buffer_.span(0, count(block_bytes_)), false})) {
    reading_ = held_up_ = true;
    due_ += block_time_;  // or the end of the read, if that is later
    return;
  }
  if (step.key) ++counted_.passed_over;
  wake_at_ = due_ = now + look_pause;
}

void Scrub::end_pass(TimePoint now) {
  in_pass_ = false;
  ++counted_.passes;
  counted_.last_pass_ended = now;
  counted_.last_pass_took = now - pass_began_;
  wake_at_ = next_pass_ = pass_began_ + std::max(options_.period, period_min);
}

void Scrub::on_read(const StoreEvent& event) {
  TERRACE_CHECK(reading_);
  reading_ = false;
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
  const bool closed = store_->breaker().state() == TierBreaker::State::closed;
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
