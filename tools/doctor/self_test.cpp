#include "tools/doctor/self_test.hpp"

#include "tools/interrupted.hpp"
#include "tools/output.hpp"
#include "tools/replay/replay.hpp"
#include "tools/scratch_directory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace terrace::tools {
namespace {

constexpr std::uint32_t device_blocks_max = 24;
constexpr std::uint32_t host_blocks_max = 48;
constexpr std::uint32_t prompt_blocks = 4;
constexpr std::uint32_t storage_times = 4;  ///< as many times larger than device and host together
constexpr const char* store_name = "doctor";
constexpr std::chrono::seconds time_for_the_disk{60};

/// Removes what the self-test leaves in the directories of a file store: its own stores, and directories that did not exist.
class StoresOfTest {
 public:
  explicit StoresOfTest(const ReplayOptions& options) : pools_{std::max<std::size_t>(1, options.pools.size())} {
    const auto* const file = std::get_if<FileStorage>(&options.system.storage);
    if (file == nullptr) return;
    for (const std::filesystem::path& directory : file->directories) {
      std::error_code ignored;
      directories_.emplace_back(directory, std::filesystem::exists(directory, ignored));
    }
  }
  ~StoresOfTest() {
    std::error_code ignored;
    for (const auto& [directory, existed] : directories_) {
      for (std::size_t pool = 0; pool < pools_; ++pool) {
        const std::string name = pool == 0 ? store_name : fmt::format("{}-{}", store_name, pool);
        std::filesystem::remove_all(directory / name, ignored);
      }
      if (!existed) std::filesystem::remove(directory, ignored);  // only if it is empty
    }
  }
  StoresOfTest(const StoresOfTest&) = delete;
  StoresOfTest& operator=(const StoresOfTest&) = delete;

 private:
  std::size_t pools_;
  std::vector<std::pair<std::filesystem::path, bool>> directories_;
};

void shrink(Blocks& blocks, std::uint32_t max) { blocks = std::min(blocks, Blocks{max}); }

/// The number of groups whose blocks are in the pool.
std::uint32_t groups_in(const std::vector<GroupConfig>& groups, std::size_t pool) {
  const auto number = std::ranges::count(groups, PoolId{static_cast<PoolId::rep>(pool)}, &GroupConfig::pool);
  return std::max<std::uint32_t>(1, static_cast<std::uint32_t>(number));
}

void shrink(PoolOptions& pool, std::uint32_t groups) {
  shrink(pool.device_blocks, device_blocks_max * groups);
  shrink(pool.host_blocks, host_blocks_max * groups);
  pool.device_blocks_max = {};
  pool.staging_blocks = {};
}

/// Storage that holds all that the test writes.
void shrink_storage(ReplayOptions& options) {
  const Bytes wanted =
      std::accumulate(options.system.pools.begin(), options.system.pools.end(), Bytes{}, [](Bytes sum, const PoolOptions& pool) {
        const std::uint64_t blocks = pool.device_blocks.value() + pool.host_blocks.value();
        return sum + pool.block_bytes * (storage_times * blocks);
      });
  if (auto* const memory = std::get_if<MemoryStorage>(&options.system.storage))
    memory->capacity = std::min(memory->capacity, wanted);
  if (auto* const file = std::get_if<FileStorage>(&options.system.storage)) {
    file->capacity = std::min(file->capacity, wanted * file->directories.size());
    file->name = store_name;
  }
}

/// Why blocks went to a tier and no request found them there.
std::string never_read(const ReplayOptions& options, const ReplayResult& before, const ReplayResult& result, Source source) {
  const bool storage = source == Source::storage;
  const ManagerStats& stats = result.manager;
  const std::uint64_t written = storage ? before.moved.storage_writes.blocks : result.moved.swap_out.blocks;
  if (stats.turned_down > 0) {
    return fmt::format("{} blocks were written and none was read: {} hits were turned down, because loading is expected to take "
                       "longer than computing (unit-prefill, loads)",
                       written, stats.turned_down);
  }
  if (storage && written == 0) {
    if (before.manager.store_over_budget > 0) return "nothing was written: the daily limit (daily-writes) is spent at once";
    if (before.manager.store_failed > 0) return fmt::format("nothing was written: {} writes failed", before.manager.store_failed);
    return fmt::format("nothing was written (write-policy {})", to_string(options.write_policy));
  }
  if (stats.load_failures > 0) return fmt::format("{} loads failed", stats.load_failures);
  return fmt::format("{} blocks were written and none was read: the tier is written and never hit", written);
}

ReplayResult run_part(const ReplayOptions& options) {
  ReplayResult result = run_replay(options);
  if (result.interrupted) throw Interrupted{};
  if (result.failure) throw std::runtime_error{"the self-test ended early: " + *result.failure};
  if (const auto broken = result.checks.broken()) throw std::runtime_error{"the self-test: check failed: " + *broken};
  return result;
}

}  // namespace

ReplayOptions self_test_options(const Config& config, const std::filesystem::path& trace) {
  ReplayArguments arguments;
  arguments.config = config;
  // A replay has no engine with slots of its own. The tiers below the device are the same for both.
  arguments.config.set("--engine-owns-slots", "off");
  arguments.config.set("--key-order", "prefix");
  const CacheSystemOptions configured = arguments.config.options();
  ReplayOptions& wanted = arguments.options;
  wanted.trace = trace;
  wanted.block_tokens = configured.groups.empty() ? 16 : hash_unit(configured.groups, configured.hash_unit_tokens);
  wanted.concurrency = 1;
  wanted.output_tokens_max = 1;
  wanted.loads =
      configured.unit_prefill_seconds > 0 && configured.loads == LoadPolicy::measured ? Loads::measured : Loads::always;
  for (const char* given : {"--block-tokens", "--concurrency", "--output-tokens-max", "--loads"}) arguments.given.insert(given);
  ReplayOptions options = resolve(arguments);
  options.policy = {"lru", lru_policy};
  if (options.has_storage()) options.write_policy = WritePolicy::write_through;
  for (std::vector<PoolOptions>* const pools : {&options.pools, &options.system.pools}) {
    for (std::size_t pool = 0; pool < pools->size(); ++pool) shrink((*pools)[pool], groups_in(options.groups, pool));
  }
  options.device_blocks = options.system.pools.front().device_blocks.value();
  options.host_blocks = options.system.pools.front().host_blocks.value();
  shrink_storage(options);
  options.system.admin = {};
  options.system.host_warm_up = HostWarmUp::before_serving;
  return options;
}

std::string self_test_trace(const ReplayOptions& options) {
  std::string lines;
  std::uint64_t timestamp = 0;
  const auto prompt = [&](std::uint32_t number) {
    std::string ids;
    for (std::uint32_t block = 0; block < prompt_blocks; ++block) {
      ids += fmt::format("{}{}", block == 0 ? "" : ", ", number * prompt_blocks + block);
    }
    lines += fmt::format("{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": 1, \"hash_ids\": [{}]}}\n", timestamp++,
                         std::uint64_t{prompt_blocks} * options.block_tokens, ids);
  };
  const auto prompts = [&](std::uint32_t number, int times) {
    for (int time = 0; time < times; ++time) {
      for (std::uint32_t n = 0; n < number; ++n) prompt(n);
    }
  };
  // Blocks of a group that fit into the tiers of the first pool.
  const std::uint32_t device = options.device_blocks / groups_in(options.groups, 0);
  const std::uint32_t host = options.host_blocks / groups_in(options.groups, 0);
  const std::uint32_t above_device = std::max(prompt_blocks, std::min(host, device) / 2);
  prompts((device + host) * 3 / 2 / prompt_blocks + 1, 2);
  prompts((device + above_device) / prompt_blocks, 3);
  prompts(1, 3);
  return lines;
}

std::vector<TierTest> judge_tiers(const ReplayOptions& options, const ReplayResult& before, const ReplayResult& result) {
  std::vector<TierTest> tests;
  const auto add = [&](Source source, bool there) {
    if (!there) return;
    TierTest test{.tier = std::string{to_string(source)}, .hits = result.counts.found[source]};
    if (result.mismatches > 0 && result.first_mismatch) {
      test.failure = fmt::format("{} of {} compared blocks do not hold what their keys say", result.mismatches, result.compared);
    } else if (test.hits == 0) {
      test.failure = source == Source::device ? "no block was found there" : never_read(options, before, result, source);
    }
    tests.push_back(std::move(test));
  };
  add(Source::device, true);
  add(Source::host, options.host_blocks > 0);
  add(Source::storage, options.has_storage());
  return tests;
}

bool run_self_test(const Config& config) {
  const ScratchDirectory scratch{std::filesystem::temp_directory_path(), "the folder for temporary files"};
  const std::filesystem::path trace = scratch.path() / "trace.jsonl";
  const ReplayOptions options = self_test_options(config, trace);
  std::ofstream{trace} << self_test_trace(options);
  const StoresOfTest stores{options};
  std::optional<ReplayResult> filling;
  if (std::holds_alternative<FileStorage>(options.system.storage)) {
    ReplayOptions first = options;
    first.checkpoint = time_for_the_disk;
    filling = run_part(first);
  }
  const ReplayResult result = run_part(options);
  print("\nself-test: blocks of {} are stored, dropped, found, loaded and compared\n", to_string(options.block_bytes));
  bool all = true;
  for (const TierTest& test : judge_tiers(options, filling ? *filling : result, result)) {
    const std::string verdict =
        test.failure.empty() ? fmt::format("works: {} hits, all equal", test.hits) : "FAILED: " + test.failure;
    print("{:<8} {}\n", test.tier, verdict);
    all = all && test.failure.empty();
  }
  return all;
}

}  // namespace terrace::tools
