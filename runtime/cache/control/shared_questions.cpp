#include "runtime/cache/control/shared_questions.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace terrace {
namespace {

std::uint64_t digest_of(std::span<const BlockKey> keys) {
  std::uint64_t digest = keys.size();
  for (const BlockKey& key : keys) {
    digest = (digest ^ key.prefix64()) * 0x9E37'79B9'7F4A'7C15ULL;
    digest ^= digest >> 32U;
  }
  return digest;
}

}  // namespace

SharedQuestions::SharedQuestions(ManagerState& state, HitPlanner& planner)
    : state_{state}, planner_{planner}, actions_{state.groups.at({}).actions().shared} {}

// ---- what is worth a question

std::optional<SharedQuestions::Question> SharedQuestions::worth_asking(std::span<const BlockKey> keys, std::uint32_t found,
                                                                       std::uint32_t hits, Source farthest,
                                                                       SharedAnswer& answer) {
  static constexpr std::uint32_t first_key = 0;
  if (found == keys.size() || probes_.size() >= probes_max) return std::nullopt;
  if (!planner_.shared_would_pay(keys, hits, farthest)) return std::nullopt;
  answer.clear();
  const Question question = state_.groups.single() ? Question{.keys = keys.subspan(found), .from = found, .needed{&first_key, 1}}
                                                   : ask_groups(keys, found, farthest, answer);
  if (question.keys.empty()) return std::nullopt;
  const auto is_known_to_lack = [&](std::uint32_t place) { return is_missing(question.keys[place]); };
  if (std::ranges::none_of(question.needed, is_known_to_lack)) return question;
  ++state_.shared.look_ups_skipped;
  return std::nullopt;
}

/// A chained group needs all blocks after those that the tiers have. For any other group, the question has every block that a
/// longer hit may need, for each place where it may end. HitPlanner::find_hit() chooses the end when the answer is there.
SharedQuestions::Question SharedQuestions::ask_groups(std::span<const BlockKey> keys, std::uint32_t found, Source farthest,
                                                      SharedAnswer& answer) {
  const ModelGroups& groups = state_.groups;
  asked_keys_.clear();
  asked_groups_.clear();
  needed_.clear();
  const auto units = static_cast<std::uint32_t>(keys.size());
  const std::uint32_t all = units - units % groups.alignment();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const GroupRule& rule = groups.rules()[g];
    std::uint32_t first = 0;
    const std::uint32_t end = rule.cached() && all > found ? rule.full_blocks(all) : 0;
    if (end > 0 && rule.chained()) {
      first = groups.pool_of(g).find(groups.keys_in(g, keys, 0).first(end), farthest, sources_).prefix.length;
      if (first < end && !rule.config().optional) needed_.push_back(static_cast<std::uint32_t>(asked_keys_.size()));
    } else if (end > 0) {
      first = rule.first_needed(std::uint64_t{found + groups.alignment()} * groups.unit_tokens());
    }
    first = std::min(first, end);
    answer.add(first, end - first);
    for (std::uint32_t block = first; block < end; ++block) {
      asked_keys_.push_back(groups.key_in(g, keys, block));
      asked_groups_.push_back(ModelGroups::id_of(g));
    }
  }
  return {.keys = asked_keys_, .groups = asked_groups_, .needed = needed_};
}

bool SharedQuestions::is_missing(const BlockKey& key) const {
  const Missing& place = missing_[place_of(key)];
  return state_.now < place.until && place.key == key;
}

void SharedQuestions::missed(const BlockKey& key) {
  missing_[place_of(key)] = {key, state_.now + state_.config.shared.miss_lifetime};
}

// ---- from the question to the answer

void SharedQuestions::ask(Asker asker, const Question& question, TimePoint deadline) {
  const std::span<const BlockKey> keys = question.keys;
  TERRACE_CHECK(!keys.empty() && !asks(asker));
  const std::uint32_t from = question.from;
  const auto end = from + static_cast<std::uint32_t>(keys.size());
  ++state_.shared.look_ups;
  state_.shared.asked += keys.size();
  const auto covers = [&](std::uint32_t token) {
    const Probe& probe = *probes_.find(token);
    if (probe.groups.empty() != question.groups.empty()) return false;
    // An answer for each block is for the same blocks. Keys of different groups differ, so the groups need not be compared.
    if (!probe.groups.empty() && probe.keys.size() != keys.size()) return false;
    if (probe.from > from || end > probe.from + probe.keys.size() || probe.keys[end - 1 - probe.from] != keys.back())
      return false;
    return std::ranges::equal(keys, std::span{probe.keys}.subspan(from - probe.from, keys.size()));
  };
  const TimePoint latest = state_.now + state_.config.shared.probe_timeout;
  const auto joined = std::ranges::find_if(open_, covers);
  std::uint32_t token = 0;
  if (joined != open_.end()) {
    token = *joined;
    ++state_.shared.look_ups_joined;
  } else {
    Probe made{.keys = spare_keys_.take(), .from = from, .begun = state_.now};
    made.keys.assign(keys.begin(), keys.end());
    made.groups.assign(question.groups.begin(), question.groups.end());
    made.needed.assign(question.needed.begin(), question.needed.end());
    made.there.assign(question.groups.size(), 0);
    token = probes_.add(std::move(made));
    open_.push_back(token);
    Probe& probe = probes_.at(token);
    actions_.probes.push_back(
        {SharedActions::Probe::Asker::requests, token, probe.keys, GroupId{}, latest, probe.groups, probe.there});
  }
  ++probes_.at(token).askers;
  looks_.push_back({asker, token, from, end, std::min(deadline, latest)});
  next_deadline_ = std::min(next_deadline_, looks_.back().deadline);
}

void SharedQuestions::leave(Asker asker) {
  std::erase_if(answers_, [&](const Answer& answer) { return answer.asker == asker; });
  const auto look = std::ranges::find(looks_, asker, &Look::asker);
  if (look == looks_.end()) return;
  end_look(static_cast<std::size_t>(look - looks_.begin()));
  find_next_deadline();
}

/// The asker does not wait any more. A probe without askers is cancelled; its record stays until its event comes.
void SharedQuestions::end_look(std::size_t place) {
  const std::uint32_t token = looks_[place].probe;
  looks_.erase(looks_.begin() + static_cast<std::ptrdiff_t>(place));
  if (--probes_.at(token).askers > 0) return;
  std::erase(open_, token);
  actions_.cancelled_probes.push_back(token);
}

void SharedQuestions::on_probed(std::uint32_t token, ErrorCode error, std::uint32_t leading) {
  Probe probe = probes_.take(token);
  std::erase(open_, token);
  if (!error) measure(probe);
  const bool by_block = !probe.groups.empty();
  const auto asked = static_cast<std::uint32_t>(probe.keys.size());
  leading = std::min(leading, asked);
  if (!error && by_block) {
    for (const std::uint32_t place : probe.needed) {
      if (probe.there[place] == 0) missed(probe.keys[place]);
    }
  } else if (!error && leading < asked) {
    missed(probe.keys[leading]);
  }
  const auto blocks = static_cast<std::uint32_t>(std::ranges::count_if(probe.there, [](std::uint8_t byte) { return byte != 0; }));
  std::erase_if(looks_, [&](const Look& look) {
    if (look.probe != token) return false;
    const std::uint32_t end = by_block ? look.end : std::min(probe.from + leading, look.end);
    const std::uint32_t there = by_block ? blocks : end - std::min(end, look.from);
    state_.shared.there += there;
    if (error) ++state_.shared.look_ups_late;
    tell(look.asker, there > 0 ? end : 0, probe.there);
    return true;
  });
  find_next_deadline();
  spare_keys_.give(std::move(probe.keys));
}

void SharedQuestions::tell(Asker asker, std::uint32_t end, std::span<const std::uint8_t> there) {
  if (asker.kind != Asker::Kind::find) {
    answers_.push_back({asker, end, {there.begin(), there.end()}});
    return;
  }
  Find& it = finds_.at(static_cast<Index>(asker.number));
  TERRACE_CHECK(!it.answered);
  it.answered = true;
  it.end = end;
  it.until = state_.now + state_.config.shared.miss_lifetime;
}

void SharedQuestions::measure(const Probe& probe) {
  const double took = std::chrono::duration<double>(state_.now - probe.begun).count();
  constexpr double weight = 0.2;  // weight of the newest answer in the moving average
  round_trip_seconds_ += (round_trip_seconds_ == 0 ? 1 : weight) * (took - round_trip_seconds_);
}

void SharedQuestions::on_time() {
  if (state_.now < next_deadline_) return;
  for (std::size_t place = 0; place < looks_.size();) {
    if (looks_[place].deadline > state_.now) {
      ++place;
      continue;
    }
    tell(looks_[place].asker, 0, {});
    ++state_.shared.look_ups_late;
    end_look(place);
  }
  find_next_deadline();
}

void SharedQuestions::find_next_deadline() {
  next_deadline_ = never;
  for (const Look& look : looks_) next_deadline_ = std::min(next_deadline_, look.deadline);
}

bool SharedQuestions::asks(Asker asker) const { return std::ranges::find(looks_, asker, &Look::asker) != looks_.end(); }

// ---- for OffloadCache::find

OffloadFound SharedQuestions::find(std::span<const BlockKey> keys, std::uint32_t local) {
  forget_finds_before_clear();
  const std::uint64_t name = digest_of(keys);
  if (const auto known = finds_by_name_.find(name); known != finds_by_name_.end()) {
    Find& it = finds_.at(known->second);
    if (!it.answered) return {local, true};
    const bool believed = !it.told || state_.now < it.until;
    if (!it.told) looked_ = state_.now - it.begun;
    it.told = true;
    // If local < from, a tier has lost blocks since the question. Then the answer does not continue the local hit.
    if (believed && local >= it.from) return {std::max(local, it.end), false};
    forget_find(known->second);
  }
  if (is_missing(keys[local])) {
    ++state_.shared.look_ups_skipped;
    return {local, false};
  }
  if (!has_room_for_find()) return {local, false};
  const Index index = finds_.add({.name = name, .from = local, .begun = state_.now});
  finds_by_name_.emplace(name, index);
  ask({Asker::Kind::find, index}, {.keys = keys.subspan(local), .from = local}, never);
  return {local, true};
}

/// Makes room for a question by removing old answers. Returns false if there is no room.
bool SharedQuestions::has_room_for_find() {
  if (finds_.size() >= probes_max) {
    std::vector<Index> old;
    for (const auto& [name, index] : finds_by_name_) {
      const Find& it = finds_.at(index);
      if (it.answered && state_.now >= it.until) old.push_back(index);
    }
    for (const Index index : old) forget_find(index);
  }
  return finds_.size() < probes_max && probes_.size() < probes_max;
}

void SharedQuestions::forget_find(Index index) {
  finds_by_name_.erase(finds_.at(index).name);
  (void)finds_.take(index);
}

/// Removes the answers from before the last clear: they are not valid for the present weights.
void SharedQuestions::forget_finds_before_clear() {
  if (finds_epoch_ == state_.epoch) return;
  finds_epoch_ = state_.epoch;
  for (const auto& [name, index] : finds_by_name_) {
    leave({Asker::Kind::find, index});
    (void)finds_.take(index);
  }
  finds_by_name_.clear();
}

void SharedQuestions::check_invariants() const {
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
