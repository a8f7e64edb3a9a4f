#include "storage/resilience/damage_notice.hpp"

#include <fmt/format.h>

#include <utility>

namespace terrace {

std::string DamageNotice::tell(std::uint64_t corrupt, TimePoint now) {
  if (now != never) next_ = now + std::chrono::minutes{1};
  return fmt::format("{} stored blocks did not verify and were given up; {} since the start",
                     corrupt - std::exchange(logged_, corrupt), corrupt);
}

}  // namespace terrace
