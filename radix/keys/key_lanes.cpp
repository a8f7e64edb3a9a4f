#include "radix/keys/key_lanes.hpp"

#include "base/check.hpp"
#include "radix/keys/key_message.hpp"

#include <algorithm>
#include <array>

namespace terrace {
namespace {

/// A chain that is being worked on.
struct Lane {
  KeyChain* chain = nullptr;  ///< null: no chain is left for this lane
  std::span<const TokenId> tokens;
  BlockKey key;  ///< of the message that is under way
};

}  // namespace

void KeyLanes::append_all(std::span<const Append> appends) {
  if (digests_ == nullptr) {
    for (const Append& each : appends) each.chain->append(each.tokens);
    return;
  }
  std::array<Lane, DigestLanes::lanes> lanes;
  std::array<Lane*, DigestLanes::lanes> idle{};  // those without a message under way, of which `idle_count` are there
  std::size_t idle_count = 0;

  // The next message for a lane: of its chain, or of the next that has one. False where there is none.
  const auto compose = [&](Lane& lane) {
    for (;;) {
      if (lane.chain != nullptr) {
        const bool alone = appends.empty() && std::ranges::all_of(lanes, [&](const Lane& other) {
          return &other == &lane || other.chain == nullptr;
        });
        if (alone) {
          lane.chain->append(lane.tokens);
        } else if (lane.chain->compose_next(lane.tokens)) {
          return true;
        }
        lane.chain = nullptr;
      }
      if (appends.empty()) return false;
      const Append next = appends.front();
      appends = appends.subspan(1);
      TERRACE_CHECK(std::ranges::none_of(lanes, [&](const Lane& other) { return other.chain == next.chain; }));
      lane.chain = next.chain;
      lane.tokens = next.tokens;
      lane.chain->reserve_keys(lane.tokens.size());
    }
  };
  const auto take = [&](void* owner) {
    if (owner == nullptr) return false;
    Lane& lane = *static_cast<Lane*>(owner);
    lane.chain->keys_.push_back(lane.key);
    idle[idle_count++] = &lane;
    return true;
  };

  for (Lane& lane : lanes) idle[idle_count++] = &lane;
  do {
    while (idle_count > 0) {
      Lane& lane = *idle[--idle_count];
      if (!compose(lane)) continue;
      (void)take(digests_->submit(lane.chain->workshop_->message.bytes(), lane.key, &lane));
    }
  } while (take(digests_->finish()));
}

}  // namespace terrace
