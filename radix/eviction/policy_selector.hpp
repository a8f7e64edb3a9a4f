#pragma once

#include "radix/eviction/shadow_caches.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace terrace {

/// Chooses the eviction rule by the hits that each rule would have had in a sample of the uses (ShadowCaches). The last rule is
/// LRU. The lead of another rule is the number of its hits minus the number of LRU's hits.
///
/// *A rule is adopted* if its lead is large enough to be worth a change, and at least three standard errors. The standard error
/// is computed from the variation of the lead between requests, so such a lead is not due to chance. (The lead is checked often,
/// for three rules, so two standard errors would sometimes occur by chance.) All blocks of a request count as one observation,
/// because they are hit together.
///
/// *A rule is dropped* for LRU if it is behind LRU in the long window, or by one standard error in the short window. So a wrong
/// choice costs little, and hits from before a change of the workload do not count for long.
///
/// *Without misses*: if all rules have hit every block during the short window (all blocks fit), the first rule is chosen, which
/// protects reused blocks most. This costs nothing now, and helps if a scan comes. If some uses miss, blocks are evicted, and the
/// cost of a rule other than LRU is unknown, so the first rule is not chosen for this reason.
///
/// Threads: one. A use costs O(1).
class PolicySelector {
 public:
  static constexpr std::size_t rule_count = ShadowCaches::rule_count;
  static constexpr std::size_t lru = rule_count - 1;

  /// `capacity` is the number of blocks that the tier holds, and `sampled` the number that a shadow cache holds.
  PolicySelector(std::size_t capacity, std::size_t sampled);

  /// Reports that the request with this stamp has used a block. Bit i of `hit_by` is set if rule i had the block.
  void add(std::uint32_t hit_by, std::uint64_t stamp);

  /// Returns the rule to follow now.
  [[nodiscard]] std::size_t rule() const { return rule_; }

 private:
  /// The lead of a rule over LRU.
  struct Lead {
    double hits = 0;     ///< hits of the rule minus hits of LRU
    double squares = 0;  ///< the sum, over all requests, of the square of each request's lead

    [[nodiscard]] double in_standard_errors() const;
  };
  /// Sums over recent uses. All sums are halved after every `half_life` uses, gradually.
  struct Window {
    double half_life = 0;
    double uses = 0;
    double disputed = 0;  ///< uses that some rules hit and others missed
    std::array<Lead, lru> leads{};

    void forget(double uses);
  };
  struct Request {
    std::uint64_t stamp = 0;
    std::uint32_t uses = 0;
    std::uint32_t disputed = 0;
    std::uint32_t missed = 0;                               ///< uses that at least one rule missed
    std::array<std::uint32_t, rule_count> disputed_hits{};  ///< by rule: its hits among the disputed uses
  };

  void close_request();
  void choose();

  std::size_t sampled_;
  std::size_t uses_since_choice_ = 0;
  std::size_t rule_ = lru;
  double hits_in_a_row_ = 0;  ///< uses since the last request with a block that at least one rule missed
  Request request_;
  Window long_;
  Window short_;
};

}  // namespace terrace
