#pragma once

#include "storage/redis/redis_options.hpp"
#include "storage/redis/resp_reader.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace terrace {

/// A cluster distributes all names over this number of slots, and the slots over its nodes.
inline constexpr std::size_t redis_slot_count = 16'384;

/// Returns the slot of a name: CRC16 (XMODEM) of the name, or of the text between its first { and the next } if that is not
/// empty.
[[nodiscard]] std::uint32_t redis_slot(std::string_view name);

/// A range of slots and the node that has them.
struct RedisSlotRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;  ///< included
  RedisAddress master{};
};

/// Reads the reply to CLUSTER SLOTS. A node without a name has the host that was asked. Returns nothing if it is not such a
/// reply. An empty list is valid: no node has a slot.
[[nodiscard]] std::optional<std::vector<RedisSlotRange>> parse_slots(const RespValue& reply, const RedisAddress& asked);

/// A reply that another node has the name.
struct RedisRedirection {
  bool for_good = true;  ///< MOVED; otherwise ASK: only for this command, after ASKING
  std::uint32_t slot = 0;
  RedisAddress node{};
};
/// Reads "MOVED 3999 127.0.0.1:6381" and "ASK ...". Returns nothing if the error is another one.
[[nodiscard]] std::optional<RedisRedirection> parse_redirection(std::string_view error, const RedisAddress& asked);

}  // namespace terrace
