#pragma once

#include "tests/simulation/world.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace terrace::test {

/// Of a file block, the least there is. Each pool's blocks are of another size.
inline constexpr std::uint32_t least_block_bytes = 4096;

constexpr std::uint32_t block_bytes_of(std::size_t pool) { return least_block_bytes * static_cast<std::uint32_t>(pool + 1); }

/// A request and what its engine knows of it.
struct World::Client {
  enum class State : unsigned char { pending, ready, computed, committed, failed };
  RequestId id;
  Lease lease;
  State state = State::pending;
  std::vector<std::uint32_t> names;
  std::vector<BlockKey> keys;  ///< of all full blocks, those made by extend included
  std::uint32_t held = 0;      ///< blocks that it has slots for
  std::uint32_t filled = 0;    ///< blocks that have their content, or will when compute gets there
  std::uint32_t chunk = 0;     ///< it computes so many at a time
  std::uint32_t encoder_tokens = 0;
  Fence fence;
  std::uint32_t extensions_left = 0;
  std::uint64_t weights = 0;  ///< it began with
  std::uint32_t layers = 0;   ///< that it was told of
  TimePoint deadline = never;
  /// By group: which numbers of hits it could serve when this was accepted; of optional groups only.
  std::vector<std::vector<std::optional<bool>>> could_serve;
  std::uint64_t replans = 0;        ///< of all requests when this was accepted
  std::vector<GroupId> duplicates;  ///< a group for each of its Duplicates
  /// False once it failed: what its compute reads after that means nothing.
  std::shared_ptr<bool> valid = std::make_shared<bool>(true);
};

}  // namespace terrace::test
