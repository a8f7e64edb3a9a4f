#pragma once

#include <string_view>

namespace terrace {

/// How the device copy and the host copy of a block relate.
enum class InclusionPolicy : unsigned char {
  non_inclusive,  ///< the host copy stays after a swap-in, and can be dropped at any time
  exclusive,      ///< a block has a copy in one of the two tiers; a swap-in frees the host slot
  inclusive,      ///< every computed block is copied to the host at once
};

/// Which blocks are written to storage, and when.
enum class WritePolicy : unsigned char {
  none,
  write_through,  ///< when a request commits the block
  selective,      ///< when it is hit for the n-th time: CacheSystemOptions::selective_hits
  write_back,     ///< when the last copy in device and host is evicted
};

/// Which hits in the tiers below the device are used.
enum class LoadPolicy : unsigned char {
  /// Only hits that are expected to load faster than they can be computed again (runtime/measure/load_costs.hpp). Host hits are
  /// always used if the prefill speed is not stated. A read from storage also has a deadline: if the read is late, the block is
  /// computed.
  measured,
  always,
};

[[nodiscard]] constexpr std::string_view to_string(InclusionPolicy r) {
  switch (r) {
    case InclusionPolicy::non_inclusive: return "non-inclusive";
    case InclusionPolicy::exclusive: return "exclusive";
    case InclusionPolicy::inclusive: return "inclusive";
  }
  return "?";
}

[[nodiscard]] constexpr std::string_view to_string(WritePolicy p) {
  switch (p) {
    case WritePolicy::none: return "none";
    case WritePolicy::write_through: return "write-through";
    case WritePolicy::selective: return "selective";
    case WritePolicy::write_back: return "write-back";
  }
  return "?";
}

/// Background eviction in one pool, given as shares of its slots. When fewer than `low` of the slots are free, the cache evicts
/// until `high` of them are free. If `low` is 0, there is no background eviction.
struct Watermarks {
  double low = 0;
  double high = 0;
};

}  // namespace terrace
