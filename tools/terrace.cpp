#include "tools/about/command_line.hpp"
#include "tools/config/command.hpp"
#include "tools/config/flags.hpp"
#include "tools/doctor/doctor.hpp"
#include "tools/live/command_line.hpp"
#include "tools/output.hpp"
#include "tools/plan/plan.hpp"
#include "tools/program.hpp"
#include "tools/replay/options/options.hpp"
#include "tools/replay/replay.hpp"
#include "tools/shared/command_line.hpp"
#include "tools/store/command_line.hpp"

#include <CLI/CLI.hpp>

#include <functional>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

using namespace terrace::tools;

namespace {

/// The parser of the command line, and what runs each command.
struct Program {
  CLI::App app{"terrace: the memory tier of an LLM serving stack", "terrace"};
  std::vector<std::pair<CLI::App*, std::function<ExitStatus()>>> commands{};

  /// `run` returns the exit status, or nothing if it can only succeed or throw.
  template <class Arguments, class Run>
  void add(const char* name, const char* what, void (&add_options)(CLI::App&, Arguments&), Run run,
           Arguments defaults = Arguments()) {
    CLI::App* const command = app.add_subcommand(name, what);
    const auto arguments = std::make_shared<Arguments>(std::move(defaults));
    add_options(*command, *arguments);
    commands.emplace_back(command, [arguments, run]() -> ExitStatus {
      if constexpr (std::is_void_v<std::invoke_result_t<Run, Arguments&>>) {
        run(*arguments);
        return ExitStatus::done;
      } else {
        return run(*arguments);
      }
    });
  }
  /// Adds a command that asks a process that serves.
  template <class Arguments, class Result>
  void add_live(const char* name, const char* what, void (&add_options)(CLI::App&, Arguments&), Result (&run)(const Arguments&),
                Arguments defaults = Arguments()) {
    const auto ask = [&run](const Arguments& arguments) { return understood([&] { return run(arguments); }); };
    add(name, what, add_options, ask, std::move(defaults));
  }
};

ExitStatus run_replay_command(ReplayArguments& arguments) {
  read_config(arguments.config, arguments.config_file);
  return replay(resolve(arguments));
}

void run_plan_command(const PlanArguments& arguments) {
  if (arguments.live.socket.empty()) run_plan(resolve(arguments));
  else understood([&] { run_live_plan(arguments.live, arguments.options.json); });
}

int run(int argc, char** argv) {
  using Service = ServiceArguments::Part;
  using Capture = CaptureArguments::Part;
  Program program;
  prepare_program(program.app);
  program.add("replay", "Drives the whole cache with a trace, and compares every hit", add_replay_options, run_replay_command);
  program.add("plan", "Computes hit rates by the size of a tier, and what they bring", add_plan_options, run_plan_command);
  program.add("doctor", "Shows what this machine has and lacks, and how fast the copy methods of its GPU are", add_doctor_options,
              run_doctor);
  program.add("store", "Inspects and verifies a file store, and removes blocks from it", add_store_options,
              [](const StoreArguments& chosen) { return chosen.run(chosen); });
  program.add("shared", "Checks the engine of a shared store", add_shared_options, run_shared);
  program.add("config", "Shows, checks and writes the configuration of a cache", add_config_commands,
              [](ConfigArguments& chosen) { chosen.run(chosen); });
  program.add_live("top", "Shows what the tiers of a process that serves do, as it runs", add_top_options, run_top);
  program.add_live("why", "Shows what requests of a process that serves waited for in the last hour", add_why_options, run_why);
  program.add_live("set", "Changes sizes and settings of a process that serves", add_set_options, run_set);
  program.add_live("clear", "Makes a process that serves forget everything that is cached", add_service_options, run_service,
                   {.part = Service::clear});
  program.add_live("update", "Tells a process that serves that its weights are others now", add_service_options, run_service,
                   {.part = Service::update});
  program.add_live("pause", "Pauses the transfers of a process that serves", add_service_options, run_service,
                   {.part = Service::pause});
  program.add_live("resume", "Ends a pause, or a clear after which nothing is served", add_service_options, run_service,
                   {.part = Service::resume});
  program.add_live("job", "Starts, watches and ends write-back jobs of a process that serves", add_job_options, run_job);
  program.add_live("trace", "Records what a process that serves does, and how long it takes", add_capture_options, run_capture,
                   {.part = Capture::trace});
  program.add_live("record", "Records the requests of a process that serves, for replay and plan", add_capture_options,
                   run_capture, {.part = Capture::record});
  AboutArguments about;
  add_about_commands(program.app, about);
  return run_program(program.app, argc, argv, [&] {
    for (const auto& [command, run_command] : program.commands) {
      if (command->parsed()) return run_command();
    }
    about.run(program.app, about);
    return ExitStatus::done;
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view{argv[1]} == "bench") {
    complain("terrace", "there is no command bench; the program terrace-lab measures, and a build from source has it");
    return static_cast<int>(ExitStatus::bad_input);
  }
  if (argc > 1 && std::string_view{argv[1]} == "status") {
    complain("terrace", "there is no command status; `terrace top --once` shows how a process that serves is now");
    return static_cast<int>(ExitStatus::bad_input);
  }
  return run(argc, argv);
}
