// Requests and the shared store: they ask it for blocks that no tier has, and are planned again with the answer.

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
  (void)planner_.add_shared(all);
  const bool pays = planner_.worth_loading(all) > hits;
  planner_.drop_shared(hits);
  if (!pays) return false;
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
  look_ups_.look(index, usable.subspan(found), found, r.deadline, state_.now);
}

void Requests::on_answers() {
  while (look_ups_.has_answers()) {
    look_ups_.take_answers(answers_);
    for (const SharedLookUps::Answer& answer : answers_) {
      Request& r = requests_[answer.asker];
      TERRACE_CHECK(r.state == State::looking);
      r.shared_end = answer.end;
      release_hits(answer.asker);
      if (const Result<void> planned = plan(answer.asker, r.keys); !planned) fail(answer.asker, planned.error());
    }
  }
}

}  // namespace terrace
