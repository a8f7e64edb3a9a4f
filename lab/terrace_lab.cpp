#include "lab/command_line.hpp"
#include "lab/policies/policies.hpp"
#include "tools/config/flags.hpp"
#include "tools/program.hpp"
#include "tools/replay/options/options.hpp"
#include "tools/replay/replay.hpp"

#include <CLI/CLI.hpp>

int main(int argc, char** argv) {
  using namespace terrace::tools;
  CLI::App app{"terrace-lab: measures the parts of the cache, and compares eviction policies", "terrace-lab"};
  prepare_program(app);
  ChosenBench bench;
  add_bench_options(app, bench);
  CLI::App* const replay_command =
      app.add_subcommand("replay", "`terrace replay`, with further eviction policies to compare with");
  ReplayArguments replayed;
  replayed.config = terrace::Config{comparison_policies()};
  add_replay_options(*replay_command, replayed);
  return run_program(app, argc, argv, [&] {
    if (replay_command->parsed()) {
      read_config(replayed.config, replayed.config_file);
      return replay(resolve(replayed));
    }
    run_bench(bench);
    return ExitStatus::done;
  });
}
