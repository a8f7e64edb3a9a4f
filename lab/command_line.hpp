#pragma once

#include "lab/gpu/link.hpp"
#include "lab/index/index.hpp"
#include "lab/index/keys.hpp"
#include "lab/offload/offload.hpp"
#include "lab/room/room.hpp"
#include "lab/shared/shared.hpp"
#include "lab/storage/restart.hpp"
#include "lab/storage/storage.hpp"
#include "lab/storage/tier_store.hpp"
#include "lab/transfer/transfer.hpp"

namespace CLI {
class App;
}

namespace terrace::tools {

/// The command line of the measurements of `terrace-lab`.
struct BenchArguments {
  enum class Part : unsigned char { index, keys, link, offload, restart, room, shared, storage, tier_store, transfer };

  Part part = Part::index;
  IndexBenchOptions index;
  IndexTraceOptions index_trace;  ///< run_bench() takes what both have from `index`
  KeysBenchOptions keys;
  LinkBenchOptions link;
  OffloadBenchOptions offload;
  RestartBenchOptions restart;
  RoomBenchOptions room;
  SharedBenchOptions shared;
  StorageBenchOptions storage;
  StorageBenchOptions tier_store = tier_store_bench_defaults();
  TransferBenchOptions transfer;
};

/// Adds the commands that measure (`index`, `keys` and so on) and their flags. `arguments` must outlive the parsing.
void add_bench_options(CLI::App& bench, BenchArguments& arguments);
/// Runs the chosen measurement. Throws UsageError for invalid sizes, Interrupted after a signal, std::runtime_error if the report
/// cannot be written.
void run_bench(const BenchArguments& arguments);

}  // namespace terrace::tools
