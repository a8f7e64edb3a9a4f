// Requests that wait before they are planned: they ask the shared store for blocks that no tier has, or a prefetch is bringing
// their blocks. They are planned again with the answer, or when the prefetch has ended.

#include "base/check.hpp"
#include "runtime/manager/requests.hpp"

namespace terrace {

/// For a new request whose hit `found` blocks of `usable` the tiers can serve, and that takes `hits` of them. Returns true if it
/// is worth asking the shared store for the others.
bool Requests::wants_to_look(const Request& r, std::span<const BlockKey> usable, std::uint32_t found, std::uint32_t hits) const {
  const auto all = static_cast<std::uint32_t>(usable.size());
  // A request that does not take all hits of the tiers does not want blocks after them.
  const bool takes_all = hits == found - (r.drop_last_hit && found > 0 ? 1 : 0);
  if (found == all || !takes_all || !look_ups_.has_room()) return false;
  if (!planner_.shared_would_pay(all, hits)) return false;
  if (!look_ups_.is_missing(usable[found], state_.now)) return true;
  ++state_.shared.look_ups_skipped;
  return false;
}

/// The planner has pinned the request's hits, which the request owns from now on. It holds nothing else until the answer comes.
void Requests::begin_look(Index index, std::span<const BlockKey> usable, std::uint32_t found) {
  Request& r = requests_[index];
  const GroupHit& hit = planner_.hit(0);
  r.parts.front().prefix = hit.found.prefix;
  if (hit.found.evicting) groups_.pool_of(0).cancel_evictions(hit.found.prefix);
  r.state = State::looking;
  r.looked = true;
  look_ups_.look({SharedLookUps::Asker::Kind::request, index}, usable.subspan(found), found, r.deadline, state_.now);
}

void Requests::on_answer(std::uint64_t number, std::uint32_t end) {
  const auto index = static_cast<Index>(number);
  Request& r = requests_[index];
  TERRACE_CHECK(r.state == State::looking);
  r.shared_end = end;
  release_hits(index);
  if (const Result<void> planned = plan(index, r.keys); !planned) fail(index, planned.error());
}

/// For a new request, after the look-up of `usable`. Returns true if it waits now: a prefetch is bringing the first block that
/// neither the device nor the host tier has. It holds nothing until the prefetch has ended.
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
    if (const Result<void> planned = plan(resumed.request, r.keys); !planned) fail(resumed.request, planned.error());
  }
}

}  // namespace terrace
