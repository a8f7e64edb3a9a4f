#include "lab/command_line.hpp"

#include "lab/benches.hpp"
#include "tools/arguments.hpp"
#include "tools/device_name.hpp"
#include "tools/report_file.hpp"
#include "tools/text.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace terrace::tools {
namespace {

/// The default of an option in the help.
template <class T>
std::string shown(const T& value) {
  if constexpr (std::is_arithmetic_v<T>) return fmt::format("{}", value);
  else return std::string{to_string(value)};
}
std::string shown(const std::filesystem::path& path) { return path.string(); }
template <class T>
std::string shown(const std::vector<T>& values) {
  std::string all;
  for (const T& value : values) all += (all.empty() ? "" : ",") + shown(value);
  return all;
}

/// A command that measures, and its options.
class Bench {
 public:
  /// `examples` are shown at the end of its help.
  Bench(CLI::App& lab, const char* name, const char* text, const std::string& examples)
      : command_{*lab.add_subcommand(name, text)} {
    command_.footer(examples);
  }

  /// An option without a default.
  template <class T, class Convert>
  const Bench& value(const char* name, T& into, Convert convert, const char* type, const char* text) const {
    add_value(command_, name, into, convert, type, text);
    return *this;
  }
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
  const Bench& rounds(std::uint32_t& into, WholeNumber<std::uint32_t> range = {}) const {
    return count("--rounds", into, "Measurements to take the medians of", range);
  }
  const Bench& io(IoChoice& into) const { return option("--io", into, to_io_choice, "NAME", "auto, uring, threads"); }
  const Bench& device(std::optional<int>& into, const char* names) const {
    add_value(command_, "--device", into, parse_cuda, "DEVICE", names)->default_str(device_name(into));
    return *this;
  }
  const Bench& directory(std::filesystem::path& into) const {
    return option("--directory", into, to_directory, "DIR", "Directory on the disk to measure; temporary files are removed");
  }

  /// Adds --report, and what the command does. `options` are those that the flags set; `bench` measures with them.
  template <class Options>
  void runs(ChosenBench& chosen, std::shared_ptr<Options> options, Row (*bench)(const Options&)) const {
    command_.add_option("--report", chosen.report, "Write the medians to this file, as JSON")->type_name("FILE");
    command_.callback([&chosen, options, bench] {
      chosen.run = [options, bench] { return bench(*options); };
      if constexpr (requires { options->trace; }) chosen.traces = {options->trace};
      if constexpr (requires { options->traces; }) chosen.traces = options->traces;
    });
  }

  [[nodiscard]] CLI::App& command() const { return command_; }

 private:
  CLI::App& command_;
};

const auto to_inclusion = one_of(InclusionPolicy::lazy_exclusive, InclusionPolicy::non_inclusive, InclusionPolicy::exclusive,
                                 InclusionPolicy::inclusive);

void add_index(CLI::App& lab, ChosenBench& chosen) {
  constexpr std::uint32_t blocks_max = 1U << 28;
  const auto options = std::make_shared<IndexBenchOptions>();
  const Bench bench{lab, "index", "The control plane alone, compared with three baselines",
                    "\nExamples:\n  terrace-lab index --blocks 10000,1000000\n"
                    "  terrace-lab index --trace trace.jsonl.gz --blocks 40000 \\\n      --report index.json"};
  bench.count("--blocks", options->blocks, "Numbers of cached blocks to measure at; --trace uses the first", {64, blocks_max})
      .rounds(options->rounds, {1})
      .count("--trace-block-tokens", options->trace_block_tokens, "Tokens per hash id of the trace")
      .count("--block-tokens", options->block_tokens, "Tokens per block; must divide --trace-block-tokens", {1});
  bench.command().add_option("--trace", options->trace, "Replay only the control plane of this trace instead")->type_name("FILE");
  bench.runs(chosen, options, bench_index);
}

void add_keys(CLI::App& lab, ChosenBench& chosen) {
  const auto options = std::make_shared<KeysBenchOptions>();
  Bench{lab, "keys", "Making keys from tokens, compared with OpenSSL's digests",
        "\nExample:\n  terrace-lab keys --block-tokens 16,64 --report keys.json"}
      .count("--block-tokens", options->block_tokens, "Sizes of block")
      .count("--prompt-tokens", options->prompt_tokens, "Tokens of each prompt")
      .count("--prompts", options->prompts, "Number of prompts")
      .rounds(options->rounds)
      .runs(chosen, options, bench_keys);
}

void add_step(CLI::App& lab, ChosenBench& chosen) {
  constexpr std::uint32_t blocks_max = 1U << 28;
  const auto options = std::make_shared<StepBenchOptions>();
  const Bench bench{lab, "step", "What the calls of a request cost the engine's thread, over a trace",
                    "\nExample:\n  terrace-lab step conversation_trace.jsonl.gz --device-blocks 40000"};
  bench.value("TRACE", options->trace, to_file, "TRACE", "Trace in Mooncake's format, text or gzip")
      .count("--device-blocks", options->device_blocks, "Size of the device", {1, blocks_max})
      .count("--host-blocks", options->host_blocks, "Sizes of the host; 0: no host tier", {0, blocks_max})
      .option("--policy", options->policies, one_of(EvictionPolicyName::adaptive, EvictionPolicyName::lru), "NAME",
              "Eviction policies: adaptive, lru")
      .option("--inclusion", options->inclusion, to_inclusion, "NAME",
              "How device and host copies of a block relate: lazy-exclusive, non-inclusive, exclusive, inclusive")
      .option("--device", options->device, one_of(BenchDevice::instant, BenchDevice::emulated), "DEVICE", "instant, emulated")
      .count("--trace-block-tokens", options->trace_block_tokens, "Tokens per hash id of the trace", {1})
      .count("--block-tokens", options->block_tokens, "Tokens per block; must divide --trace-block-tokens", {1})
      .rounds(options->rounds, {1})
      .runs(chosen, options, bench_step);
  bench.command().get_option("TRACE")->required();
}

void add_link(CLI::App& lab, ChosenBench& chosen) {
  const auto options = std::make_shared<LinkBenchOptions>();
  Bench{lab, "link", "A GPU's driver and link alone, without Terrace's transfers",
        "\nExample:\n  terrace-lab link --device cuda:1 --report link.json"}
      .device(options->cuda, "cuda[:N]")
      .size("--area", options->size.area, "Memory on each side")
      .rounds(options->size.rounds)
      .runs(chosen, options, bench_link);
}

void add_transfer(CLI::App& lab, ChosenBench& chosen) {
  const auto options = std::make_shared<TransferBenchOptions>();
  const Bench bench{lab, "transfer", "Transfers between device and host, compared with plain copies",
                    "\nExamples:\n  terrace-lab transfer --block-bytes 64KiB,2MiB --report transfer.json\n"
                    "  terrace-lab transfer --block-bytes 64KiB --blocks 1000 \\\n"
                    "      --piece-bytes 256KiB --bytes-in-flight 512KiB"};
  bench.device(options->cuda, "emulated, cuda[:N]")
      .size("--block-bytes", options->block_bytes, "Sizes of block")
      .size("--area", options->area_bytes, "Bytes moved in each direction, in blocks of a size")
      .rounds(options->rounds)
      .size("--piece-bytes", options->pieces.bytes, "Size of the pieces that transfers are cut into")
      .count("--pieces-in-flight", options->pieces.in_flight, "Most pieces under way in each direction")
      .size("--bytes-in-flight", options->pieces.bytes_in_flight, "Most bytes under way in each direction")
      .count("--layers", options->layers, "Layers of a block for loads by layer; 1: loads by layer are not measured")
      .option("--link", options->link_bytes_per_second, to_bandwidth, "SIZE/s",
              "Speed of the emulated device's link in each direction; 0B/s: the speed of memory")
      .value("--blocks", options->blocks, WholeNumber<std::uint32_t>{2}, "COUNT",
             "Blocks moved in each direction, instead of an area")
      .runs(chosen, options, bench_transfer);
  bench.command().get_option("--blocks")->excludes(bench.command().get_option("--area"));
}

void add_restart(CLI::App& lab, ChosenBench& chosen) {
  const auto options = std::make_shared<RestartBenchOptions>();
  const Bench bench{lab, "restart", "Start from a store's catalog, compared with reading the catalog",
                    "\nExample:\n  terrace-lab restart --directory /mnt/nvme --blocks 1000000"};
  bench.directory(options->directory)
      .count("--blocks", options->blocks, "Blocks in the store, of 4 KiB each")
      .count("--prefix-blocks", options->prefix_blocks, "Blocks that each prompt adds to an earlier one")
      .rounds(options->rounds)
      .io(options->io)
      .runs(chosen, options, bench_restart);
  bench.command().get_option("--directory")->required();
}

void add_room(CLI::App& lab, ChosenBench& chosen) {
  const auto options = std::make_shared<RoomBenchOptions>();
  RoomModel& model = options->model;
  const Bench bench{lab, "room", "Who waits for device slots, in virtual time, over traces at their own clock",
                    "\nExample:\n  terrace-lab room conversation_trace.jsonl.gz --device-blocks 3000"};
  bench.value("TRACE", options->traces, to_file, "TRACE...", "Traces in Mooncake's format, text or gzip")
      .value("--requests", options->requests_max, WholeNumber<std::uint64_t>{1}, "COUNT", "Only the first requests of each trace")
      .count("--device-blocks", options->device_blocks, "Sizes of the device", {1})
      .count("--host-blocks", model.host_blocks, "Size of the host", {1})
      .count("--block-tokens", model.block_tokens, "Tokens of a block, and of each hash id of the trace", {1})
      .size("--block-bytes", model.block_bytes, "Size of a block")
      .option("--link-bandwidth", model.link_bandwidth, to_positive_bandwidth, "SIZE/s", "Speed of the link in each direction")
      .option("--prefill-speed", model.prefill_speed, to_positive_number, "NUMBER", "Tokens of a prompt computed in a second")
      .option("--output-speed", model.output_speed, to_positive_number, "NUMBER", "Tokens of an output computed in a second")
      .option("--reserve-max", options->reserve_max, to_fraction, "SHARE", "Largest share of the device that is kept free")
      .option("--inclusion", options->inclusions, to_inclusion, "NAME",
              "How device and host copies of a block relate: lazy-exclusive, non-inclusive, exclusive, inclusive")
      .option("--policy", options->policy, one_of(EvictionPolicyName::adaptive, EvictionPolicyName::lru), "NAME",
              "Eviction policy of both tiers: adaptive, lru")
      .runs(chosen, options, bench_room);
  bench.command().get_option("TRACE")->required();
}

void add_shared(CLI::App& lab, ChosenBench& chosen) {
  const auto options = std::make_shared<SharedBenchOptions>();
  SharedStorage& store = options->shared;
  const Bench bench{
      lab, "shared", "A shared store by the client that a cache uses: rates, processor time, probes",
      "\nExamples:\n  terrace-lab shared\n"
      "  terrace-lab shared --shared redis://cache-1:6379 --block-bytes 256KiB,2MiB \\\n      --report shared.json"};
  bench.command()
      .add_option("--shared", store.url, "memory: (of this process), redis://[USER@]HOST[:PORT][,...][?cluster=1], rediss://")
      ->type_name("URL")
      ->default_str(store.url);
  bench
      .value("--shared-password-file", store.password_file, to_file, "FILE",
             "File whose first line is the password (default: the variable TERRACE_SHARED_PASSWORD, or none)")
      .value("--shared-ca-file", store.ca_file, to_file, "FILE",
             "Certificates of the authorities that are trusted (default: those of the system)")
      .value("--shared-secret-file", store.secret_file, to_file, "FILE",
             "File with the secret that blocks are encrypted with (default: they are not)")
      .count("--shared-connections-per-node", store.connections_per_node, "Connections to each server", {1, 64})
      .size("--block-bytes", options->block_bytes, "Sizes of block")
      .size("--area", options->area_bytes, "Bytes moved in each direction and round, in blocks of a size")
      .size("--bytes-in-flight", options->bytes_in_flight, "Most bytes of blocks under way; one block is always allowed")
      .rounds(options->rounds, {1})
      .runs(chosen, options, bench_shared);
}

/// The options that both benches of storage have.
void add_storage_options(const Bench& bench, StorageBenchOptions& options) {
  bench.directory(options.directory)
      .size("--size", options.size, "Size of the store; a plain file of the same size is made too")
      .size("--sizes", options.block_bytes, "Sizes of block")
      .count("--depths", options.depths, "Blocks under way at once")
      .size("--moved", options.moved, "Bytes moved in each measurement; at least eight times the depth")
      .rounds(options.rounds)
      .io(options.io);
}

void add_storage(CLI::App& lab, ChosenBench& chosen) {
  const auto options = std::make_shared<StorageBenchOptions>();
  const Bench bench{lab, "storage", "A file store with its checks, compared with plain direct I/O",
                    "\nExamples:\n  terrace-lab storage --directory /mnt/nvme --report storage.json\n"
                    "  terrace-lab storage --directory /mnt/nvme --sizes 64KiB --depths 16,64 \\\n"
                    "      --io threads\n"
                    "  terrace-lab storage --directory /mnt/a --stripe /mnt/b --stripe /mnt/c"};
  add_storage_options(bench, *options);
  bench.command().get_option("--directory")->required();
  bench
      .value("--stripe", options->stripes, to_directory, "DIR",
             "Directory on a further disk: the store is striped over all; may be given several times")
      .runs(chosen, options, bench_storage);
}

void add_offload(CLI::App& lab, ChosenBench& chosen) {
  const auto options = std::make_shared<OffloadBenchOptions>();
  Bench{lab, "offload", "Orders of an engine that owns its device slots, compared with memcpy",
        "\nExample:\n  terrace-lab offload --block-bytes 64KiB,2MiB --report offload.json"}
      .option("--device", options->device, one_of(BenchDevice::instant, BenchDevice::emulated), "DEVICE", "instant, emulated")
      .size("--block-bytes", options->block_bytes, "Sizes of block")
      .size("--area", options->area_bytes, "Bytes moved in each direction and round, in blocks of a size")
      .count("--small-blocks", options->small_blocks, "Blocks of 64 B moved, for the cost of an order; a multiple of 32")
      .rounds(options->rounds)
      .runs(chosen, options, bench_offload);
}

void add_tier_store(CLI::App& lab, ChosenBench& chosen) {
  const auto options = std::make_shared<StorageBenchOptions>(tier_store_bench_defaults());
  const Bench bench{lab, "tier-store", "Storage alone, as an engine uses it, compared with plain direct I/O",
                    "\nExample:\n  terrace-lab tier-store --directory /mnt/nvme --report tier-store.json"};
  add_storage_options(bench, *options);
  bench.runs(chosen, options, bench_tier_store);
}

}  // namespace

void add_bench_options(CLI::App& lab, ChosenBench& chosen) {
  for (const auto add : {add_index, add_keys, add_step, add_link, add_transfer, add_restart, add_room, add_shared, add_storage,
                         add_offload, add_tier_store}) {
    add(lab, chosen);
  }
}

void run_bench(const ChosenBench& chosen) {
  check_report(chosen.report, {});
  for (const auto& trace : chosen.traces) check_report(chosen.report, {.trace = trace, .store_directories = {}});
  try {
    const Row report = chosen.run();
    if (!chosen.report.empty()) write_report(chosen.report, json_text(report));
  } catch (const std::invalid_argument& error) {
    throw UsageError{error.what()};
  }
}

}  // namespace terrace::tools
