#include "lab/benches.hpp"

#include "tools/interrupted.hpp"
#include "tools/output.hpp"
#include "tools/replay/engine/interrupt.hpp"
#include "tools/shared/shared_rates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

namespace terrace::tools {
namespace {

/// Adds the figures of one direction and round.
void add(Figures& figures, const std::string& way, const SharedWork& work, const SharedCost& cost) {
  if (cost.failed > 0) {
    throw std::runtime_error{
        fmt::format("{}: {} of {} blocks of {} failed", way, cost.failed, work.blocks, to_string(Bytes{work.block_bytes}))};
  }
  const double gigabytes = static_cast<double>(work.block_bytes) * work.blocks * 1e-9;
  figures.add(way + "_gb_per_s", gigabytes / cost.seconds);
  figures.add(way + "_cpu_ms_per_gb", 1e3 * cost.client_cpu_seconds / gigabytes);
}

SharedWork work_of(const SharedBenchOptions& options, Bytes block) {
  constexpr Bytes area_max = GiB * 4;
  if (options.area_bytes > area_max) {
    throw std::invalid_argument{fmt::format("--area: {} is more than {}", to_string(options.area_bytes), to_string(area_max))};
  }
  const Bytes block_max = std::min(options.area_bytes, MiB * 512);
  if (block == Bytes{} || block > block_max) {
    throw std::invalid_argument{fmt::format("--block-bytes: {} is not 1B to {}, of an area of {}", to_string(block),
                                            to_string(block_max), to_string(options.area_bytes))};
  }
  constexpr std::uint64_t blocks_max = 1U << 16;
  return {.blocks = static_cast<std::uint32_t>(std::min(options.area_bytes / block, blocks_max)),
          .block_bytes = count(block),
          .at_once = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(options.bytes_in_flight / block, 1, blocks_max)),
          .patience = std::chrono::minutes{1}};
}

/// The URL without user and options.
std::string place_of(const std::string& url) {
  const std::size_t scheme = url.find("://");
  std::string place = url.substr(0, url.find('?'));
  const std::size_t at = place.rfind('@');
  if (scheme == std::string::npos || at == std::string::npos) return place;
  return place.substr(0, scheme + 3) + place.substr(at + 1);
}

constexpr Column shared_columns[] = {{"block_bytes", "block", 7},
                                     {"blocks", "", 8},
                                     {"write_gb_per_s", "write GB/s", 12, 2},
                                     {"write_cpu_ms_per_gb", "CPU ms/GB", 14, 0},
                                     {"read_gb_per_s", "read GB/s", 11, 2},
                                     {"read_cpu_ms_per_gb", "CPU ms/GB", 13, 0},
                                     {"probe_us", "probe us", 12, 0}};

}  // namespace

Row bench_shared(const SharedBenchOptions& options) {
  if (options.rounds == 0) throw std::invalid_argument{"--rounds: at least 1"};
  for (const Bytes block : options.block_bytes) (void)work_of(options, block);
  const Interrupt interrupt;
  const std::shared_ptr<SharedStore> store = open_to_measure(options.shared);
  if (!store->usable()) throw std::runtime_error{fmt::format("the shared store cannot be used: {}", store->health().reason)};
  const std::string place = place_of(options.shared.url);
  print("medians of {} rounds; {}; at most {} under way; CPU of this process\n", options.rounds, place,
        to_string(options.bytes_in_flight));
  print_head(shared_columns);
  boost::json::array rows;
  for (const Bytes block : options.block_bytes) {
    const SharedWork work = work_of(options, block);
    std::vector<std::byte> memory(std::size_t{work.blocks} * work.block_bytes);
    fill_to_measure(memory);
    SharedRates rates{*store, work};
    Figures figures;
    for (std::uint32_t round = 0; round < options.rounds && !interrupt.requested(); ++round) {
      add(figures, "write", work, rates.write(memory));
      add(figures, "read", work, rates.read(memory));
      const double probe = rates.probe();
      if (probe < 0) throw std::runtime_error{fmt::format("a probe did not find all {} blocks", work.blocks)};
      figures.add("probe_us", 1e6 * probe);
    }
    (void)rates.remove(std::chrono::seconds{2});
    if (interrupt.requested()) throw Interrupted{};
    Row row{{"block_bytes", count(block)}, {"blocks", work.blocks}, {"at_once", work.at_once}};
    figures.add_medians(row);
    add_row(rows, shared_columns, std::move(row));
  }
  return {{"store", place}, {"rounds", options.rounds}, {"sizes", std::move(rows)}};
}

}  // namespace terrace::tools
