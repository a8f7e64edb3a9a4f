#include "lab/shared/shared.hpp"

#include "base/waker.hpp"
#include "lab/rounds.hpp"
#include "tools/interrupted.hpp"
#include "tools/output.hpp"
#include "tools/replay/engine/interrupt.hpp"
#include "tools/report_file.hpp"
#include "tools/shared/shared_rates.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

namespace terrace::tools {
namespace {

/// The figures of one direction, one for each round.
struct Rounds {
  std::vector<double> gb_per_s;
  std::vector<double> cpu_ms_per_gb;

  void add(const char* way, const SharedWork& work, const SharedCost& cost) {
    if (cost.failed > 0) {
      throw std::runtime_error{
          fmt::format("{}: {} of {} blocks of {} failed", way, cost.failed, work.blocks, to_string(Bytes{work.block_bytes}))};
    }
    const double gigabytes = static_cast<double>(work.block_bytes) * work.blocks * 1e-9;
    gb_per_s.push_back(gigabytes / cost.seconds);
    cpu_ms_per_gb.push_back(1e3 * cost.client_cpu_seconds / gigabytes);
  }
};

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

}  // namespace

void bench_shared(const SharedBenchOptions& options) {
  if (options.rounds == 0) throw std::invalid_argument{"--rounds: at least 1"};
  for (const Bytes block : options.block_bytes) (void)work_of(options, block);
  EventFdWaker waker;
  const Interrupt interrupt{waker};
  const std::shared_ptr<SharedStore> store = open_to_measure(options.shared);
  if (!store->usable()) throw std::runtime_error{fmt::format("the shared store cannot be used: {}", store->health().reason)};
  const std::string place = place_of(options.shared.url);
  print("medians of {} rounds; {}; at most {} under way; CPU of this process\n", options.rounds, place,
        to_string(options.bytes_in_flight));
  print("{:>7} {:>7}  {:>10} {:>13}  {:>9} {:>12}  {:>10}\n", "block", "blocks", "write GB/s", "CPU ms/GB", "read GB/s",
        "CPU ms/GB", "probe us");
  boost::json::array rows;
  for (const Bytes block : options.block_bytes) {
    const SharedWork work = work_of(options, block);
    std::vector<std::byte> memory(std::size_t{work.blocks} * work.block_bytes);
    fill_to_measure(memory);
    SharedRates rates{*store, work};
    Rounds writes;
    Rounds reads;
    std::vector<double> probes;
    for (std::uint32_t round = 0; round < options.rounds && !interrupt.requested(); ++round) {
      writes.add("write", work, rates.write(memory));
      reads.add("read", work, rates.read(memory));
      const double probe = rates.probe();
      if (probe < 0) throw std::runtime_error{fmt::format("a probe did not find all {} blocks", work.blocks)};
      probes.push_back(1e6 * probe);
    }
    (void)rates.remove(std::chrono::seconds{2});
    if (interrupt.requested()) throw Interrupted{};
    const double write_rate = median(writes.gb_per_s);
    const double read_rate = median(reads.gb_per_s);
    const double write_cpu = median(writes.cpu_ms_per_gb);
    const double read_cpu = median(reads.cpu_ms_per_gb);
    print("{:>7} {:>7}  {:>10.2f} {:>13.0f}  {:>9.2f} {:>12.0f}  {:>10.0f}\n", to_string(block), work.blocks, write_rate,
          write_cpu, read_rate, read_cpu, median(probes));
    flush_output();
    rows.push_back({{"block_bytes", count(block)},
                    {"blocks", work.blocks},
                    {"at_once", work.at_once},
                    {"write_gb_per_s", write_rate},
                    {"write_cpu_ms_per_gb", write_cpu},
                    {"read_gb_per_s", read_rate},
                    {"read_cpu_ms_per_gb", read_cpu},
                    {"probe_us", median(probes)}});
  }
  if (options.report.empty()) return;
  write_report(options.report, json_text(boost::json::object{{"store", place}, {"rounds", options.rounds}, {"sizes", rows}}));
}

}  // namespace terrace::tools
