#include "tools/bench/storage/storage.hpp"

#include "tools/bench/rounds.hpp"
#include "tools/bench/storage/bench_directory.hpp"
#include "tools/bench/storage/storage_plain.hpp"
#include "tools/bench/storage/storage_subjects.hpp"
#include "tools/interrupted.hpp"
#include "tools/output.hpp"
#include "tools/replay/options/preflight.hpp"
#include "tools/report_file.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace terrace::tools {
namespace {

constexpr Bytes block_unit = KiB * 4;
constexpr Bytes largest_block = GiB;
constexpr unsigned depth_limit = 4096;
constexpr double giga = 1e-9;

/// Checks the free space for each directory's share. If two directories are on the same disk, the bench finds out only when the
/// disk is full.
void check_room(const std::filesystem::path& directory, const char* option, const StorageBenchOptions& options) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(directory, error);
  if (error) throw UsageError{fmt::format("{} {}: {}", option, directory.string(), error.message())};
  // The store's files and the plain file; then the catalog and directories.
  const Bytes all = options.size * 2 + Bytes{count(options.size) / 64};
  const Bytes needed = Bytes{count(all) / (options.stripes.size() + 1)} + MiB * 16;
  if (space.available >= count(needed)) return;
  throw std::invalid_argument{fmt::format("{} {}: {} are free; its part of a store and a file of {} takes {}", option,
                                          directory.string(), to_string(Bytes{space.available}), to_string(options.size),
                                          to_string(needed))};
}

void check(const StorageBenchOptions& options) {
  if (options.rounds == 0) throw std::invalid_argument{"--rounds 0: at least 1 is needed"};
  if (options.block_bytes.empty() || options.depths.empty()) throw std::invalid_argument{"--sizes, --depths: one at least"};
  for (const unsigned depth : options.depths) {
    if (depth == 0 || depth > depth_limit) {
      throw std::invalid_argument{fmt::format("--depths {}: must be from 1 to {}", depth, depth_limit)};
    }
  }
  const unsigned depth_max = std::ranges::max(options.depths);
  const std::optional<Bytes> memory = available_memory();
  for (const Bytes bytes : options.block_bytes) {
    if (bytes < block_unit || bytes > largest_block || count(bytes) % count(block_unit) != 0) {
      throw std::invalid_argument{fmt::format("--sizes {}: must be a multiple of {}, {} at most", to_string(bytes),
                                              to_string(block_unit), to_string(largest_block))};
    }
    const std::uint64_t blocks = options.size / bytes;
    if (blocks < 2 * std::uint64_t{depth_max} || blocks > std::numeric_limits<std::uint32_t>::max() / 2) {
      throw std::invalid_argument{fmt::format("--size {}: {} blocks of {}; at least twice the depth of {} is needed",
                                              to_string(options.size), blocks, to_string(bytes), depth_max)};
    }
    if (memory && bytes * depth_max > *memory) {
      throw std::invalid_argument{fmt::format("{} blocks of {} under way take {} of memory; {} is available", depth_max,
                                              to_string(bytes), to_string(bytes * depth_max), to_string(*memory))};
    }
  }
  check_room(options.directory, "--directory", options);
  for (const std::filesystem::path& stripe : options.stripes) check_room(stripe, "--stripe", options);
}

struct Row {
  Bytes block_bytes{};
  unsigned depth = 1;
  StorageWay way = StorageWay::read;
  struct Subject {
    double gb_per_s = 0;
    double ratio = 0;   ///< relative to the plain subject in the same round
    double cpu_us = 0;  ///< microseconds of the calling thread for each block
  };
  Subject store, engine, plain;
};

Row measure(const StorageBenchOptions& options, const StorageGround& ground, unsigned depth, StorageWay way,
            const std::array<StorageSubject*, 3>& subjects) {
  ScatteredTurns turns{ground.blocks, std::max<std::uint64_t>(options.moved / ground.block_bytes, std::uint64_t{8} * depth)};
  const auto operations = static_cast<double>(turns.operations());
  const double bytes = static_cast<double>(count(ground.block_bytes)) * operations;
  std::array<std::vector<double>, 3> speeds;
  std::array<std::vector<double>, 3> ratios;
  std::array<std::vector<double>, 3> cpu_us;
  for (unsigned round = 0; round < options.rounds; ++round) {
    std::array<double, 3> speed{};
    for (std::size_t turn = 0; turn < subjects.size(); ++turn) {
      const std::size_t n = (turn + round) % subjects.size();
      subjects[n]->prepare(way);
      const std::vector<std::uint32_t>& order = turns.next();
      const double cpu = thread_cpu_seconds();
      speed[n] = bytes * giga / seconds_of([&] { subjects[n]->move(way, depth, order); });
      if (ground.interrupt.requested()) throw Interrupted{};
      cpu_us[n].push_back((thread_cpu_seconds() - cpu) * 1e6 / operations);
      speeds[n].push_back(speed[n]);
    }
    for (std::size_t n = 0; n < subjects.size(); ++n) ratios[n].push_back(speed[n] / speed.back());
  }
  const auto of = [&](std::size_t n) { return Row::Subject{median(speeds[n]), median(ratios[n]), median(cpu_us[n])}; };
  return {ground.block_bytes, depth, way, of(0), of(1), of(2)};
}

void print_row(const Row& row) {
  print("{:>7} {:>6}  {:<5}  {:>7.2f} {:>6.2f}  {:>7.2f} {:>6.2f}  {:>7.2f}  {:>8.1f} {:>8.1f} {:>8.1f}\n",
        to_string(row.block_bytes), row.depth, to_string(row.way), row.store.gb_per_s, row.store.ratio, row.engine.gb_per_s,
        row.engine.ratio, row.plain.gb_per_s, row.store.cpu_us, row.engine.cpu_us, row.plain.cpu_us);
  flush_output();
}

boost::json::object to_json(const Row& row) {
  return {{"block_bytes", count(row.block_bytes)},
          {"depth", row.depth},
          {"way", to_string(row.way)},
          {"store_gb_per_s", row.store.gb_per_s},
          {"store_ratio", row.store.ratio},
          {"store_cpu_us", row.store.cpu_us},
          {"engine_gb_per_s", row.engine.gb_per_s},
          {"engine_ratio", row.engine.ratio},
          {"engine_cpu_us", row.engine.cpu_us},
          {"plain_gb_per_s", row.plain.gb_per_s},
          {"plain_cpu_us", row.plain.cpu_us}};
}

std::string fio_line(const StorageBenchOptions& options) {
  return fmt::format("fio --name=plain --directory={} --size={} --direct=1 --ioengine=io_uring --rw=randread --bs={} "
                     "--iodepth={} --time_based --runtime=5",
                     options.directory.string(), count(options.size), count(options.block_bytes.front()), options.depths.back());
}

}  // namespace

void bench_storage(const StorageBenchOptions& options) {
  check(options);
  EventFdWaker waker;
  const Interrupt interrupt{waker};

  bool printed_head = false;
  std::string engine;
  bool direct = true;
  boost::json::array rows;
  for (const Bytes block_bytes : options.block_bytes) {
    const StorageDirectories directories{options};
    StorageGround ground = make_ground(options, directories, block_bytes, interrupt, waker);
    StoreSubject store{ground};
    if (interrupt.requested()) throw Interrupted{};  // the store is not full after an interruption
    const StorageFiles files = store.files();
    const std::unique_ptr<StorageSubject> plain = make_plain_subject(ground, files);
    EngineSubject bare{ground, files};
    if (interrupt.requested()) throw Interrupted{};
    if (!std::exchange(printed_head, true)) {
      engine = store.engine();
      direct = store.is_direct();
      print("medians of {} rounds; {}{}; GB/s, and microseconds of the calling thread a block\n", options.rounds, engine,
            direct ? "" : "; through the page cache: no direct I/O here");
      print("{:>7} {:>6}  {:<5}  {:>7} {:>6}  {:>7} {:>6}  {:>7}  {:>8} {:>8} {:>8}\n", "block", "depth", "way", "store", "ratio",
            "engine", "ratio", "plain", "store us", "engine", "plain");
    }
    for (const unsigned depth : options.depths) {
      for (const StorageWay way : {StorageWay::read, StorageWay::write}) {
        const Row row = measure(options, ground, depth, way, {&store, &bare, plain.get()});
        print_row(row);
        rows.push_back(to_json(row));
      }
    }
  }
  print("\nto compare: {}\n", fio_line(options));

  if (options.report.empty()) return;
  write_report(options.report, json_text(boost::json::object{{"io", engine},
                                                             {"direct", direct},
                                                             {"rounds", options.rounds},
                                                             {"size", count(options.size)},
                                                             {"directories", options.stripes.size() + 1},
                                                             {"storage", std::move(rows)}}));
}

}  // namespace terrace::tools
