#include "tools/live/command_line.hpp"

#include "tools/arguments.hpp"
#include "tools/text.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <limits>

namespace terrace::tools {
namespace {

using Part = JobArguments::Part;

constexpr const char* set_help = R"(
Changes a process that serves, at once and without losing what still fits. A
size that does not fit is refused, with the largest one that does. The command
waits until a new size is reached; after Ctrl-C the process goes on with it.

)";

constexpr const char* set_examples = R"(
Examples:
  terrace set host-capacity 8GiB
  terrace set write-policy write-back daily-writes 2TiB
  terrace set host.low-watermark 5% host.high-watermark 10%
  terrace set storage-capacity 1TiB --socket /run/terrace/vllm-4711.sock

Exit status: 0 done; 2 a wrong name or value, or no process found; 3 the process
refused, or did not answer; 130 interrupted.
)";

constexpr const char* job_help = R"(
A write-back job brings cached blocks to storage now, whatever the write policy.

Exit status: 0 done (watch: every block is in storage); 1 the job has ended
without storing all its blocks; 2 bad arguments, or no process found; 3 the job
was cancelled or ran out of time, or the process refused or did not answer;
130 interrupted, while the job goes on.
)";

constexpr const char* start_help = R"(
Examples:
  terrace job start --watch
      everything that is cached
  terrace job start --to shared --deadline 1min --watch
      the same, for other machines: before this one goes
  terrace job start --scope idle --unused-for 10min --budget 20GiB
  terrace job start --scope tenant --tenant 7 --deadline 30s --watch
  terrace job start --scope prefix --key 09fd...  --key 77ab...
)";

constexpr const char* clear_help = R"(
Makes a process that serves forget everything that is cached: device, host and
storage. Its shared store is not used after that, until `terrace update` names
the weights. Use --keep-... only for what still means the same. The command
waits until not even a kill of the process brings the stored blocks back.

Examples:
  terrace clear
  terrace clear --keep-storage --keep-shared
      empties device and host, and loses no block that is stored
  terrace clear --keep-storage --keep-shared --release-host
      gives the memory of the host tier to the system, until `terrace resume`
)";

constexpr const char* update_help = R"(
For a process whose weights change: clears everything as `terrace clear` does,
and uses the shared store from then on under the revision of the new weights.
Change shared.weights-revision of its configuration too, for the next start.

Examples:
  terrace update 2026-12-01
  terrace update 2026-12-01 --until-resumed
      serves nothing until the engine has the new weights and `terrace resume`
)";

constexpr const char* pause_help = R"(
Starts no more transfers, reads and writes of a process that serves, until
`terrace resume`. Requests that need one wait. If the engine drains the cache,
that ends the pause.
)";

constexpr const char* resume_help = R"(
Ends `terrace pause`, and serves again after a clear or update --until-resumed.
The command waits until what was cleared is gone.
)";

constexpr const char* service_status = R"(
Exit status: 0 done; 2 bad arguments, or no process found; 3 the process refused
or did not answer; 130 interrupted.
)";

constexpr const char* top_help = R"(
Shows what every tier of a process does: fill, hit rate, transfers, storage,
write-back jobs, the slowest requests of the last minute. Ctrl-C ends it.

Examples:
  terrace top
  terrace top --once --json
)";

constexpr const char* why_help = R"(
Shows, minute by minute, how many requests of a process that serves had to wait
and for what, the slowest of them, what moved, and what else happened: changed
settings and sizes, clears, jobs, failures. The process remembers an hour.

A request waits for room (slots on the device), host, storage or shared (blocks
that are there), or looking (the answer of the shared store).

Examples:
  terrace why
      the last minutes
  terrace why --at 14:03
)";

constexpr const char* trace_help = R"(
Records what a process that serves does: requests, calls of the engine,
transfers, reads and writes of storage, and how long each takes. Perfetto
(ui.perfetto.dev) shows the file. Ctrl-C ends the recording early.

Examples:
  terrace trace --time 5s --out trace.json
)";

constexpr const char* record_help = R"(
Records the requests of a process that serves as a trace for `terrace replay`
and `terrace plan`: times, lengths, and which blocks prompts have in common.
Blocks are numbered anew, so nothing tells what the prompts contain. Outputs
count whole blocks. Ctrl-C ends the recording early.

Examples:
  terrace record --time 10min --out requests.jsonl
  terrace plan requests.jsonl
)";

CLI::App* add_part(CLI::App& job, JobArguments& arguments, Part part, const char* name, const char* what) {
  CLI::App* const command = job.add_subcommand(name, what);
  add_target(*command, arguments.target);
  command->add_flag("--json", arguments.json, "JSON on standard output");
  command->callback([&arguments, part] { arguments.part = part; });
  if (part != Part::start && part != Part::list) {
    command->add_option("id", arguments.id, "Number of the job, from start or list")->type_name("ID")->required();
  }
  return command;
}

}  // namespace

void add_target(CLI::App& command, Target& target) {
  add_value(command, "--socket", target.socket, to_word, "ADDRESS",
            "The process: a path, unix:PATH or tcp:127.0.0.1:PORT (default: the only one that listens)");
  add_value(command, "--token-file", target.token_file, to_file, "FILE", "File with the token, for TCP");
}

void add_set_options(CLI::App& set, SetArguments& arguments) {
  const std::vector<std::string> names = names_to_set();
  CLI::Option* const words = add_words(
      set, "settings", Words::several,
      [&arguments](const std::string&, const std::vector<std::string>& given) { arguments.words = given; }, "NAME VALUE",
      "What to change, and its new value");
  set_choices(*words, names);
  add_target(set, arguments.target);
  add_value(set, "--pool", arguments.pool, WholeNumber<std::uint32_t>{0, 65535}, "NUMBER", "The pool of a size (default 0)");
  set.add_flag("--no-wait", arguments.no_wait, "Do not wait until sizes are reached");
  set.add_flag("--json", arguments.json, "One JSON object on standard output");
  set.footer(set_help + wrapped(fmt::format("Sizes and settings: {}.", fmt::join(names, ", ")), 0, 0) + '\n' + set_examples);
}

void add_service_options(CLI::App& command, ServiceArguments& arguments) {
  using Part = ServiceArguments::Part;
  const Part part = arguments.part;
  const bool clears = part == Part::clear || part == Part::update;
  add_target(command, arguments.target);
  if (part == Part::update) {
    command.add_option("revision", arguments.weights_revision, "The name of the new weights, as shared.weights-revision")
        ->type_name("REVISION")
        ->required();
  }
  if (part == Part::clear) {
    command.add_flag("--keep-storage", arguments.keep_storage, "What is stored stays, and is a hit");
    command.add_flag("--keep-shared", arguments.keep_shared, "The shared store is used further on");
    command.add_flag("--release-host", arguments.release_host,
                     "Give the memory of the host tier back to the system until `terrace resume`. Includes --until-resumed");
  }
  if (clears) command.add_flag("--until-resumed", arguments.until_resumed, "Serve nothing until `terrace resume`");
  if (part != Part::pause) command.add_flag("--no-wait", arguments.no_wait, "Do not wait until it is done");
  command.add_flag("--json", arguments.json, "The answer of the process as JSON on standard output");
  const char* const help = part == Part::clear    ? clear_help
                           : part == Part::update ? update_help
                           : part == Part::pause  ? pause_help
                                                  : resume_help;
  command.footer(std::string{help} + service_status);
}

void add_job_options(CLI::App& job, JobArguments& arguments) {
  job.require_subcommand(1);
  job.footer(std::string{job_help} + "\n`terrace job COMMAND --help` has examples.");
  CLI::App* const start = add_part(job, arguments, Part::start, "start", "Starts a job, and prints its number");
  constexpr std::uint64_t any = std::numeric_limits<std::uint64_t>::max();
  set_choices(*add_value(*start, "--scope", arguments.scope, to_word, "NAME",
                         "The blocks: all (default), request, prefix, tenant, idle (unused for some time)"),
              {"all", "request", "prefix", "tenant", "idle"});
  add_value(*start, "--request", arguments.request, WholeNumber<std::uint64_t>{0, any}, "ID", "For scope request");
  add_value(*start, "--tenant", arguments.tenant, WholeNumber<std::uint64_t>{0, any}, "ID", "For scope tenant");
  start->add_option("--key", arguments.keys, "For scope prefix: its keys, from the first block on, 64 digits each")
      ->type_name("DIGITS");
  add_value(*start, "--unused-for", arguments.unused_for, to_word, "TIME", "For scope idle");
  set_choices(*add_value(*start, "--to", arguments.to, to_word, "TARGET", "storage (default), or shared: the shared store"),
              {"storage", "shared"});
  add_value(*start, "--deadline", arguments.deadline, to_word, "TIME", "Give up what has not been written by then");
  add_value(*start, "--budget", arguments.budget, to_word, "SIZE", "Most bytes to write");
  start->add_flag("--no-flush", arguments.not_durable, "Do not flush storage at the end");
  start->add_flag("--watch", arguments.watch, "Show the progress until the job has ended");
  start->footer(start_help);
  add_part(job, arguments, Part::list, "list", "Lists the jobs that run or have ended");
  add_part(job, arguments, Part::watch, "watch", "Shows the progress of a job until it has ended");
  add_part(job, arguments, Part::pause, "pause", "Starts no more writes of a job");
  add_part(job, arguments, Part::resume, "resume", "Goes on with a paused job");
  add_part(job, arguments, Part::cancel, "cancel", "Ends a job");
  add_part(job, arguments, Part::results, "results", "Takes and prints the result of each block since the last time");
}

void add_capture_options(CLI::App& command, CaptureArguments& arguments) {
  const bool traces = arguments.part == CaptureArguments::Part::trace;
  add_target(command, arguments.target);
  add_value(command, "--time", arguments.time, to_duration, "TIME", "How long (default 10s, at most 1h)");
  add_value(command, "--out", arguments.out, to_file, "FILE", "A new file for the result (default: standard output)");
  command.footer(traces ? trace_help : record_help);
}

void add_why_options(CLI::App& why, WhyArguments& arguments) {
  add_target(why, arguments.target);
  add_value(why, "--at", arguments.at, to_word, "TIME",
            "Time of the day on this machine, such as 14:03: two minutes before to two after it (default: the last minutes)");
  why.add_flag("--json", arguments.json, "One JSON object on standard output");
  why.footer(why_help);
}

void add_top_options(CLI::App& top, TopArguments& arguments) {
  add_target(top, arguments.target);
  add_value(top, "--interval", arguments.interval, to_duration, "TIME", "Time between two screens (default 1s)");
  top.add_flag("--once", arguments.once, "Print one screen, and exit");
  top.add_flag("--classes", arguments.classes, "Show which classes of blocks the tiers hold, and which of them hit");
  top.add_flag("--json", arguments.json, "JSON in place of a screen: one line for each");
  top.footer(top_help);
}

}  // namespace terrace::tools
