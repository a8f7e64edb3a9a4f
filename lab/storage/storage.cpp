#include "lab/storage/storage.hpp"

#include "lab/storage/storage_plain.hpp"
#include "lab/storage/storage_rounds.hpp"
#include "lab/storage/storage_subjects.hpp"
#include "tools/interrupted.hpp"
#include "tools/output.hpp"
#include "tools/report_file.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

struct Row {
  Bytes block_bytes{};
  unsigned depth = 1;
  StorageWay way = StorageWay::read;
  StorageSpeed store, engine, plain;
};

Row measure(const StorageBenchOptions& options, const StorageGround& ground, unsigned depth, StorageWay way,
            const std::array<StorageSubject*, 3>& subjects) {
  const std::vector<StorageSpeed> speeds = measure_in_turns(options, ground, depth, way, subjects);
  return {ground.block_bytes, depth, way, speeds[0], speeds[1], speeds[2]};
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
  check_storage_options(options);
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
