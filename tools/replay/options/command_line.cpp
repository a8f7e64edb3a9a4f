#include "runtime/config/table/values.hpp"
#include "tools/arguments.hpp"
#include "tools/config/flags.hpp"
#include "tools/replay/options/options.hpp"
#include "tools/replay/workload/workloads.hpp"

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
  terrace replay trace.jsonl.gz --reference --policy adaptive --bound \
      --device-blocks 3000 --host-blocks 0
      the same for another policy, in one tier, and how good it could be
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
      the first token with --loads always, --loads none and --prefetch-ahead 0.5
  terrace replay --requests 100000 --speed 20 --admin unix:
      operators watch and drive it meanwhile: terrace top, terrace set
  terrace replay --inject flip
      plants faults; the status is 1, because the verification detects them)";

constexpr std::uint64_t tokens_max = std::uint64_t{1} << 32;
constexpr std::uint64_t skip_max = std::uint64_t{1} << 48;

bool to_bool(const std::string& option, const std::string& word) {
  return as_usage([&] { return config::read_yes_no(option, word); });
}

}  // namespace

void add_replay_options(CLI::App& command, ReplayArguments& into) {
  command.footer(examples);
  command.set_help_all_flag("--help-all", "Print all options, and exit");
  ReplayOptions& options = into.options;
  std::string group;  // of the next options; empty: those that the short help shows
  const auto option = [&]<class T, class Convert>(const char* names, T& value, Convert convert, const char* type,
                                                  const char* text) {
    const auto convert_and_note = [&given = into.given, convert](const std::string& name, const std::string& word) {
      given.insert(name);
      return convert(name, word);
    };
    CLI::Option* const added = with_choices(add_value(command, names, value, convert_and_note, type, text), convert);
    if (!group.empty()) added->group(group);
  };
  add_value(command, "trace", options.trace, to_file, "FILE",
            "Trace to replay: Mooncake JSON lines, may be gzipped; - is standard input; else a built-in workload");

  option("--workload", options.workload, OneOf{workload_names}, "NAME",
         "Built-in workload: chat (default); agent, long contexts sent again at each step; rag, questions to documents");
  option("--requests", options.requests_max, WholeNumber<std::uint64_t>{1}, "COUNT",
         "Most requests to serve (default: the whole trace; a workload: 2000)");
  option("--report", options.report, to_file, "FILE", "Write a JSON report to this file");

  group = "Requests";
  option("--seed", options.seed, WholeNumber<std::uint64_t>{}, "NUMBER",
         "Seed of the built-in workload and of aborts (default 1)");
  option("--skip", options.skip, WholeNumber<std::uint64_t>{0, skip_max}, "COUNT",
         "Skip this many first requests, to continue where --requests ended (default 0)");
  option("--block-tokens", options.block_tokens, WholeNumber<std::uint32_t>{1, ReplayOptions::block_tokens_max}, "COUNT",
         "Tokens per hash id of the trace (default: what a recording names, or 512; a workload: 64, or what the configured "
         "groups allow)");
  option("--groups", into.groups, to_word, "LIST",
         "KV cache groups KIND:BLOCK_TOKENS[:SPAN][:optional],... of full, window, chunked, recurrent, as "
         "full:64,window:64:512 (default: those of --config, or one, full)");
  option("--output-tokens-max", options.output_tokens_max, WholeNumber<std::uint64_t>{0, tokens_max}, "COUNT",
         "Most output tokens of a request (default 128); 0 and 1: prompts only");
  option("--cache-output", options.cache_output, to_bool, "on|off",
         "Whether full blocks of the output are cached as well (default on)");
  option("--tell-output", options.tell_output, to_bool, "on|off",
         "Whether the cache is told how long each output is; the adaptive policy learns from it (default on)");
  option("--hints", options.hints.hints, one_of(Hints::none, Hints::ended, Hints::returns, Hints::oracle), "NAME",
         "What the cache is told about sessions, from the rest of the trace, as a bound: none (default); ended, at their end; "
         "returns, when a request is continued within a minute, wrong by a factor of 1.6; oracle, both");
  option("--hints-missing", options.hints.missing, to_fraction, "SHARE", "Share of the hints that are not told (default 0)");
  option("--hints-wrong", options.hints.wrong, to_fraction, "SHARE",
         "Share of the told hints that are about a request of which the opposite is true (default 0)");
  option("--abort-rate", options.abort_rate, to_fraction, "SHARE",
         "Share of the requests, 0 to 1, aborted at any point of their life (default 0)");

  // `--loads` has further values here, which say what the engine asks for. An engine with its own slots has no Cache.
  add_config_flags(command, into.config, into.config_file, {"--loads", "--engine-owns-slots", "--key-order", "--idle-service"});

  group = "Pace";
  command
      .add_flag("--reference", options.reference,
                "Copies take no time, requests run one at a time, in order; only full blocks; the last token may hit")
      ->group(group);
  command
      .add_flag("--bound", options.bound,
                "With --reference: say how far the policy goes from LRU to a cache that knows the future")
      ->group(group);
  option("--concurrency", options.concurrency, WholeNumber<std::uint32_t>{1, 65'536}, "COUNT",
         "Most requests in flight (default 16)");
  option("--step-tokens", options.step_tokens, WholeNumber<std::uint64_t>{1, tokens_max}, "COUNT",
         "Most tokens computed in a step, for all requests together (default 8192); in loop mode for one request");
  option("--speed", options.speed, to_positive_number, "FACTOR",
         "Requests come at the times of the trace, this many times faster");
  option("--prefetch-ahead", options.prefetch_ahead, to_duration, "DURATION",
         "With --speed: announce each request so long before it is due; its blocks are brought up to the host tier");
  option("--prefill-speed", options.prefill_speed, to_positive_number, "COUNT",
         "Most tokens computed per second (default: no limit)");
  option("--loads", options.loads, one_of(Loads::measured, Loads::always, Loads::host, Loads::none), "NAME",
         "Which hits below the device are loaded: always (default); measured, if loading is faster than computing (default "
         "with --prefill-speed or --storage-bandwidth; not with --reference); host, none from storage; none");
  option("--mode", options.mode, one_of(Mode::confined, Mode::loop), "NAME",
         "confined: one thread that polls (default); loop: event loop and coroutines");
  option("--threads", options.threads, WholeNumber<std::uint32_t>{1, 64}, "COUNT", "Threads of the event loop (default 1)");
  option("--release", options.release, one_of(Release::done, Release::launch), "NAME",
         "When a request's lease ends: done, its work is computed (default); launch, it is launched");

  group = "Checks";
  option("--checkpoint", options.checkpoint, to_duration, "DURATION",
         "At the end, also after Ctrl-C: write cached blocks to storage within this time, and report what is durable");
  option("--verify", options.verify, one_of(Verify::all, Verify::sample, Verify::none), "NAME",
         "Compare the content of hits: all (default), sample (every 16th), none");
  option("--inject", options.inject, one_of(Fault::flip, Fault::late, Fault::no_fence), "NAME",
         "Plant a fault that the verification must catch: flip, late, no-fence");
}

}  // namespace terrace::tools
