#include "tools/bench/command_line.hpp"

#include "base/bytes.hpp"
#include "tools/bench/index/index.hpp"
#include "tools/bench/index/keys.hpp"
#include "tools/bench/storage/restart.hpp"
#include "tools/bench/storage/storage.hpp"
#include "tools/bench/transfer/copy.hpp"
#include "tools/bench/transfer/touch.hpp"
#include "tools/bench/transfer/transfer.hpp"
#include "tools/device_name.hpp"
#include "tools/report_file.hpp"
#include "tools/usage_error.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <stdexcept>

namespace terrace::tools {
namespace {

Bytes size_of(const char* flag, const std::string& text) {
  const Result<Bytes> size = parse_bytes(text);
  if (!size) throw UsageError{fmt::format("{} {}: not a size; write it as 64KiB, 512MiB or 4096", flag, text)};
  return *size;
}

void add_copy_options(CLI::App& copy, BenchArguments::Copy& arguments) {
  copy.add_option("--block-bytes", arguments.block_bytes, "Size of a block")->type_name("SIZE")->capture_default_str();
  copy.add_option("--area", arguments.area_bytes, "Size of each of the two areas")->type_name("SIZE")->capture_default_str();
  copy.add_option("--rounds", arguments.rounds, "Measurements to take the median of")->type_name("COUNT")->capture_default_str();
  copy.footer("\nExample:\n  terrace bench copy --block-bytes 2MiB");
}

void add_index_options(CLI::App& index, BenchArguments::Index& arguments) {
  index.add_option("--blocks", arguments.blocks, "Numbers of cached blocks to measure at; --trace uses the first")
      ->type_name("COUNT")
      ->delimiter(',')
      ->capture_default_str();
  index.add_option("--rounds", arguments.rounds, "Measurements to take the median of")->type_name("COUNT")->capture_default_str();
  index.add_option("--trace", arguments.trace, "Replay only the control plane of this trace instead")->type_name("FILE");
  index.add_option("--trace-block-tokens", arguments.trace_block_tokens, "Tokens per hash id of the trace")
      ->type_name("COUNT")
      ->capture_default_str();
  index.add_option("--block-tokens", arguments.block_tokens, "Tokens per block; must divide --trace-block-tokens")
      ->type_name("COUNT")
      ->capture_default_str();
  index.add_option("--report", arguments.report, "Write the figures to this file, as JSON")->type_name("FILE");
  index.footer("\nExamples:\n  terrace bench index --blocks 10000,1000000\n"
               "  terrace bench index --trace trace.jsonl.gz --blocks 40000 \\\n      --report index.json");
}

void add_keys_options(CLI::App& keys, BenchArguments::Keys& arguments) {
  keys.add_option("--block-tokens", arguments.block_tokens, "Sizes of block")
      ->type_name("COUNT")
      ->delimiter(',')
      ->capture_default_str();
  keys.add_option("--prompt-tokens", arguments.prompt_tokens, "Tokens of each prompt")->type_name("COUNT")->capture_default_str();
  keys.add_option("--prompts", arguments.prompts, "Number of prompts")->type_name("COUNT")->capture_default_str();
  keys.add_option("--rounds", arguments.rounds, "Measurements to take the medians of")->type_name("COUNT")->capture_default_str();
  keys.add_option("--report", arguments.report, "Write the medians to this file, as JSON")->type_name("FILE");
  keys.footer("\nExample:\n  terrace bench keys --block-tokens 16,64 --report keys.json");
}

void add_transfer_options(CLI::App& transfer, BenchArguments::Transfer& arguments) {
  transfer.add_option("--device", arguments.device, "emulated, cuda[:N]")->type_name("DEVICE")->capture_default_str();
  transfer.add_option("--block-bytes", arguments.block_bytes, "Sizes of block")
      ->type_name("SIZE")
      ->delimiter(',')
      ->capture_default_str();
  CLI::Option* const area =
      transfer.add_option("--area", arguments.area_bytes, "Bytes moved in each direction, in blocks of a size")
          ->type_name("SIZE");
  area->capture_default_str();
  transfer.add_option("--blocks", arguments.blocks, "Blocks moved in each direction, instead of an area")
      ->type_name("COUNT")
      ->excludes(area);
  transfer.add_option("--rounds", arguments.rounds, "Measurements to take the medians of")
      ->type_name("COUNT")
      ->capture_default_str();
  transfer.add_option("--piece-bytes", arguments.piece_bytes, "Size of the pieces that transfers are cut into")
      ->type_name("SIZE")
      ->capture_default_str();
  transfer.add_option("--pieces-in-flight", arguments.pieces_in_flight, "Pieces under way in each direction")
      ->type_name("COUNT")
      ->capture_default_str();
  transfer.add_option("--layers", arguments.layers, "Layers of a block for loads by layer; 1: loads by layer are not measured")
      ->type_name("COUNT")
      ->capture_default_str();
  transfer
      .add_option("--link", arguments.link,
                  "Speed of the emulated device's link per second and direction; 0B: the speed of memory")
      ->type_name("SIZE")
      ->capture_default_str();
  transfer.add_option("--report", arguments.report, "Write the medians to this file, as JSON")->type_name("FILE");
  transfer.footer("\nExamples:\n  terrace bench transfer --block-bytes 64KiB,2MiB --report transfer.json\n"
                  "  terrace bench transfer --block-bytes 64KiB --blocks 1000 \\\n"
                  "      --piece-bytes 256KiB --pieces-in-flight 1");
}

void add_restart_options(CLI::App& restart, BenchArguments::Restart& arguments) {
  restart.add_option("--directory", arguments.directory, "Directory on the disk to measure; temporary files are removed")
      ->type_name("DIR")
      ->required();
  restart.add_option("--blocks", arguments.blocks, "Blocks in the store, of 4 KiB each")
      ->type_name("COUNT")
      ->capture_default_str();
  restart.add_option("--prefix-blocks", arguments.prefix_blocks, "Blocks that each prompt adds to an earlier one")
      ->type_name("COUNT")
      ->capture_default_str();
  restart.add_option("--rounds", arguments.rounds, "Measurements to take the medians of")
      ->type_name("COUNT")
      ->capture_default_str();
  restart.add_option("--io", arguments.io, "auto, uring, threads")->type_name("NAME")->capture_default_str();
  restart.add_option("--report", arguments.report, "Write the medians to this file, as JSON")->type_name("FILE");
  restart.footer("\nExample:\n  terrace bench restart --directory /mnt/nvme --blocks 1000000");
}

void add_storage_options(CLI::App& storage, BenchArguments::Storage& arguments) {
  storage.add_option("--directory", arguments.directory, "Directory on the disk to measure; temporary files are removed")
      ->type_name("DIR")
      ->required();
  storage
      .add_option("--stripe", arguments.stripes,
                  "Directory on a further disk: the store is striped over all; may be given several times")
      ->type_name("DIR");
  storage.add_option("--size", arguments.size, "Size of the store; a plain file of the same size is made too")
      ->type_name("SIZE")
      ->capture_default_str();
  storage.add_option("--sizes", arguments.sizes, "Sizes of block")->type_name("SIZE")->delimiter(',')->capture_default_str();
  storage.add_option("--depths", arguments.depths, "Blocks under way at once")
      ->type_name("COUNT")
      ->delimiter(',')
      ->capture_default_str();
  storage.add_option("--moved", arguments.moved, "Bytes moved in each measurement; at least eight times the depth")
      ->type_name("SIZE")
      ->capture_default_str();
  storage.add_option("--rounds", arguments.rounds, "Measurements to take the medians of")
      ->type_name("COUNT")
      ->capture_default_str();
  storage.add_option("--io", arguments.io, "auto, uring, threads")->type_name("NAME")->capture_default_str();
  storage.add_option("--report", arguments.report, "Write the medians to this file, as JSON")->type_name("FILE");
  storage.footer("\nExamples:\n  terrace bench storage --directory /mnt/nvme --report storage.json\n"
                 "  terrace bench storage --directory /mnt/nvme --sizes 64KiB --depths 16,64 \\\n"
                 "      --io threads\n"
                 "  terrace bench storage --directory /mnt/a --stripe /mnt/b --stripe /mnt/c");
}

void add_touch_options(CLI::App& touch, BenchArguments::Touch& arguments) {
  touch.add_option("--size", arguments.size, "Size of the memory")->type_name("SIZE")->capture_default_str();
  touch.add_option("--threads", arguments.threads, "Threads that touch it")
      ->type_name("COUNT")
      ->delimiter(',')
      ->capture_default_str();
  touch.add_option("--rounds", arguments.rounds, "Measurements to take the medians of")
      ->type_name("COUNT")
      ->capture_default_str();
  touch.footer("\nExample:\n  terrace bench touch --size 4GiB --threads 1,2,4,8");
}

void run_copy(const BenchArguments::Copy& arguments) {
  CopyBenchOptions options;
  options.block_bytes = size_of("--block-bytes", arguments.block_bytes);
  options.area_bytes = size_of("--area", arguments.area_bytes);
  options.rounds = arguments.rounds;
  bench_copy(options);
}

void run_keys(const BenchArguments::Keys& arguments) {
  bench_keys({.block_tokens = arguments.block_tokens,
              .prompt_tokens = arguments.prompt_tokens,
              .prompts = arguments.prompts,
              .rounds = arguments.rounds,
              .report = arguments.report});
}

IoChoice io_of(const std::string& word) {
  const std::optional<IoChoice> io = parse_io_choice(word);
  if (!io) throw UsageError{fmt::format("--io: there is no \"{}\"; there is: auto, uring, threads", word)};
  return *io;
}

void run_restart(const BenchArguments::Restart& arguments) {
  bench_restart({.directory = arguments.directory,
                 .blocks = arguments.blocks,
                 .prefix_blocks = arguments.prefix_blocks,
                 .rounds = arguments.rounds,
                 .io = io_of(arguments.io),
                 .report = arguments.report});
}

void run_storage(const BenchArguments::Storage& arguments) {
  StorageBenchOptions options;
  options.directory = arguments.directory;
  options.stripes.assign(arguments.stripes.begin(), arguments.stripes.end());
  options.size = size_of("--size", arguments.size);
  options.block_bytes.clear();
  for (const std::string& size : arguments.sizes) options.block_bytes.push_back(size_of("--sizes", size));
  options.depths = arguments.depths;
  options.moved = size_of("--moved", arguments.moved);
  options.rounds = arguments.rounds;
  options.io = io_of(arguments.io);
  options.report = arguments.report;
  bench_storage(options);
}

void run_touch(const BenchArguments::Touch& arguments) {
  bench_touch({.size = size_of("--size", arguments.size), .threads = arguments.threads, .rounds = arguments.rounds});
}

void run_index(const BenchArguments::Index& arguments) {
  constexpr std::uint32_t blocks_max = 1U << 28;
  if (arguments.rounds == 0) throw UsageError{"--rounds 0: at least 1 is needed"};
  for (const std::uint32_t blocks : arguments.blocks) {
    if (blocks < 64 || blocks > blocks_max) {
      throw UsageError{fmt::format("--blocks {}: must be from 64 to {}", blocks, blocks_max)};
    }
  }
  if (arguments.trace.empty()) {
    bench_index({.blocks = arguments.blocks, .repetitions = arguments.rounds, .report = arguments.report});
    return;
  }
  if (arguments.block_tokens == 0 || arguments.trace_block_tokens % arguments.block_tokens != 0) {
    throw UsageError{
        fmt::format("--block-tokens {}: must divide the trace's {}", arguments.block_tokens, arguments.trace_block_tokens)};
  }
  bench_index_trace({.trace = arguments.trace,
                     .trace_block_tokens = arguments.trace_block_tokens,
                     .block_tokens = arguments.block_tokens,
                     .capacity = arguments.blocks.front(),
                     .rounds = arguments.rounds,
                     .report = arguments.report});
}

void run_transfer(const BenchArguments::Transfer& arguments) {
  TransferBenchOptions options;
  options.cuda = parse_cuda("--device", arguments.device);
  options.block_bytes.clear();
  for (const std::string& size : arguments.block_bytes) options.block_bytes.push_back(size_of("--block-bytes", size));
  options.area_bytes = size_of("--area", arguments.area_bytes);
  if (arguments.blocks == 0U) throw UsageError{"--blocks 0: at least 2 are needed"};
  options.blocks = arguments.blocks.value_or(0);
  options.rounds = arguments.rounds;
  options.piece_bytes = size_of("--piece-bytes", arguments.piece_bytes);
  options.pieces_in_flight = arguments.pieces_in_flight;
  options.layers = arguments.layers;
  options.link_bytes_per_second = size_of("--link", arguments.link);
  options.report = arguments.report;
  bench_transfer(options);
}

}  // namespace

void add_bench_options(CLI::App& bench, BenchArguments& arguments) {
  bench.require_subcommand(1);
  CLI::App* const copy = bench.add_subcommand("copy", "Copy speed of one core for scattered blocks, a baseline for replay");
  add_copy_options(*copy, arguments.copy);
  copy->callback([&] { arguments.part = BenchArguments::Part::copy; });
  CLI::App* const index = bench.add_subcommand("index", "The control plane alone, compared with three baselines");
  add_index_options(*index, arguments.index);
  index->callback([&] { arguments.part = BenchArguments::Part::index; });
  CLI::App* const keys = bench.add_subcommand("keys", "Making keys from tokens, compared with OpenSSL's digests");
  add_keys_options(*keys, arguments.keys);
  keys->callback([&] { arguments.part = BenchArguments::Part::keys; });
  CLI::App* const transfer = bench.add_subcommand("transfer", "Transfers between device and host, compared with plain copies");
  add_transfer_options(*transfer, arguments.transfer);
  transfer->callback([&] { arguments.part = BenchArguments::Part::transfer; });
  CLI::App* const restart = bench.add_subcommand("restart", "Start from a store's catalog, compared with reading the catalog");
  add_restart_options(*restart, arguments.restart);
  restart->callback([&] { arguments.part = BenchArguments::Part::restart; });
  CLI::App* const storage = bench.add_subcommand("storage", "A file store with its checks, compared with plain direct I/O");
  add_storage_options(*storage, arguments.storage);
  storage->callback([&] { arguments.part = BenchArguments::Part::storage; });
  CLI::App* const touch = bench.add_subcommand("touch", "Time for the first touch of the host tier's memory");
  add_touch_options(*touch, arguments.touch);
  touch->callback([&] { arguments.part = BenchArguments::Part::touch; });
}

void run_bench(const BenchArguments& arguments) {
  for (const auto* const report : {&arguments.index.report, &arguments.keys.report, &arguments.transfer.report,
                                   &arguments.restart.report, &arguments.storage.report}) {
    check_report(*report, {.trace = arguments.index.trace, .store_directories = {}});
  }
  try {
    switch (arguments.part) {
      case BenchArguments::Part::copy: run_copy(arguments.copy); break;
      case BenchArguments::Part::index: run_index(arguments.index); break;
      case BenchArguments::Part::keys: run_keys(arguments.keys); break;
      case BenchArguments::Part::restart: run_restart(arguments.restart); break;
      case BenchArguments::Part::storage: run_storage(arguments.storage); break;
      case BenchArguments::Part::touch: run_touch(arguments.touch); break;
      case BenchArguments::Part::transfer: run_transfer(arguments.transfer); break;
    }
  } catch (const std::invalid_argument& error) {
    throw UsageError{error.what()};
  }
}

}  // namespace terrace::tools
