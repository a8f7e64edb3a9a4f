#include "tools/about/command_line.hpp"
#include "tools/config/command.hpp"
#include "tools/config/flags.hpp"
#include "tools/doctor/doctor.hpp"
#include "tools/live/command_line.hpp"
#include "tools/output.hpp"
#include "tools/plan/plan.hpp"
#include "tools/program.hpp"
#include "tools/replay/options/command_line.hpp"
#include "tools/replay/replay.hpp"
#include "tools/shared/command_line.hpp"
#include "tools/store/command_line.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <string_view>

namespace {

using terrace::tools::ExitStatus;

int run(int argc, char** argv) {
  CLI::App app{"terrace: the memory tier of an LLM serving stack", "terrace"};
  terrace::tools::prepare_program(app);
  CLI::App* const replay = app.add_subcommand("replay", "Drives the whole cache with a trace, and compares every hit");
  terrace::tools::ReplayArguments arguments;
  terrace::tools::add_replay_options(*replay, arguments);

  CLI::App* const plan = app.add_subcommand("plan", "Computes hit rates by the size of a tier, and what they bring");
  terrace::tools::PlanArguments plan_arguments;
  terrace::tools::add_plan_options(*plan, plan_arguments);

  CLI::App* const doctor =
      app.add_subcommand("doctor", "Shows what this machine has and lacks, and how fast the copy methods of its GPU are");
  terrace::tools::DoctorArguments doctor_arguments;
  terrace::tools::add_doctor_options(*doctor, doctor_arguments);

  CLI::App* const store = app.add_subcommand("store", "Inspects and verifies a file store, and removes blocks from it");
  terrace::tools::StoreArguments store_arguments;
  terrace::tools::add_store_options(*store, store_arguments);

  CLI::App* const shared = app.add_subcommand("shared", "Checks the engine of a shared store");
  terrace::tools::SharedArguments shared_arguments;
  terrace::tools::add_shared_options(*shared, shared_arguments);

  CLI::App* const config = app.add_subcommand("config", "Shows, checks and writes the configuration of a cache");
  terrace::tools::ConfigArguments config_arguments;
  terrace::tools::add_config_commands(*config, config_arguments);

  CLI::App* const top = app.add_subcommand("top", "Shows what the tiers of a process that serves do, as it runs");
  terrace::tools::TopArguments top_arguments;
  terrace::tools::add_top_options(*top, top_arguments);

  CLI::App* const why = app.add_subcommand("why", "Shows what requests of a process that serves waited for in the last hour");
  terrace::tools::WhyArguments why_arguments;
  terrace::tools::add_why_options(*why, why_arguments);

  CLI::App* const set = app.add_subcommand("set", "Changes sizes and settings of a process that serves");
  terrace::tools::SetArguments set_arguments;
  terrace::tools::add_set_options(*set, set_arguments);

  terrace::tools::ServiceArguments service_arguments;
  using Service = terrace::tools::ServiceArguments::Part;
  const auto add_service = [&](const char* name, const char* what, Service part) {
    CLI::App* const command = app.add_subcommand(name, what);
    terrace::tools::add_service_options(*command, service_arguments, part);
    return command;
  };
  const std::array services{add_service("clear", "Makes a process that serves forget everything that is cached", Service::clear),
                            add_service("update", "Tells a process that serves that its weights are others now", Service::update),
                            add_service("pause", "Pauses the transfers of a process that serves", Service::pause),
                            add_service("resume", "Ends a pause, or a clear after which nothing is served", Service::resume)};

  CLI::App* const job = app.add_subcommand("job", "Starts, watches and ends write-back jobs of a process that serves");
  terrace::tools::JobArguments job_arguments;
  terrace::tools::add_job_options(*job, job_arguments);

  CLI::App* const trace = app.add_subcommand("trace", "Records what a process that serves does, and how long it takes");
  terrace::tools::CaptureArguments capture_arguments;
  using Capture = terrace::tools::CaptureArguments::Part;
  terrace::tools::add_capture_options(*trace, capture_arguments, Capture::trace);

  CLI::App* const record = app.add_subcommand("record", "Records the requests of a process that serves, for replay and plan");
  terrace::tools::add_capture_options(*record, capture_arguments, Capture::record);

  terrace::tools::AboutArguments about;
  terrace::tools::add_about_commands(app, about);

  using terrace::tools::understood;
  return terrace::tools::run_program(app, argc, argv, [&]() -> ExitStatus {
    if (plan->parsed() && !plan_arguments.live.socket.empty()) {
      return understood([&] { return terrace::tools::run_live_plan(plan_arguments.live, plan_arguments.options.json); });
    }
    if (plan->parsed()) {
      terrace::tools::run_plan(terrace::tools::resolve(plan_arguments));
      return ExitStatus::done;
    }
    if (doctor->parsed()) return terrace::tools::run_doctor(doctor_arguments);
    if (store->parsed()) return terrace::tools::run_store(store_arguments);
    if (shared->parsed()) return terrace::tools::run_shared(shared_arguments);
    if (top->parsed()) return understood([&] { return terrace::tools::run_top(top_arguments); });
    if (why->parsed()) return understood([&] { return terrace::tools::run_why(why_arguments); });
    if (set->parsed()) return understood([&] { return terrace::tools::run_set(set_arguments); });
    if (trace->parsed() || record->parsed()) return understood([&] { return terrace::tools::run_capture(capture_arguments); });
    if (std::ranges::any_of(services, &CLI::App::parsed)) {
      return understood([&] { return terrace::tools::run_service(service_arguments); });
    }
    if (job->parsed()) return understood([&] { return terrace::tools::run_job(job_arguments); });
    if (config->parsed()) {
      config_arguments.run(config_arguments);
      return ExitStatus::done;
    }
    if (about.part) {
      terrace::tools::run_about(app, about);
      return ExitStatus::done;
    }
    terrace::tools::read_config(arguments.config, arguments.config_file);
    return terrace::tools::replay(terrace::tools::resolve(arguments));
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view{argv[1]} == "bench") {
    terrace::tools::complain("terrace",
                             "there is no command bench; the program terrace-lab measures, and a build from source has it");
    return static_cast<int>(ExitStatus::bad_input);
  }
  return run(argc, argv);
}
