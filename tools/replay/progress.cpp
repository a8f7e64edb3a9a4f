#include "tools/replay/progress.hpp"

#include <fmt/format.h>

namespace terrace::tools {

void Progress::show(std::uint64_t requests, std::uint64_t hits, std::uint64_t blocks) {
  if (!line_.due()) return;
  const double hit_share = blocks == 0 ? 0 : 100.0 * static_cast<double>(hits) / static_cast<double>(blocks);
  line_.show(requests, requests_total_, fmt::format("{} requests  hits {:.1f} %", requests, hit_share));
}

}  // namespace terrace::tools
