#pragma once

#include "tools/bench/gpu/link.hpp"
#include "tools/bench/index/index.hpp"
#include "tools/bench/index/keys.hpp"
#include "tools/bench/offload/offload.hpp"
#include "tools/bench/room/room.hpp"
#include "tools/bench/shared/shared.hpp"
#include "tools/bench/storage/restart.hpp"
#include "tools/bench/storage/storage.hpp"
#include "tools/bench/storage/tier_store.hpp"
#include "tools/bench/transfer/copy.hpp"
#include "tools/bench/transfer/touch.hpp"
#include "tools/bench/transfer/transfer.hpp"

namespace CLI {
class App;
}

namespace terrace::tools {

/// The command line of `terrace bench`.
struct BenchArguments {
  enum class Part : unsigned char {
    copy,
    index,
    keys,
    link,
    offload,
    restart,
    room,
    shared,
    storage,
    tier_store,
    touch,
    transfer
  };

  Part part = Part::copy;
  CopyBenchOptions copy;
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
  TouchBenchOptions touch;
  TransferBenchOptions transfer;
};

/// Adds the commands of the bench (`bench copy`, `bench index` and so on) and their flags. `arguments` must outlive the parsing.
void add_bench_options(CLI::App& bench, BenchArguments& arguments);
/// Runs the chosen bench. Throws UsageError for invalid sizes, Interrupted after a signal, std::runtime_error if the report
/// cannot be written.
void run_bench(const BenchArguments& arguments);

}  // namespace terrace::tools
