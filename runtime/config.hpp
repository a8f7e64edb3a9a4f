#pragma once

#include "radix/policies.hpp"

#include <cstdint>
#include <string_view>

namespace terrace {

/// How a block's device and host copies relate.
enum class Relation : unsigned char {
  keep,       ///< the host copy stays after a swap-in: a duplicate that costs nothing to drop
  exclusive,  ///< a block is in one of the two: a swap-in frees the host slot
  inclusive,  ///< every computed block is copied to the host at once
};

/// What reaches storage, and when.
enum class WritePolicy : unsigned char {
  none,
  write_through,  ///< on insertion
  selective,      ///< when it is hit for the first time
  write_back,     ///< when the last copy above goes
};

/// Which of the blocks that the device gives up go to the host.
enum class HostAdmission : unsigned char {
  all,
  adaptive,  ///< those used only once stay out while that makes the host hit more: AdmissionFilter
};

[[nodiscard]] constexpr std::string_view to_string(Relation r) {
  switch (r) {
    case Relation::keep: return "keep";
    case Relation::exclusive: return "exclusive";
    case Relation::inclusive: return "inclusive";
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

[[nodiscard]] constexpr std::string_view to_string(HostAdmission a) {
  switch (a) {
    case HostAdmission::all: return "all";
    case HostAdmission::adaptive: return "adaptive";
  }
  return "?";
}

/// Sizes are counts of blocks.
struct ManagerConfig {
  /// Of the device pool. Slot 0 is the null block where `null_block` is set: never handed out, never counted as used.
  std::uint32_t device_blocks = 0;
  bool null_block = false;
  /// Of the host tier; 0: none.
  std::uint32_t host_blocks = 0;
  /// Bounce slots of the host arena, beside host_blocks, through which device and storage meet. At least 1 where there is
  /// storage.
  std::uint32_t staging_blocks = 0;
  bool storage = false;
  Relation relation = Relation::keep;
  WritePolicy write_policy = WritePolicy::none;
  /// Off: nothing is matched, and nothing is kept when a request is released.
  bool caching = true;
  /// Of one request, as the model's length gives it; 0: the device pool.
  std::uint32_t request_blocks_max = 0;
  /// What pin() may keep from eviction, all pins together; 0: half of device_blocks.
  std::uint32_t pinned_blocks_max = 0;
  /// What device and host give up first.
  PolicyKind policy = PolicyKind::adaptive;
  /// Not with inclusive, which has copied every block down already.
  HostAdmission host_admission = HostAdmission::all;
  /// Copies between device and host count as done when they are decided; whoever executes the plans does so in order and
  /// before anything else. For reference runs.
  bool instant_copies = false;
};

}  // namespace terrace
