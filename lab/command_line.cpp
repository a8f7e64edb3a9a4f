#include "lab/command_line.hpp"

#include "tools/arguments.hpp"
#include "tools/device_name.hpp"
#include "tools/report_file.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace terrace::tools {
namespace {

/// The default of an option in the help.
template <class T>
  requires std::is_arithmetic_v<T>
std::string shown(T number) {
  return fmt::format("{}", number);
}
std::string shown(Bytes size) { return to_string(size); }
std::string shown(BytesPerSecond bandwidth) { return to_string(bandwidth); }
std::string shown(OffloadDevice device) { return std::string{to_string(device)}; }
std::string shown(const std::filesystem::path& path) { return path.string(); }
std::string shown(IoChoice io) { return std::string{to_string(io)}; }
std::string shown(InclusionPolicy inclusion) { return std::string{to_string(inclusion)}; }
std::string shown(EvictionPolicyName policy) { return std::string{to_string(policy)}; }
template <class T>
std::string shown(const std::vector<T>& values) {
  std::string all;
  for (const T& value : values) all += (all.empty() ? "" : ",") + shown(value);
  return all;
}

/// Adds the options of one bench.
class Bench {
 public:
  explicit Bench(CLI::App& command) : command_{command} {}

  /// An option with a default. One with several values takes them between commas too.
  template <class T, class Convert>
  const Bench& option(const char* name, T& into, Convert convert, const char* type, const char* text) const {
    CLI::Option* const added = add_value(command_, name, into, convert, type, text)->default_str(shown(into));
    if (added->get_expected_max() > 1) added->delimiter(',');
    return *this;
  }
  template <class T>
  const Bench& count(const char* name, T& into, const char* text, WholeNumber<std::uint32_t> range = {}) const {
    return option(name, into, range, "COUNT", text);
  }
  template <class T>
  const Bench& size(const char* name, T& into, const char* text) const {
    return option(name, into, to_size, "SIZE", text);
  }
  const Bench& bandwidth(const char* name, BytesPerSecond& into, const char* text) const {
    return option(name, into, to_bandwidth, "SIZE/s", text);
  }
  const Bench& rounds(std::uint32_t& into, WholeNumber<std::uint32_t> range = {}) const {
    return count("--rounds", into, "Measurements to take the medians of", range);
  }
  const Bench& directory(std::filesystem::path& into) const {
    command_.add_option("--directory", into, "Directory on the disk to measure; temporary files are removed")
        ->type_name("DIR")
        ->required();
    return *this;
  }
  const Bench& io(IoChoice& into) const { return option("--io", into, to_io_choice, "NAME", "auto, uring, threads"); }
  const Bench& report(std::filesystem::path& into) const {
    command_.add_option("--report", into, "Write the medians to this file, as JSON")->type_name("FILE");
    return *this;
  }

 private:
  CLI::App& command_;
};

void add_index_options(CLI::App& index, IndexBenchOptions& options, IndexTraceOptions& of_trace) {
  constexpr std::uint32_t blocks_max = 1U << 28;
  Bench{index}
      .count("--blocks", options.blocks, "Numbers of cached blocks to measure at; --trace uses the first", {64, blocks_max})
      .rounds(options.repetitions, {1})
      .count("--trace-block-tokens", of_trace.trace_block_tokens, "Tokens per hash id of the trace")
      .count("--block-tokens", of_trace.block_tokens, "Tokens per block; must divide --trace-block-tokens", {1})
      .report(options.report);
  index.add_option("--trace", of_trace.trace, "Replay only the control plane of this trace instead")->type_name("FILE");
  index.footer("\nExamples:\n  terrace-lab index --blocks 10000,1000000\n"
               "  terrace-lab index --trace trace.jsonl.gz --blocks 40000 \\\n      --report index.json");
}

void add_keys_options(CLI::App& keys, KeysBenchOptions& options) {
  Bench{keys}
      .count("--block-tokens", options.block_tokens, "Sizes of block")
      .count("--prompt-tokens", options.prompt_tokens, "Tokens of each prompt")
      .count("--prompts", options.prompts, "Number of prompts")
      .rounds(options.rounds)
      .report(options.report);
  keys.footer("\nExample:\n  terrace-lab keys --block-tokens 16,64 --report keys.json");
}

void add_transfer_options(CLI::App& transfer, TransferBenchOptions& options) {
  add_value(transfer, "--device", options.cuda, parse_cuda, "DEVICE", "emulated, cuda[:N]")->default_str("emulated");
  Bench{transfer}
      .size("--block-bytes", options.block_bytes, "Sizes of block")
      .size("--area", options.area_bytes, "Bytes moved in each direction, in blocks of a size")
      .rounds(options.rounds)
      .size("--piece-bytes", options.pieces.bytes, "Size of the pieces that transfers are cut into")
      .count("--pieces-in-flight", options.pieces.in_flight, "Most pieces under way in each direction")
      .size("--bytes-in-flight", options.pieces.bytes_in_flight, "Most bytes under way in each direction")
      .count("--layers", options.layers, "Layers of a block for loads by layer; 1: loads by layer are not measured")
      .bandwidth("--link", options.link_bytes_per_second,
                 "Speed of the emulated device's link in each direction; 0B/s: the speed of memory")
      .report(options.report);
  add_value(transfer, "--blocks", options.blocks, WholeNumber<std::uint32_t>{2}, "COUNT",
            "Blocks moved in each direction, instead of an area")
      ->excludes(transfer.get_option("--area"));
  transfer.footer("\nExamples:\n  terrace-lab transfer --block-bytes 64KiB,2MiB --report transfer.json\n"
                  "  terrace-lab transfer --block-bytes 64KiB --blocks 1000 \\\n"
                  "      --piece-bytes 256KiB --bytes-in-flight 512KiB");
}

void add_link_options(CLI::App& link, LinkBenchOptions& options) {
  add_value(link, "--device", options.cuda, parse_cuda, "DEVICE", "cuda[:N]")->default_str("cuda:0");
  Bench{link}.size("--area", options.size.area, "Memory on each side").rounds(options.size.rounds).report(options.report);
  link.footer("\nExample:\n  terrace-lab link --device cuda:1 --report link.json");
}

void add_offload_options(CLI::App& offload, OffloadBenchOptions& options) {
  Bench{offload}
      .option("--device", options.device, one_of(OffloadDevice::instant, OffloadDevice::emulated), "DEVICE", "instant, emulated")
      .size("--block-bytes", options.block_bytes, "Sizes of block")
      .size("--area", options.area_bytes, "Bytes moved in each direction and round, in blocks of a size")
      .count("--small-blocks", options.small_blocks, "Blocks of 64 B moved, for the cost of an order; a multiple of 32")
      .rounds(options.rounds)
      .report(options.report);
  offload.footer("\nExample:\n  terrace-lab offload --block-bytes 64KiB,2MiB --report offload.json");
}

void add_restart_options(CLI::App& restart, RestartBenchOptions& options) {
  Bench{restart}
      .directory(options.directory)
      .count("--blocks", options.blocks, "Blocks in the store, of 4 KiB each")
      .count("--prefix-blocks", options.prefix_blocks, "Blocks that each prompt adds to an earlier one")
      .rounds(options.rounds)
      .io(options.io)
      .report(options.report);
  restart.footer("\nExample:\n  terrace-lab restart --directory /mnt/nvme --blocks 1000000");
}

void add_room_options(CLI::App& room, RoomBenchOptions& options) {
  RoomModel& model = options.model;
  add_value(room, "TRACE", options.traces, to_file, "TRACE...", "Traces in Mooncake's format, text or gzip")->required();
  const Bench bench{room};
  add_value(room, "--requests", options.requests_max, WholeNumber<std::uint64_t>{1}, "COUNT",
            "Only the first requests of each trace");
  bench.count("--device-blocks", options.device_blocks, "Sizes of the device", {1})
      .count("--host-blocks", model.host_blocks, "Size of the host", {1})
      .count("--block-tokens", model.block_tokens, "Tokens of a block, and of each hash id of the trace", {1})
      .size("--block-bytes", model.block_bytes, "Size of a block");
  bench.option("--link-bandwidth", model.link_bandwidth, to_positive_bandwidth, "SIZE/s", "Speed of the link in each direction")
      .option("--prefill-speed", model.prefill_speed, to_positive_number, "NUMBER", "Tokens of a prompt computed in a second")
      .option("--output-speed", model.output_speed, to_positive_number, "NUMBER", "Tokens of an output computed in a second")
      .option("--reserve-max", options.reserve_max, to_fraction, "SHARE", "Largest share of the device that is kept free")
      .option("--inclusion", options.inclusions,
              one_of(InclusionPolicy::lazy_exclusive, InclusionPolicy::non_inclusive, InclusionPolicy::exclusive,
                     InclusionPolicy::inclusive),
              "NAME", "How device and host copies of a block relate: lazy-exclusive, non-inclusive, exclusive, inclusive")
      .option("--policy", options.policy, one_of(EvictionPolicyName::adaptive, EvictionPolicyName::lru), "NAME",
              "Eviction policy of both tiers: adaptive, lru");
  bench.report(options.report);
  room.footer("\nExample:\n  terrace-lab room conversation_trace.jsonl.gz --device-blocks 3000");
}

void add_shared_options(CLI::App& shared, SharedBenchOptions& options) {
  const Bench bench{shared};
  SharedStorage& store = options.shared;
  shared.add_option("--shared", store.url, "memory: (of this process), redis://[USER@]HOST[:PORT][,...][?cluster=1], rediss://")
      ->type_name("URL")
      ->default_str(store.url);
  const auto file = [&](const char* name, std::filesystem::path& into, const char* text) {
    add_value(shared, name, into, to_file, "FILE", text);
  };
  file("--shared-password-file", store.password_file,
       "File whose first line is the password (default: the variable TERRACE_SHARED_PASSWORD, or none)");
  file("--shared-ca-file", store.ca_file, "Certificates of the authorities that are trusted (default: those of the system)");
  file("--shared-secret-file", store.secret_file, "File with the secret that blocks are encrypted with (default: they are not)");
  bench.count("--shared-connections-per-node", store.connections_per_node, "Connections to each server", {1, 64})
      .size("--block-bytes", options.block_bytes, "Sizes of block")
      .size("--area", options.area_bytes, "Bytes moved in each direction and round, in blocks of a size")
      .size("--bytes-in-flight", options.bytes_in_flight, "Most bytes of blocks under way; one block is always allowed")
      .rounds(options.rounds, {1})
      .report(options.report);
  shared.footer("\nExamples:\n  terrace-lab shared\n"
                "  terrace-lab shared --shared redis://cache-1:6379 --block-bytes 256KiB,2MiB \\\n      --report shared.json");
}

void add_storage_options(CLI::App& storage, StorageBenchOptions& options) {
  const Bench bench{storage};
  bench.directory(options.directory);
  add_value(storage, "--stripe", options.stripes, to_directory, "DIR",
            "Directory on a further disk: the store is striped over all; may be given several times");
  bench.size("--size", options.size, "Size of the store; a plain file of the same size is made too")
      .size("--sizes", options.block_bytes, "Sizes of block")
      .count("--depths", options.depths, "Blocks under way at once")
      .size("--moved", options.moved, "Bytes moved in each measurement; at least eight times the depth")
      .rounds(options.rounds)
      .io(options.io)
      .report(options.report);
  storage.footer("\nExamples:\n  terrace-lab storage --directory /mnt/nvme --report storage.json\n"
                 "  terrace-lab storage --directory /mnt/nvme --sizes 64KiB --depths 16,64 \\\n"
                 "      --io threads\n"
                 "  terrace-lab storage --directory /mnt/a --stripe /mnt/b --stripe /mnt/c");
}

void add_tier_store_options(CLI::App& store, StorageBenchOptions& options) {
  const Bench bench{store};
  bench.option("--directory", options.directory, to_directory, "DIR",
               "Directory on the disk to measure; temporary files are removed");
  bench.size("--size", options.size, "Size of the store; a plain file of the same size is made too")
      .size("--sizes", options.block_bytes, "Sizes of block")
      .count("--depths", options.depths, "Blocks under way at once")
      .size("--moved", options.moved, "Bytes moved in each measurement; at least eight times the depth")
      .rounds(options.rounds)
      .io(options.io)
      .report(options.report);
  store.footer("\nExample:\n  terrace-lab tier-store --directory /mnt/nvme --report tier-store.json");
}

void run_index(const IndexBenchOptions& options, IndexTraceOptions of_trace) {
  if (of_trace.trace.empty()) {
    // Prompts that find half of their blocks evict as many, which others must not need.
    constexpr std::uint32_t blocks_min = 256;
    for (const std::uint32_t blocks : options.blocks) {
      if (blocks < blocks_min)
        throw UsageError{fmt::format("--blocks {}: must be at least {} without --trace", blocks, blocks_min)};
    }
    bench_index(options);
    return;
  }
  if (of_trace.trace_block_tokens % of_trace.block_tokens != 0) {
    throw UsageError{
        fmt::format("--block-tokens {}: must divide the trace's {}", of_trace.block_tokens, of_trace.trace_block_tokens)};
  }
  of_trace.capacity = options.blocks.front();
  of_trace.rounds = options.repetitions;
  of_trace.report = options.report;
  bench_index_trace(of_trace);
}

}  // namespace

void add_bench_options(CLI::App& lab, BenchArguments& arguments) {
  CLI::App* const index = lab.add_subcommand("index", "The control plane alone, compared with three baselines");
  add_index_options(*index, arguments.index, arguments.index_trace);
  index->callback([&] { arguments.part = BenchArguments::Part::index; });
  CLI::App* const keys = lab.add_subcommand("keys", "Making keys from tokens, compared with OpenSSL's digests");
  add_keys_options(*keys, arguments.keys);
  keys->callback([&] { arguments.part = BenchArguments::Part::keys; });
  CLI::App* const link = lab.add_subcommand("link", "A GPU's driver and link alone, without Terrace's transfers");
  add_link_options(*link, arguments.link);
  link->callback([&] { arguments.part = BenchArguments::Part::link; });
  CLI::App* const transfer = lab.add_subcommand("transfer", "Transfers between device and host, compared with plain copies");
  add_transfer_options(*transfer, arguments.transfer);
  transfer->callback([&] { arguments.part = BenchArguments::Part::transfer; });
  CLI::App* const restart = lab.add_subcommand("restart", "Start from a store's catalog, compared with reading the catalog");
  add_restart_options(*restart, arguments.restart);
  restart->callback([&] { arguments.part = BenchArguments::Part::restart; });
  CLI::App* const room =
      lab.add_subcommand("room", "Who waits for device slots, in virtual time, over traces at their own clock");
  add_room_options(*room, arguments.room);
  room->callback([&] { arguments.part = BenchArguments::Part::room; });
  CLI::App* const shared =
      lab.add_subcommand("shared", "A shared store by the client that a cache uses: rates, processor time, probes");
  add_shared_options(*shared, arguments.shared);
  shared->callback([&] { arguments.part = BenchArguments::Part::shared; });
  CLI::App* const storage = lab.add_subcommand("storage", "A file store with its checks, compared with plain direct I/O");
  add_storage_options(*storage, arguments.storage);
  storage->callback([&] { arguments.part = BenchArguments::Part::storage; });
  CLI::App* const offload = lab.add_subcommand("offload", "Orders of an engine that owns its device slots, compared with memcpy");
  add_offload_options(*offload, arguments.offload);
  offload->callback([&] { arguments.part = BenchArguments::Part::offload; });
  CLI::App* const tier_store =
      lab.add_subcommand("tier-store", "Storage alone, as an engine uses it, compared with plain direct I/O");
  add_tier_store_options(*tier_store, arguments.tier_store);
  tier_store->callback([&] { arguments.part = BenchArguments::Part::tier_store; });
}

void run_bench(const BenchArguments& arguments) {
  for (const auto* const report :
       {&arguments.index.report, &arguments.keys.report, &arguments.link.report, &arguments.transfer.report,
        &arguments.offload.report, &arguments.restart.report, &arguments.room.report, &arguments.shared.report,
        &arguments.storage.report, &arguments.tier_store.report}) {
    check_report(*report, {.trace = arguments.index_trace.trace, .store_directories = {}});
  }
  for (const auto& trace : arguments.room.traces) check_report(arguments.room.report, {.trace = trace, .store_directories = {}});
  try {
    switch (arguments.part) {
      case BenchArguments::Part::index: run_index(arguments.index, arguments.index_trace); break;
      case BenchArguments::Part::keys: bench_keys(arguments.keys); break;
      case BenchArguments::Part::link: bench_link(arguments.link); break;
      case BenchArguments::Part::offload: bench_offload(arguments.offload); break;
      case BenchArguments::Part::restart: bench_restart(arguments.restart); break;
      case BenchArguments::Part::room: bench_room(arguments.room); break;
      case BenchArguments::Part::shared: bench_shared(arguments.shared); break;
      case BenchArguments::Part::storage: bench_storage(arguments.storage); break;
      case BenchArguments::Part::tier_store: bench_tier_store(arguments.tier_store); break;
      case BenchArguments::Part::transfer: bench_transfer(arguments.transfer); break;
    }
  } catch (const std::invalid_argument& error) {
    throw UsageError{error.what()};
  }
}

}  // namespace terrace::tools
