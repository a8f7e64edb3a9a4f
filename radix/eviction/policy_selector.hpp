#pragma once

#include "radix/eviction/shadow_caches.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace terrace {

/// Which rule to follow, by what each would have hit of a sample of the uses (ShadowCaches). The last rule is LRU: the others are
/// measured by how far they are ahead of it.
///
/// A rule is taken up where its lead is large enough to be worth a change, and so much larger than it varies from request to
/// request that chance does not explain it: three standard errors. (The question is asked again and again, of three rules: two
/// standard errors come by chance now and then.) It is given up for LRU once it is behind over the long window, or by one
/// standard error over the short one, so that an error costs little, and what was right before a workload changed is not held
/// against what comes. All blocks of a request count as one observation: they hit together.
///
/// At peace, where all rules have hit every block for as long as the short window (everything fits), the first one is taken up,
/// which protects most: that costs nothing now, and a scan may come. Where some uses miss, blocks are given up, and it is not
/// known yet what it costs to give up others than LRU does: there is no peace. O(1) a use. Threads: one.
class PolicySelector {
 public:
  static constexpr std::size_t rule_count = ShadowCaches::rule_count;
  static constexpr std::size_t lru = rule_count - 1;

  /// `capacity` of the tier, of which `sampled` blocks are looked at.
  PolicySelector(std::size_t capacity, std::size_t sampled);

  /// A block was used, in the request of this stamp; `hit_by`: the rules that had it, bit i for rule i.
  void add(std::uint32_t hit_by, std::uint64_t stamp);

  [[nodiscard]] std::size_t rule() const { return rule_; }

 private:
  /// Of a rule beside LRU.
  struct Lead {
    double hits = 0;     ///< more than LRU's
    double squares = 0;  ///< of those of each request

    [[nodiscard]] double in_standard_errors() const;
  };
  /// What came lately: all sums halve after so many uses.
  struct Window {
    double half_life = 0;
    double uses = 0;
    double disputed = 0;  ///< uses that some rules hit and others did not
    std::array<Lead, lru> leads{};

    void forget(double uses);
  };
  struct Request {
    std::uint64_t stamp = 0;
    std::uint32_t uses = 0;
    std::uint32_t disputed = 0;
    std::uint32_t missed = 0;  ///< by some rule
    std::array<std::uint32_t, rule_count> hits{};
  };

  void close_request();
  void choose();

  std::size_t sampled_;
  std::size_t uses_since_choice_ = 0;
  std::size_t rule_ = lru;
  double hits_in_a_row_ = 0;  ///< uses since the last request with a block that some rule missed
  Request request_;
  Window long_;
  Window short_;
};

}  // namespace terrace
