#include "base/check.hpp"
#include "tools/bench/command_line.hpp"
#include "tools/bench/interrupted.hpp"
#include "tools/doctor/doctor.hpp"
#include "tools/replay/command_line.hpp"
#include "tools/replay/replay.hpp"
#include "tools/store/command_line.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>

namespace {

using terrace::tools::ExitStatus;

int end(ExitStatus status) { return static_cast<int>(status); }

/// A broken invariant is a check that failed: one line, and nothing more of this process touches anything.
void on_broken_check(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "terrace: broken invariant: %s (%s:%d)\n", condition, file, line);
  ::_exit(end(ExitStatus::check_failed));
}

/// CLI11's messages may have several lines.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

int complain(const std::string& who, const std::string& what, ExitStatus status) {
  fmt::print(stderr, "{}: {}\n", who, one_line(what));
  return end(status);
}

}  // namespace

int main(int argc, char** argv) {
  terrace::set_check_handler(on_broken_check);

  CLI::App app{"terrace: the memory tier of an LLM serving stack"};
  app.set_version_flag("--version", "terrace " TERRACE_VERSION);
  app.require_subcommand(1);
  app.footer("\n`terrace COMMAND --help` has examples.");
  CLI::App* const replay = app.add_subcommand("replay", "Drives the whole runtime with a trace, and compares every hit");
  terrace::tools::ReplayArguments arguments;
  terrace::tools::add_replay_options(*replay, arguments);

  CLI::App* const bench = app.add_subcommand("bench", "Measures a part by itself");
  terrace::tools::BenchArguments bench_arguments;
  terrace::tools::add_bench_options(*bench, bench_arguments);

  CLI::App* const doctor = app.add_subcommand("doctor", "What this machine has, and what the paths of its GPU are worth");
  terrace::tools::DoctorArguments doctor_arguments;
  terrace::tools::add_doctor_options(*doctor, doctor_arguments);

  CLI::App* const store = app.add_subcommand("store", "Looks into a file store, verifies it, and takes blocks out of it");
  terrace::tools::StoreArguments store_arguments;
  terrace::tools::add_store_options(*store, store_arguments);

  const std::string command = argc > 1 ? argv[1] : "";
  const bool known = command == "replay" || command == "bench" || command == "doctor" || command == "store";
  const auto who = [&] { return known ? "terrace " + command : std::string{"terrace"}; };
  try {
    app.parse(argc, argv);
    if (bench->parsed()) {
      terrace::tools::run_bench(bench_arguments);
      return end(ExitStatus::done);
    }
    if (doctor->parsed()) {
      terrace::tools::run_doctor(doctor_arguments);
      return end(ExitStatus::done);
    }
    if (store->parsed()) return end(terrace::tools::run_store(store_arguments));
    return end(terrace::tools::replay(terrace::tools::resolve(arguments)));
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return complain(who(), error.what(), ExitStatus::bad_input);
  } catch (const terrace::tools::UsageError& error) {
    return complain(who(), error.what(), ExitStatus::bad_input);
  } catch (const terrace::tools::Interrupted& error) {
    return complain(who(), error.what(), ExitStatus::interrupted);
  } catch (const std::exception& error) {
    return complain(who(), error.what(), ExitStatus::run_failed);
  }
}
