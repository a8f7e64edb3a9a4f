#pragma once

#include "radix/eviction/block_records.hpp"
#include "radix/eviction/recent_set.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace {

/// Whether a block that the device gives up is worth a slot of the host. A small host keeps more of what is asked for again if
/// blocks that were used only once never come into it; a large one loses by that, since it would have held them until their
/// second use. So both are tried, on paper:
///
/// Two shadow hosts, over a fixed sample of the blocks (by their keys, about two thousand of those that fit), are told of every
/// block that the device gives up. One takes all, the other what was used at least twice. Both are asked for what requests did
/// not find on the device; what they had counts half after four capacities of uses. The filter lets all in until
/// the choosy one is ahead by a quarter of a point, and again as soon as it is behind.
///
/// "Twice" is within the last blocks used, two to four times as many as device and host hold, whatever has become of
/// them since (RecentSet). Deterministic; memory is taken at construction. Threads: one.
class AdmissionFilter {
 public:
  struct Sizes {
    std::uint32_t device_blocks = 0;
    std::uint32_t host_blocks = 0;
  };
  /// What becomes of a host copy that is hit.
  enum class OnHit : bool { stays, leaves };

  AdmissionFilter(Sizes sizes, OnHit on_hit);

  /// A request asks for these blocks, of which the device has the first so many. Once a request.
  void on_request(std::span<const BlockKey> keys, std::size_t on_device);
  /// The device gives up the block and the host has no copy: whether to make one.
  [[nodiscard]] bool admits(const BlockKey& key);

  /// Whether only what was used twice is let in now.
  [[nodiscard]] bool choosy() const { return choosy_; }
  void check_invariants() const;

 private:
  struct Nothing {};
  using Blocks = BlockRecords<Nothing>;
  struct Shadow {
    Blocks blocks;
    double hits = 0;  ///< decayed
  };

  [[nodiscard]] bool sampled(const BlockKey& key) const { return (key.prefix64() >> 32U) % sample_every_ == 0; }
  void take(Shadow& host, const BlockKey& key) const;
  /// True where the shadow host has it.
  bool use(Shadow& host, const BlockKey& key, bool is_on_device) const;
  void choose();

  OnHit on_hit_;
  std::uint64_t sample_every_;
  std::size_t sample_capacity_;
  RecentSet used_;
  RecentSet used_again_;
  Shadow open_;
  Shadow picky_;
  double uses_ = 0;  ///< of the sample, decayed as the hits
  std::size_t uses_until_choice_ = 0;
  bool choosy_ = false;
};

}  // namespace terrace
