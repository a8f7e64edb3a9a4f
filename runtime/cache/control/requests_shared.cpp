// Requests that wait before they are planned: they ask the shared store for blocks that no tier has, or a prefetch is bringing
// their blocks. They are planned again when the answer has come, or when the prefetch has ended.

#include "base/check.hpp"
#include "runtime/cache/control/requests.hpp"

#include <algorithm>
#include <utility>

namespace terrace {

/// Returns true if it is worth asking the shared store for more blocks of a new request. The tiers can serve `found` blocks of
/// `usable`, and the request takes `hits` of them. `turned_down`: number of hits that it could load, but computes.
bool Requests::wants_to_look(Request& r, std::span<const BlockKey> usable, std::uint32_t found, std::uint32_t hits,
                             std::uint32_t turned_down) {
  const auto all = static_cast<std::uint32_t>(usable.size());
  // A request that does not take all hits of the tiers does not want blocks after them.
  if (found == all || turned_down > 0 || !look_ups_.has_room()) return false;
  if (!groups_.single()) return wants_to_look_each(r, usable, found, hits);
  if (!planner_.shared_would_pay(all, hits)) return false;
  if (!look_ups_.is_missing(usable[found], state_.now)) return true;
  ++state_.shared.look_ups_skipped;
  return false;
}

/// The same for a model with several groups. question_ gets the question.
bool Requests::wants_to_look_each(Request& r, std::span<const BlockKey> usable, std::uint32_t found, std::uint32_t hits) {
  if (!planner_.shared_would_pay(usable, hits, r.farthest)) return false;
  question_ = planner_.ask(usable, found, r.farthest, r.shared);
  if (question_.keys.empty()) return false;
  const auto is_missing = [this](const BlockKey& key) { return look_ups_.is_missing(key, state_.now); };
  if (std::ranges::none_of(question_.first_missing, is_missing)) return true;
  ++state_.shared.look_ups_skipped;
  return false;
}

/// After a look-up of `keys` in the tiers: adds the blocks that the shared store has according to its answer. Returns the length
/// of the hit.
std::uint32_t Requests::add_shared(const Request& r, std::span<const BlockKey> keys, Source farthest) const {
  if (!groups_.single()) return planner_.look_up_with(r.shared, keys, farthest);
  return planner_.add_shared(std::min(r.shared_end, static_cast<std::uint32_t>(keys.size())));
}

/// Starts the look-up in the shared store. The planner has pinned the request's hits, and the request owns these pins from now
/// on. It holds nothing else until the answer comes.
void Requests::begin_look(Index index, std::span<const BlockKey> usable, std::uint32_t found) {
  Request& r = requests_[index];
  const SharedLookUps::Asker asker{SharedLookUps::Asker::Kind::request, index};
  r.state = State::looking;
  r.looked = true;
  if (!groups_.single()) {
    pin_while_looking(r);
    return look_ups_.look_each(asker, question_.keys, question_.groups, r.deadline, state_.now);
  }
  const GroupHit& hit = planner_.hit(0);
  r.parts.front().prefix = hit.found.prefix;
  if (hit.found.evicting) groups_.pool_of(0).cancel_evictions(hit.found.prefix);
  look_ups_.look(asker, usable.subspan(found), found, r.deadline, state_.now);
}

void Requests::pin_while_looking(Request& r) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupHit& hit = planner_.hit(g);
    TieredPool& pool = groups_.pool_of(g);
    if (groups_.rules()[g].chained()) {
      r.parts[g].prefix = hit.found.prefix;
      if (hit.found.evicting) pool.cancel_evictions(hit.found.prefix);
    }
    for (std::uint32_t i = 0; i < hit.unchained.size(); ++i) {
      r.parts[g].unchained.push_back({hit.first + i, hit.unchained[i].prefix});
      if (hit.unchained[i].evicting) pool.cancel_evictions(hit.unchained[i].prefix);
    }
  }
}

void Requests::on_answer(SharedLookUps::Answer& answer) {
  const auto index = static_cast<Index>(answer.asker.number);
  Request& r = requests_[index];
  TERRACE_CHECK(r.state == State::looking);
  r.shared_end = answer.end;
  if (!groups_.single()) {
    r.shared.set(std::move(answer.there));
    if (answer.complete) {
      for (const BlockKey& key : planner_.not_there(r.keys, r.shared)) look_ups_.missed(key, state_.now);
    }
  }
  release_hits(index);
  if (const Result<void> planned = plan(index, r.keys); !planned) fail(index, planned.error());
}

/// For a new request, after the look-up of `usable`. If a prefetch is bringing the first block that neither the device nor the
/// host tier has, makes the request wait for it, and returns true. The request holds nothing until the prefetch has ended.
bool Requests::waits_for_prefetch(Index index, std::span<const BlockKey> usable) {
  const std::uint32_t near = planner_.near_units();
  Request& r = requests_[index];
  if (near == usable.size() || !prefetches_.join(index, usable, near, r.farthest)) return false;
  r.state = State::looking;
  return true;
}

void Requests::stop_looking(Index index) {
  look_ups_.leave({SharedLookUps::Asker::Kind::request, index});
  prefetches_.leave(index);
}

void Requests::resume_waiting() {
  prefetches_.take_resumed(resumed_);
  for (const Prefetches::Resumed& resumed : resumed_) {
    Request& r = requests_[resumed.request];
    TERRACE_CHECK(r.state == State::looking);
    r.may_look = r.may_look && state_.shared_usable && !resumed.shared_end;
    r.shared_end = resumed.shared_end.value_or(0);
    if (r.shared_end > 0 && !groups_.single()) r.shared = resumed.answer;
    if (const Result<void> planned = plan(resumed.request, r.keys); !planned) fail(resumed.request, planned.error());
  }
}

}  // namespace terrace
