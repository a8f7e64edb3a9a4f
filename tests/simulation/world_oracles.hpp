#pragma once

#include "radix/groups/groups.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/kv_events.hpp"
#include "terrace/types.hpp"

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace terrace::test {

/// The blocks that each source can serve, in the view of a router. It knows only the events.
class EventMirror {
 public:
  /// Knows what the manager serves now, without an event.
  void begin(const CacheManager& manager);
  /// Checks that nothing is stored twice, and nothing is removed that was not stored.
  void apply(std::span<const KvEvent> events);
  /// Checks that the servable copies in the tree are exactly those that the events report.
  void compare(const CacheManager& manager) const;

 private:
  struct Served {
    BlockKey key;
    GroupId group;
    Source source;

    friend auto operator<=>(const Served&, const Served&) = default;
  };

  template <class Visit>
  static void for_each_served(const CacheManager& manager, Visit visit);

  std::set<Served> served_;
};

/// For each number of leading hits, from 0 to keys.size(): whether the group could now serve them from `farthest` or a nearer
/// source. Nothing if that depends on a load under way.
[[nodiscard]] std::vector<std::optional<bool>> could_serve(const CacheManager& manager, const GroupRule& rule, GroupId group,
                                                           std::span<const BlockKey> keys, Source farthest);

/// Checks that promises of device slots can be kept with slots that are free or can be freed, and that stay. (A slot that a
/// resize will retire is promised to nobody.)
void check_promises(const CacheManager& manager);

}  // namespace terrace::test
