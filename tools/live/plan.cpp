#include "terrace/types.hpp"
#include "tools/live/command_line.hpp"
#include "tools/output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace terrace::tools {
namespace {

namespace json = boost::json;

double number_of(const json::value& of, const char* name) { return of.at(name).to_number<double>(); }

}  // namespace

void run_live_plan(const Target& target, bool as_json) {
  const AdminClient client{target};
  const json::object status = client.status_of_cache();
  const json::object& reuse = status.at("reuse").as_object();
  if (as_json) return print_json(reuse);
  const double asked = number_of(reuse, "asked_blocks");
  if (asked == 0) {
    print("{}: nothing was measured yet, or no group of layers has full attention, and nothing can be\n", client.name());
    return;
  }
  print("{}: hit rates of an LRU cache of other sizes,\n", client.name());
  print("from samples of {:.0f} blocks that requests asked for in the last hour\n", asked);
  if (status.at("pools").as_array().size() > 1) {
    print("(pool {}, which has full attention; the other pools have to change in proportion)\n",
          reuse.at("pool").to_number<std::uint32_t>());
  }
  print("\n");
  print("{:8} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9}\n", "TIER", "SIZE", "BLOCKS", "HALF", "AS IS", "DOUBLE", "FOURFOLD");
  for (const json::value& tier : reuse.at("tiers").as_array()) {
    const json::value& ratio = tier.at("lru_hit_ratio");
    const auto share = [&](const char* size) { return fmt::format("{:.1f} %", 100 * number_of(ratio, size)); };
    print("{:8} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9}\n", std::string{tier.at("tier").as_string()},
          to_string(Bytes{tier.at("bytes").to_number<std::uint64_t>()}), tier.at("blocks").to_number<std::uint64_t>(),
          share("half"), share("same"), share("double"), share("fourfold"));
  }
  print("\n{:>12} {:>9}   (different blocks in all tiers together)\n", "BLOCKS", "HIT RATE");
  // At least every second point, so that sizes are a factor of 2 apart, and few enough for a screen of 24 lines. The last is
  // shown.
  const json::array& points = reuse.at("points").as_array();
  constexpr std::size_t lines_max = 12;
  const std::size_t step = std::max<std::size_t>(2, (points.size() + lines_max - 1) / lines_max);
  for (std::size_t n = points.empty() ? 0 : (points.size() - 1) % step; n < points.size(); n += step) {
    print("{:>12.0f} {:>7.1f} %\n", number_of(points[n], "blocks"), 100 * number_of(points[n], "lru_hit_ratio"));
  }
}

}  // namespace terrace::tools
