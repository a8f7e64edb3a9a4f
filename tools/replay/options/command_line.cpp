#include "tools/replay/options/command_line.hpp"

#include <CLI/CLI.hpp>

#include <string>

namespace terrace::tools {
namespace {

constexpr const char* examples = R"(
Sizes take B, KiB, MiB, GiB, TiB. A request that does not fit beside those in
flight waits, in order.

Exit status: 0 done; 1 a check failed (a mismatch, a broken invariant); 2 bad
arguments or input; 3 failed while running; 130 interrupted (the report
has what was done). Each status but 0 comes with one line on standard error.

Examples:
  terrace replay
      a generated chat workload over a small device and host
  terrace replay --workload agent --requests 500
      agents that send their long contexts again in each step
  terrace replay trace.jsonl.gz --device-blocks 3000 --host-blocks 20000 \
      --report report.json
      a trace, up to 16 requests in flight, every hit compared
  zcat traces/*.gz | terrace replay - --requests 5000
      a trace from a pipe
  terrace replay trace.jsonl.gz --reference --block-bytes 4KiB \
      --device-blocks 1000 --host-blocks 20000 --inclusion exclusive
      hit rates that depend on the policy only
  terrace replay trace.jsonl.gz --reference --policy arc \
      --device-blocks 3000 --host-blocks 0
      the same for another policy, in one tier
  terrace replay --storage file:/var/cache/terrace --storage-capacity 4GiB \
      --write-policy write-back
      three tiers; run it twice to see a warm restart
  terrace replay trace.jsonl.gz --requests 6000 --checkpoint 60 \
      --storage file:/var/cache/terrace --storage-capacity 16GiB
  terrace replay trace.jsonl.gz --skip 6000 \
      --storage file:/var/cache/terrace --storage-capacity 16GiB
      stop in the middle and start again: cached blocks are durable, and are
      hits
  terrace replay --workload agent --device-blocks 800 --concurrency 32 \
      --step-tokens 2048 --output-tokens-max 1000
      an engine short of memory: prompts in small chunks, long answers,
      requests are preempted and continued
  terrace replay --abort-rate 0.3 --output-tokens-max 200
      clients that leave while they wait, while their blocks are loaded, and in
      the middle of an answer
  terrace replay trace.jsonl --speed 60 --mode loop
      an hour of trace in a minute, on an event loop
  terrace replay --speed 20 --prefill-speed 40000 --storage-bandwidth 50MiB \
      --storage file:/var/cache/terrace --storage-capacity 4GiB
      a slow disk: loads only what is faster than computing; compare the time to
      the first token with --loads always and --loads none
  terrace replay --inject flip
      plants faults; the status is 1, because the verification detects them)";

/// Adds options of one group.
class Group {
 public:
  /// An empty name stands for the options that the short help shows.
  Group(CLI::App& command, std::string name) : command_{command}, name_{std::move(name)} {}

  template <class Value>
  const Group& option(const char* name, Value& value, const char* type, const char* text) const {
    CLI::Option* const added = command_.add_option(name, value, text)->type_name(type);
    if (!name_.empty()) added->group(name_);
    return *this;
  }
  const Group& flag(const char* name, bool& value, const char* text) const {
    command_.add_flag(name, value, text)->group(name_);
    return *this;
  }

 private:
  CLI::App& command_;
  const std::string name_;
};

}  // namespace

void add_replay_options(CLI::App& command, ReplayArguments& into) {
  command.footer(examples);
  command.set_help_all_flag("--help-all", "Print all options, and exit");
  command.add_option("trace", into.trace,
                     "Trace to replay: Mooncake JSON lines, may be gzipped; - is standard input; else a built-in workload");

  Group{command, ""}
      .option("--workload", into.workload, "NAME",
              "Built-in workload: chat (default); agent, long contexts sent again at each step; rag, questions to documents")
      .option("--requests", into.requests, "COUNT", "Most requests to serve (default: the whole trace; a workload: 2000)")
      .option("--device", into.device, "DEVICE",
              "emulated (default), cuda[:N]; for several ranks: the first, or all: cuda:0,cuda:2")
      .option("--device-capacity", into.device_capacity, "SIZE", "Device memory for blocks (default: 3000 blocks)")
      .option("--host-capacity", into.host_capacity, "SIZE", "Host memory for blocks (default: 8000 blocks); 0: no host tier")
      .option("--storage", into.storage, "WHERE",
              "none (default), memory:, file:DIR (blocks that DIR holds from before are hits)")
      .option("--storage-capacity", into.storage_capacity, "SIZE", "Capacity of the storage tier; mandatory with --storage")
      .option("--write-policy", into.write_policy, "NAME",
              "Which blocks reach storage: none, write-through (default with --storage), selective, write-back")
      .option("--policy", into.policy, "NAME",
              "Eviction policy: adaptive (default), lru (default with --reference), lru-2, arc, s3-fifo")
      .option("--report", into.report, "FILE", "Write a JSON report to this file");

  Group{command, "Requests"}
      .option("--seed", into.seed, "NUMBER", "Seed of the built-in workload and of aborts (default 1)")
      .option("--skip", into.skip, "COUNT", "Skip this many first requests, to continue where --requests ended (default 0)")
      .option("--block-tokens", into.block_tokens, "COUNT", "Tokens per hash id of the trace (default 512; a workload: 64)")
      .option("--output-tokens-max", into.output_tokens_max, "COUNT",
              "Most output tokens of a request (default 128); 0 and 1: prompts only")
      .option("--cache-output", into.cache_output, "on|off", "Whether full blocks of the output are cached as well (default on)")
      .option("--abort-rate", into.abort_rate, "SHARE",
              "Share of the requests, 0 to 1, aborted at any point of their life "
              "(default 0)");

  Group{command, "Device and host memory"}
      .option("--block-bytes", into.block_bytes, "SIZE", "Size of a block (default 64KiB)")
      .option("--device-blocks", into.device_blocks, "COUNT", "Blocks of device memory (default 3000), instead of a capacity")
      .option("--host-blocks", into.host_blocks, "COUNT", "Blocks of host memory (default 8000), instead of a capacity")
      .option("--inclusion,--relation", into.inclusion, "NAME",
              "How device and host copies relate: non-inclusive (default; also: keep), exclusive, inclusive")
      .option("--ranks", into.ranks, "COUNT", "Devices that share each block, under one manager (default: those named)")
      .option("--rank-payload", into.rank_payload, "NAME",
              "What a rank holds: sharded, its part of a block (default); replicated, all have the same");

  Group{command, "Storage"}
      .option("--storage-floor", into.storage_floor, "SIZE", "Free space to keep in the file system of file:DIR (default 0)")
      .option("--storage-name", into.storage_name, "NAME",
              "The store's own directory in file:DIR: digits, lower-case letters and '-' (default store)")
      .option("--storage-stripe", into.storage_stripes, "DIR",
              "A further directory, on another disk, that file:DIR is striped over; may be given several times")
      .option("--storage-stripe-size", into.storage_stripe_size, "SIZE",
              "Bytes that lie side by side in one directory before the next one follows (default 4MiB)")
      .flag("--storage-accept-lost", into.storage_accept_lost,
            "Start without the directories that cannot be used: what they held is lost")
      .option("--storage-bandwidth", into.storage_bandwidth, "SIZE",
              "Most bytes read and written per second with file:DIR, to imitate a slower disk")
      .option("--storage-io", into.storage_io, "NAME",
              "What reads and writes files: auto (default: io_uring if it is available), uring, threads")
      .option("--storage-retries", into.storage_retries, "COUNT",
              "How often a failed read or write of file:DIR is retried, if that may help (default 1)")
      .option("--storage-breaker-failures", into.storage_breaker_failures, "COUNT",
              "Failures in a row after which file:DIR is not used for a while (default 5)")
      .option("--storage-breaker-window", into.storage_breaker_window, "SECONDS",
              "Time within which these failures must come (default 10)")
      .option("--storage-breaker-probe", into.storage_breaker_probe, "SECONDS",
              "Time until one operation tests whether file:DIR works again (default 0.5)")
      .option("--checkpoint", into.checkpoint, "SECONDS",
              "At the end, also after Ctrl-C: write cached blocks to storage within this time, and report what is durable");

  Group{command, "Pace"}
      .flag("--reference", into.reference,
            "Copies take no time, requests run one at a time, in order; only full blocks; the last token may hit")
      .option("--concurrency", into.concurrency, "COUNT", "Most requests in flight (default 16)")
      .option("--step-tokens", into.step_tokens, "COUNT",
              "Most tokens computed in a step, for all requests together (default 8192); in loop mode for one request")
      .option("--speed", into.speed, "FACTOR", "Requests come at the times of the trace, this many times faster")
      .option("--prefill-speed", into.prefill_speed, "COUNT", "Most tokens computed per second (default: no limit)")
      .option("--loads", into.loads, "NAME",
              "Which hits below the device are loaded: always (default); measured, if loading is faster than computing (default "
              "with --prefill-speed or --storage-bandwidth; not with --reference); host, none from storage; none")
      .option("--mode", into.mode, "NAME", "confined: one thread that polls (default); loop: event loop and coroutines")
      .option("--threads", into.threads, "COUNT", "Threads of the event loop (default 1)")
      .option("--release", into.release, "NAME",
              "When a request's lease ends: done, its work is computed (default); launch, it is launched");

  Group{command, "Checks"}
      .option("--verify", into.verify, "NAME", "Compare the content of hits: all (default), sample (every 16th), none")
      .option("--inject", into.inject, "NAME", "Plant a fault that the verification must catch: flip, late, no-fence");
}

}  // namespace terrace::tools
