#include "runtime/cache/control/shared_look_ups.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace terrace {

SharedLookUps::SharedLookUps(const SharedConfig& config, SharedActions& actions, SharedTotals& totals)
    : config_{config}, actions_{actions}, totals_{totals} {}

bool SharedLookUps::is_missing(const BlockKey& key, TimePoint now) const {
  const Missing& place = missing_[place_of(key)];
  return now < place.until && place.key == key;
}

void SharedLookUps::look(Asker asker, std::span<const BlockKey> keys, std::uint32_t from, TimePoint deadline, TimePoint now) {
  TERRACE_CHECK(!keys.empty() && !asks(asker));
  const auto end = from + static_cast<std::uint32_t>(keys.size());
  ++totals_.look_ups;
  totals_.asked += keys.size();
  const TimePoint until = std::min(deadline, now + config_.probe_timeout);
  const auto joined = std::ranges::find_if(open_, [&](std::uint32_t token) {
    const Probe& probe = *probes_.find(token);
    if (!probe.groups.empty()) return false;
    if (probe.from > from || end > probe.from + probe.keys.size() || probe.keys[end - 1 - probe.from] != keys.back())
      return false;
    return std::ranges::equal(keys, std::span{probe.keys}.subspan(from - probe.from, keys.size()));
  });
  std::uint32_t token = 0;
  if (joined != open_.end()) {
    token = *joined;
    ++totals_.look_ups_joined;
  } else {
    std::vector<BlockKey> kept = spare_keys_.take();
    kept.assign(keys.begin(), keys.end());
    token = probes_.add({std::move(kept), from, 0, now});
    open_.push_back(token);
    actions_.probes.push_back(
        {SharedActions::Probe::Asker::requests, token, probes_.at(token).keys, GroupId{}, now + config_.probe_timeout});
  }
  wait_for(asker, token, from, end, until);
}

void SharedLookUps::wait_for(Asker asker, std::uint32_t token, std::uint32_t from, std::uint32_t end, TimePoint until) {
  ++probes_.at(token).askers;
  looks_.push_back({asker, token, from, end, until});
  next_deadline_ = std::min(next_deadline_, until);
}

void SharedLookUps::look_each(Asker asker, std::span<const BlockKey> keys, std::span<const GroupId> groups, TimePoint deadline,
                              TimePoint now) {
  TERRACE_CHECK(!keys.empty() && keys.size() == groups.size() && !asks(asker));
  ++totals_.look_ups;
  totals_.asked += keys.size();
  // Keys of different groups differ, so the groups need not be compared.
  const auto same = [&](std::uint32_t token) {
    const Probe& probe = *probes_.find(token);
    return !probe.groups.empty() && probe.keys.size() == keys.size() && probe.keys.back() == keys.back() &&
           std::ranges::equal(probe.keys, keys);
  };
  const auto joined = std::ranges::find_if(open_, same);
  std::uint32_t token = 0;
  if (joined != open_.end()) {
    token = *joined;
    ++totals_.look_ups_joined;
  } else {
    Probe probe{.keys = spare_keys_.take(), .begun = now, .groups{groups.begin(), groups.end()}};
    probe.keys.assign(keys.begin(), keys.end());
    probe.there.assign(keys.size(), 0);
    token = probes_.add(std::move(probe));
    open_.push_back(token);
    Probe& kept = probes_.at(token);
    actions_.probes.push_back({SharedActions::Probe::Asker::requests, token, kept.keys, GroupId{}, now + config_.probe_timeout,
                               kept.groups, kept.there});
  }
  wait_for(asker, token, 0, static_cast<std::uint32_t>(keys.size()), std::min(deadline, now + config_.probe_timeout));
}

void SharedLookUps::leave(Asker asker) {
  std::erase_if(answers_, [&](const Answer& answer) { return answer.asker == asker; });
  const auto look = std::ranges::find(looks_, asker, &Look::asker);
  if (look == looks_.end()) return;
  end_look(static_cast<std::size_t>(look - looks_.begin()));
  find_next_deadline();
}

/// The asker does not wait any more. A probe without askers is cancelled; its record stays until its event comes.
void SharedLookUps::end_look(std::size_t place) {
  const std::uint32_t token = looks_[place].probe;
  looks_.erase(looks_.begin() + static_cast<std::ptrdiff_t>(place));
  if (--probes_.at(token).askers > 0) return;
  std::erase(open_, token);
  actions_.cancelled_probes.push_back(token);
}

void SharedLookUps::on_probed(std::uint32_t token, ErrorCode error, std::uint32_t leading, TimePoint now) {
  Probe probe = probes_.take(token);
  std::erase(open_, token);
  if (!error) measure(probe, now);
  if (!probe.groups.empty()) {
    answer_each(token, probe, error);
    return spare_keys_.give(std::move(probe.keys));
  }
  const auto asked = static_cast<std::uint32_t>(probe.keys.size());
  leading = std::min(leading, asked);
  if (!error && leading < asked) missed(probe.keys[leading], now);
  const std::uint32_t there = probe.from + leading;
  std::erase_if(looks_, [&](const Look& look) {
    if (look.probe != token) return false;
    const std::uint32_t end = std::min(there, look.end);
    const bool any = end > look.from;
    answers_.push_back({look.asker, any ? end : 0, {}, false});
    if (any) totals_.there += end - look.from;
    if (error) ++totals_.look_ups_late;
    return true;
  });
  find_next_deadline();
  spare_keys_.give(std::move(probe.keys));
}

void SharedLookUps::measure(const Probe& probe, TimePoint now) {
  const double took = std::chrono::duration<double>(now - probe.begun).count();
  constexpr double weight = 0.2;  // weight of the newest answer in the moving average
  round_trip_seconds_ += (round_trip_seconds_ == 0 ? 1 : weight) * (took - round_trip_seconds_);
}

void SharedLookUps::answer_each(std::uint32_t token, const Probe& probe, ErrorCode error) {
  const auto there = std::ranges::count_if(probe.there, [](std::uint8_t byte) { return byte != 0; });
  std::erase_if(looks_, [&](const Look& look) {
    if (look.probe != token) return false;
    answers_.push_back({look.asker, there > 0 ? look.end : 0, probe.there, !error});
    totals_.there += static_cast<std::uint64_t>(there);
    if (error) ++totals_.look_ups_late;
    return true;
  });
  find_next_deadline();
}

void SharedLookUps::on_time(TimePoint now) {
  if (now < next_deadline_) return;
  for (std::size_t place = 0; place < looks_.size();) {
    if (looks_[place].deadline > now) {
      ++place;
      continue;
    }
    answers_.push_back({looks_[place].asker, 0, {}, false});
    ++totals_.look_ups_late;
    end_look(place);
  }
  find_next_deadline();
}

void SharedLookUps::find_next_deadline() {
  next_deadline_ = never;
  for (const Look& look : looks_) next_deadline_ = std::min(next_deadline_, look.deadline);
}

bool SharedLookUps::asks(Asker asker) const { return std::ranges::find(looks_, asker, &Look::asker) != looks_.end(); }

void SharedLookUps::check_invariants() const {
  std::size_t askers = 0;
  for (const std::uint32_t token : open_) {
    const Probe* const probe = probes_.find(token);
    TERRACE_CHECK(probe != nullptr && probe->askers > 0);
    TERRACE_CHECK(std::ranges::count(looks_, token, &Look::probe) == probe->askers);
    askers += probe->askers;
  }
  TERRACE_CHECK(askers == looks_.size());
}

}  // namespace terrace
