#pragma once

#include <string_view>

namespace terrace {

/// How ranks use a host slot.
enum class RankPayload : unsigned char {
  sharded,     ///< each rank has its own share; a block is on the host when every rank has copied its part
  replicated,  ///< all ranks have the same bytes, as with one latent head (MLA); one rank swaps out, all swap in
};

[[nodiscard]] std::string_view to_string(RankPayload payload);

}  // namespace terrace
