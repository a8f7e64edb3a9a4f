#pragma once

#include "base/waker.hpp"
#include "tools/cli.hpp"
#include "tools/exit_status.hpp"
#include "tools/interrupted.hpp"
#include "tools/live/client.hpp"
#include "tools/output.hpp"
#include "tools/replay/engine/interrupt.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace terrace::tools {

/// The command line of `terrace set`.
struct SetArguments {
  Target target{};
  std::vector<std::string> words;  ///< NAME VALUE NAME VALUE...
  std::uint32_t pool = 0;
  bool no_wait = false;
  bool json = false;
};

/// The command line of `terrace job`.
struct JobArguments {
  enum class Part : unsigned char { start, list, watch, pause, resume, cancel, results };

  Target target{};
  Part part = Part::list;
  std::uint64_t id = 0;
  std::string to = "storage";
  std::string scope = "all";
  std::optional<std::uint64_t> request;
  std::optional<std::uint64_t> tenant;
  std::vector<std::string> keys;
  std::string unused_for;
  std::string deadline;
  std::string budget;
  bool not_durable = false;
  bool watch = false;
  bool json = false;
};

/// The command lines of `terrace clear`, `update`, `pause` and `resume`.
struct ServiceArguments {
  enum class Part : unsigned char { clear, update, pause, resume };

  Target target{};
  Part part = Part::clear;
  std::string weights_revision{};  ///< of update
  bool keep_storage = false;
  bool keep_shared = false;
  bool until_resumed = false;
  bool release_host = false;
  bool no_wait = false;
  bool json = false;
};

/// The command line of `terrace top`.
struct TopArguments {
  Target target{};
  Duration interval = std::chrono::seconds{1};
  bool once = false;
  bool json = false;
  bool classes = false;  ///< of the eviction policy
};

/// The command line of `terrace why`.
struct WhyArguments {
  Target target{};
  std::string at;  ///< "14:03"; empty: the last minutes
  bool json = false;
};

/// The command line of `terrace record` and of `terrace trace`.
struct CaptureArguments {
  enum class Part : unsigned char { trace, record };

  Target target{};
  Part part = Part::trace;
  Duration time = std::chrono::seconds{10};
  std::filesystem::path out{};  ///< empty: standard output
};

/// These commands work on a process that serves, over its admin endpoint. `arguments` must outlive the parsing.
void add_set_options(CLI::App& set, SetArguments& arguments);
void add_job_options(CLI::App& job, JobArguments& arguments);
/// Adds the options of the part in `arguments`. The same for a capture.
void add_service_options(CLI::App& command, ServiceArguments& arguments);
void add_top_options(CLI::App& top, TopArguments& arguments);
void add_why_options(CLI::App& why, WhyArguments& arguments);
void add_capture_options(CLI::App& command, CaptureArguments& arguments);
/// Adds --socket and --token-file.
void add_target(CLI::App& command, Target& target);

/// The names of the sizes and settings that `terrace set` changes.
[[nodiscard]] std::vector<std::string> names_to_set();

// Each throws UsageError for what the user can mend, Unreachable if the process does not answer, Interrupted, and
// std::runtime_error with a sentence if the process refuses.

/// Changes settings and sizes, and waits until sizes are reached.
void run_set(const SetArguments& arguments);
/// Clears a cache or store, names new weights, pauses or resumes; waits until it is done.
void run_service(const ServiceArguments& arguments);
/// check_failed: the watched job has ended, and has not stored all of its blocks.
[[nodiscard]] ExitStatus run_job(const JobArguments& arguments);
void run_top(const TopArguments& arguments);
/// Prints what requests waited for, and what else happened, in the minutes around a time.
void run_why(const WhyArguments& arguments);
/// Captures for some time, and writes the result.
void run_capture(const CaptureArguments& arguments);
/// `terrace plan --socket`: what the process has measured of other sizes.
void run_live_plan(const Target& target, bool as_json);

/// Sleeps that a signal ends. There may be one object at a time. Threads: one.
class Waiting {
 public:
  /// Throws Interrupted if the user has asked to stop.
  void sleep(std::chrono::milliseconds time) const {
    if (!interrupt_.requested()) waker_.wait(static_cast<int>(time.count()));
    if (interrupt_.requested()) throw Interrupted{};
  }
  /// Calls `look` five times a second and shows what it returns, until it returns nothing. Throws Interrupted.
  void show_until_done(const std::function<std::optional<ProgressState>()>& look) const {
    std::optional<ProgressState> shown = look();
    if (!shown) return;
    std::mutex mutex;
    const ProgressLine line{[&] {
      const std::lock_guard lock{mutex};
      return *shown;
    }};
    for (;;) {
      sleep(std::chrono::milliseconds{200});
      std::optional<ProgressState> now = look();
      if (!now) return;
      const std::lock_guard lock{mutex};
      shown = std::move(now);
    }
  }

 private:
  EventFdWaker waker_;
  Interrupt interrupt_{&waker_};
};

/// The room for a screen.
struct ScreenSize {
  std::size_t columns = 80;
  std::size_t lines = 1000;
  bool classes = false;  ///< shows the classes of the eviction policy, too
};

/// One screen of `terrace top` from answers of `/v1/status`; what has no room is left out. `before` is an earlier answer: rates
/// are those of the time between; without it they are those since the start. `seconds` is the time between the two.
///
/// Throws what Boost.JSON throws if the answer lacks something (understood()).
[[nodiscard]] std::string screen_of(const std::string& name, const boost::json::object& now,
                                    const std::optional<boost::json::object>& before, double seconds, ScreenSize room = {});
/// The minutes of an answer of `/v1/history`. Throws as screen_of().
[[nodiscard]] std::string history_text(const boost::json::object& history);

}  // namespace terrace::tools
