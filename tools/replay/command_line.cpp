#include "tools/replay/command_line.hpp"

#include <CLI/CLI.hpp>

namespace terrace::tools {
namespace {

constexpr const char* examples = R"(
A request that does not fit beside those in flight waits, in order. Sizes take B, KiB, MiB, GiB, TiB.

Exit status: 0 done; 1 a check failed (a mismatch, a broken invariant); 2 bad arguments or input; 3 failed while running;
130 interrupted (the report is of what was done). Each but 0 comes with one line on standard error.

Examples:
  terrace replay
      a chat service, made up from a seed, over a small device and host
  terrace replay --workload agent --requests 500
      agents at work, whose long contexts are read again at each step
  terrace replay trace.jsonl.gz --device-blocks 3000 --host-blocks 20000 --report report.json
      a trace, up to 16 requests in flight, every hit compared
  terrace replay trace.jsonl.gz --reference --block-bytes 4KiB --device-blocks 1000 --host-blocks 20000 --relation exclusive
      hit rates as they follow from the policy alone
  terrace replay trace.jsonl.gz --reference --policy arc --device-blocks 3000 --host-blocks 0
      the same of another policy than lru, in one tier
  terrace replay --storage file:/var/cache/terrace --storage-capacity 4GiB --write-policy write-back
      three tiers; run it twice to see a warm restart
  terrace replay trace.jsonl.gz --requests 6000 --storage file:/var/cache/terrace --storage-capacity 16GiB --checkpoint 60
  terrace replay trace.jsonl.gz --skip 6000 --storage file:/var/cache/terrace --storage-capacity 16GiB
      stopped in the middle and started again: what was cached is durable, and a hit
  terrace replay --workload agent --device-blocks 800 --concurrency 32 --step-tokens 2048 --output-tokens-max 1000
      an engine short of memory: prompts in small chunks, long answers, requests preempted and taken up again
  terrace replay --abort-rate 0.3 --output-tokens-max 200
      clients that leave, while they wait, while their blocks come up, and in the middle of an answer
  terrace replay trace.jsonl --speed 60 --mode loop
      an hour of trace in a minute, on an event loop
  terrace replay --speed 20 --prefill-speed 40000 --storage file:/var/cache/terrace --storage-capacity 4GiB
      --storage-bandwidth 50MiB
      a slow disk: what of it is worth waiting for, and the time to the first token; compare --loads always and none
  terrace replay --inject flip
      plants faults, and ends with 1 since the verification catches them)";

}  // namespace

void add_replay_options(CLI::App& command, ReplayArguments& into) {
  command.footer(examples);
  command.add_option("trace", into.trace, "Trace to replay: Mooncake JSON lines, may be gzipped; else a built-in workload");

  command
      .add_option("--workload", into.workload,
                  "Built-in workload: chat (default); agent, long contexts sent again at each step; rag, questions to documents")
      ->group("Requests");
  command.add_option("--seed", into.seed, "Of the built-in workload and of aborts (default 1)")->group("Requests");
  command.add_option("--skip", into.skip, "Leave out so many first requests: go on where one of --requests N ended (default 0)")
      ->group("Requests");
  command.add_option("--requests", into.requests, "At most so many (default: the whole trace; a workload: 2000)")
      ->group("Requests");
  command.add_option("--block-tokens", into.block_tokens, "Tokens per hash id of the trace (default 512; a workload: 64)")
      ->group("Requests");

  command.add_option("--output-tokens-max", into.output_tokens_max,
                     "Of a request, whatever the trace says (default 128); 0 and 1: prompts alone")->group("Requests");
  command.add_option("--cache-output", into.cache_output, "Full blocks of the output are cached as well: on (default), off")
      ->group("Requests");
  command.add_option("--abort-rate", into.abort_rate, "Share of the requests, 0 to 1, aborted at any point of their life "
                     "(default 0)")->group("Requests");

  command.add_option("--device", into.device, "emulated (default), cuda[:N]; of ranks the first, or all of them: cuda:0,cuda:2")
      ->group("Tiers");
  command.add_option("--ranks", into.ranks, "Devices that share each block, under one manager (default: those named)")
      ->group("Tiers");
  command.add_option("--rank-payload", into.rank_payload,
                     "Of ranks: sharded, each has its part of a block (default); replicated, all have the same")->group("Tiers");
  command.add_option("--device-blocks", into.device_blocks, "Blocks of device memory (default 3000)")->group("Tiers");
  command.add_option("--device-capacity", into.device_capacity, "The same as a size")->group("Tiers");
  command.add_option("--host-blocks", into.host_blocks, "Blocks of host memory (default 8000); 0: no host tier")->group("Tiers");
  command.add_option("--host-capacity", into.host_capacity, "The same as a size")->group("Tiers");
  command.add_option("--storage", into.storage, "none (default), memory:, file:DIR (what it holds from before is a hit)")
      ->group("Tiers");
  command.add_option("--storage-capacity", into.storage_capacity, "What storage may take, mandatory with --storage")
      ->group("Tiers");
  command.add_option("--storage-floor", into.storage_floor,
                     "Of its file system, what is to stay free, with file:DIR (default 0)")->group("Tiers");
  command.add_option("--storage-name", into.storage_name,
                     "Of this store, where several lie in one file:DIR: digits, lower-case letters and '-'")->group("Tiers");
  command.add_option("--storage-stripe", into.storage_stripes,
                     "A further directory, on another disk, that file:DIR is striped over; may be given several times")
      ->group("Tiers");
  command.add_option("--storage-stripe-size", into.storage_stripe_size,
                     "What lies side by side on one of them before it is the next one's turn (default 4MiB)")->group("Tiers");
  command.add_flag("--storage-accept-lost", into.storage_accept_lost,
                   "Of these directories, start without those that cannot be used: what they held is lost")->group("Tiers");
  command.add_option("--storage-bandwidth", into.storage_bandwidth,
                     "A second, read and written: a slower disk than the one at hand, with file:DIR")->group("Tiers");
  command.add_option("--storage-io", into.storage_io,
                     "What reads and writes files: auto (default: io_uring where there is any), uring, threads")->group("Tiers");
  command.add_option("--storage-scrub", into.storage_scrub,
                     "A second, at most: what file:DIR holds is read over and over, to find what has rotted (default 0B: off)")
      ->group("Tiers");
  command.add_option("--storage-retries", into.storage_retries,
                     "So often a read or write of file:DIR is tried again where that may help (default 1)")->group("Tiers");
  command.add_option("--storage-breaker-failures", into.storage_breaker_failures,
                     "After so many in a row file:DIR is not used (default 5),")->group("Tiers");
  command.add_option("--storage-breaker-window", into.storage_breaker_window,
                     "where they come within so many seconds (default 10),")->group("Tiers");
  command.add_option("--storage-breaker-probe", into.storage_breaker_probe,
                     "and so many seconds later one is let through, to try it (default 0.5)")->group("Tiers");
  command.add_option("--relation", into.relation, "Of device and host copies: keep (default), exclusive, inclusive")
      ->group("Tiers");
  command.add_option("--write-policy", into.write_policy,
                     "What reaches storage: none, write-through (default with --storage), selective, write-back")->group("Tiers");
  command.add_option("--checkpoint", into.checkpoint,
                     "At the end, Ctrl-C included: bring what is cached to storage in so many seconds, and say what is durable")
      ->group("Tiers");
  command.add_option("--policy", into.policy,
                     "What goes first: adaptive (default), lru (default with --reference), lru-2, arc, s3-fifo")
      ->group("Tiers");
  command.add_option("--host-admission", into.host_admission,
                     "What the device gives up goes to the host: all (default); adaptive: not what was used once, if that pays")
      ->group("Tiers");
  command.add_option("--block-bytes", into.block_bytes, "Size of a block (default 64KiB)")->group("Tiers");

  command
      .add_flag("--reference", into.reference,
                "Instantaneous, in order, one at a time; only full blocks; the last token may hit")
      ->group("Pace");
  command.add_option("--concurrency", into.concurrency, "Requests in flight at most (default 16)")->group("Pace");
  command.add_option("--step-tokens", into.step_tokens,
                     "Computed in a step at most, all requests together (default 8192); loop: of one request at a time")
      ->group("Pace");
  command.add_option("--speed", into.speed, "Instead: requests come at the trace's own times, sped up so many times")
      ->group("Pace");
  command.add_option("--prefill-speed", into.prefill_speed,
                     "Tokens a second: compute takes its time, and a hit below the device is taken only where that is sooner")
      ->group("Pace");
  command.add_option("--loads", into.loads,
                     "With it, hits taken: measured, by what paths do (default); always; none, from the device alone")
      ->group("Pace");
  command.add_option("--mode", into.mode, "confined: one thread that polls (default); loop: event loop and coroutines")
      ->group("Pace");
  command.add_option("--threads", into.threads, "Of the event loop (default 1)")->group("Pace");
  command.add_option("--release", into.release,
                     "When a request's lease ends: done, its work is computed (default); launch, it is launched")->group("Pace");

  command.add_option("--verify", into.verify, "Compare the content of hits: all (default), sample (every 16th), none")
      ->group("Checks");
  command.add_option("--inject", into.inject, "Plant a fault that the verification must catch: flip, late, no-fence")
      ->group("Checks");
  command.add_option("--report", into.report, "Write a JSON report to this file")->group("Checks");
}

}  // namespace terrace::tools
