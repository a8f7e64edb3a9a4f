#include "tools/doctor/doctor.hpp"

#include "storage/io/uring_io.hpp"
#include "tools/config/flags.hpp"
#include "tools/device_name.hpp"
#include "tools/doctor/facts.hpp"
#include "tools/doctor/self_test.hpp"
#include "tools/output.hpp"
#include "tools/report_file.hpp"
#include "transfer/host/host_arena.hpp"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

namespace terrace::tools {
namespace {

namespace json = boost::json;

constexpr std::array<std::pair<Direction, std::string_view>, direction_count> directions{
    {{Direction::swap_out, "device to host"}, {Direction::swap_in, "host to device"}}};
constexpr double giga = 1e-9;
constexpr const char* root = "/";

constexpr const char* doctor_examples = R"(
Examples:
  terrace doctor
      shows what this machine has and lacks, what that costs, and how to get
      it; measures the copy methods of the first CUDA device once (a few
      seconds), and keeps the results
  terrace doctor --device cuda:1 --measure
      measures another device, even if results are kept
  terrace doctor --report methods.json
      writes all figures of all copy methods as JSON
  terrace doctor --config terrace.toml
      compares the machine with the sizes and directories of a configuration,
      and tests every tier of it: blocks are stored, dropped, found, loaded and
      compared, on its devices and in its directories; exit status 1
      if a tier does not work, or is written and never read)";

CopyMethod chosen(const CopyMethodTable::Cell& cell, CopyMethods available) {
  const auto taken =
      std::ranges::find_if(cell.order, [&](CopyMethod method) { return available[static_cast<std::size_t>(method)]; });
  return taken == cell.order.end() ? CopyMethod::plain : *taken;
}

std::string pieces_of(std::size_t bytes_class) {
  const auto& classes = CopyMethodTable::piece_bytes;
  if (bytes_class + 1 == classes.size()) return fmt::format("from {}", to_string(Bytes{classes[bytes_class]}));
  return fmt::format("under {}", to_string(Bytes{classes[bytes_class + 1]}));
}

CudaFacts facts_of(int ordinal) {
  HostArena arena{1, KiB * 64};
  const PoolMemory pool{.slots = 1, .host = &arena};
  CudaOptions options;
  options.ordinal = ordinal;
  return CudaDevice::open(std::span{&pool, 1}, options)->facts();
}

void print_fact(const Fact& fact) { write_output(to_text(fact)); }

/// The directories of storage, or the current one.
std::vector<std::filesystem::path> directories_of(const CacheSystemOptions& options) {
  const auto* const files = std::get_if<FileStorage>(&options.storage);
  std::error_code ignored;
  return files != nullptr ? files->directories : std::vector{std::filesystem::current_path(ignored)};
}

void print_machine(const CacheSystemOptions& options) {
  const MemoryLimits limits = read_memory_limits();
  const MemoryNeeds needs = memory_needs(options);
  print_fact(memory_fact(limits, needs));
  print_fact(cgroup_fact(limits, needs));
  print_fact(huge_pages_fact(root));
  print_fact(memlock_fact(root, limits, needs));
  print_fact(uring_fact(root, UringIo::unavailable()));
  for (const std::filesystem::path& directory : directories_of(options)) {
    print_fact(direct_io_fact(directory, try_direct_io(directory, PosixCalls::system())));
  }
  const auto* const files = std::get_if<FileStorage>(&options.storage);
  for (std::size_t pool = 0; files != nullptr && pool < options.pools.size(); ++pool) {
    const std::string name = pool == 0 ? files->name : fmt::format("{}-{}", files->name, pool);
    if (const std::optional<Fact> damage = damage_fact(files->directories.front() / name)) print_fact(*damage);
  }
}

void print_cuda(const CudaFacts& facts, const CopyMethodTable& methods) {
  print("         {}, compute capability {}.{}, driver {}\n", facts.device, facts.compute_capability_major,
        facts.compute_capability_minor, facts.driver);
  if (!facts.no_kernels.empty()) print("         no copy kernels: {}\n", facts.no_kernels);
  if (facts.failed > 0) print("         {} calls of the driver failed; the first: {}\n", facts.failed, facts.first_failure);
  write_output("\n" + to_table(methods, facts.methods));
}

void describe_machine(const DoctorArguments& arguments, const CacheSystemOptions& options) {
  std::optional<int> cuda;
  if (arguments.device) {
    cuda = parse_cuda("--device", *arguments.device);
  } else if (!CudaDevice::unavailable()) {
    cuda = 0;
  }
  if (!cuda && (arguments.measure || !arguments.report.empty())) {
    const std::string why = CudaDevice::unavailable().value_or("the emulated device has none");
    throw UsageError{fmt::format("there are no copy methods to measure: {}", why)};
  }
  print_machine(options);
  flush_output();
  const std::optional<CudaFacts> open = cuda ? std::optional{facts_of(*cuda)} : std::nullopt;
  print_fact(numa_fact(root, open ? open->pci : "", options.host_touch.numa_node));
  print("device   emulated: always\n");
  if (!open) {
    const std::optional<std::string> unavailable = CudaDevice::unavailable();
    print_fact(unavailable ? cuda_fact(root, *unavailable) : Fact{.label = "", .text = "CUDA: not asked for"});
    return;
  }
  print("         {}:\n", device_name(cuda));
  flush_output();
  const std::filesystem::path file = calibration_file();
  std::error_code ignored;
  if (arguments.measure) std::filesystem::remove(file, ignored);
  const CopyMethodTable methods = file.empty() ? CopyMethodTable{} : CudaDevice::calibrated(*cuda, file);
  print_cuda(*open, methods);
  print("{}\n", file.empty() ? std::string{"not measured: there is no folder for the results (set $HOME or $XDG_CACHE_HOME)"}
                             : fmt::format("kept in {}", file.string()));
  if (!arguments.report.empty()) write_report(arguments.report, to_json(*open, methods));
}

/// Options that take no memory, for a machine without a configuration.
CacheSystemOptions no_tiers() {
  CacheSystemOptions options;
  options.pools.clear();
  return options;
}

}  // namespace

double link_peak(const CopyMethodTable& methods, Direction direction) {
  double peak = 0;
  for (std::size_t bytes = 0; bytes < CopyMethodTable::piece_bytes.size(); ++bytes) {
    for (std::size_t count = 0; count < CopyMethodTable::piece_counts.size(); ++count) {
      peak = std::max(peak, std::ranges::max(methods.cell(direction, bytes, count).rates));
    }
  }
  return peak;
}

std::string to_table(const CopyMethodTable& methods, CopyMethods available) {
  std::string text;
  const auto out = std::back_inserter(text);
  for (const auto& [direction, name] : directions) {
    const double peak = link_peak(methods, direction);
    fmt::format_to(out, "{}: {}\n", name, peak > 0 ? fmt::format("at most {:.1f} GB/s", peak * giga) : "not measured");
    fmt::format_to(out, "  {:<16}", "pieces");
    for (const std::uint64_t count : CopyMethodTable::piece_counts) fmt::format_to(out, "{:>20}", fmt::format("from {}", count));
    text += '\n';
    for (std::size_t bytes = 0; bytes < CopyMethodTable::piece_bytes.size(); ++bytes) {
      fmt::format_to(out, "  {:<16}", pieces_of(bytes));
      for (std::size_t count = 0; count < CopyMethodTable::piece_counts.size(); ++count) {
        const CopyMethodTable::Cell& cell = methods.cell(direction, bytes, count);
        const CopyMethod method = chosen(cell, available);
        const double rate = cell.rates[static_cast<std::size_t>(method)];
        fmt::format_to(out, "{:>20}",
                       rate > 0 ? fmt::format("{} {:.1f}", to_string(method), rate * giga) : std::string{to_string(method)});
      }
      text += '\n';
    }
    text += '\n';
  }
  return text;
}

std::string to_json(const CudaFacts& facts, const CopyMethodTable& methods) {
  json::object report{{"device", facts.device}, {"driver", facts.driver}};
  report["compute_capability"] = fmt::format("{}.{}", facts.compute_capability_major, facts.compute_capability_minor);
  for (const auto& [direction, name] : directions) {
    json::array cells;
    for (std::size_t bytes = 0; bytes < CopyMethodTable::piece_bytes.size(); ++bytes) {
      for (std::size_t count = 0; count < CopyMethodTable::piece_counts.size(); ++count) {
        const CopyMethodTable::Cell& cell = methods.cell(direction, bytes, count);
        json::object rates;
        for (std::size_t method = 0; method < copy_method_count; ++method) {
          if (facts.methods[method]) rates[std::string{to_string(static_cast<CopyMethod>(method))}] = cell.rates[method];
        }
        cells.push_back(json::object{{"piece_bytes_from", CopyMethodTable::piece_bytes[bytes]},
                                     {"pieces_from", CopyMethodTable::piece_counts[count]},
                                     {"path", std::string{to_string(chosen(cell, facts.methods))}},
                                     {"bytes_per_second", rates}});
      }
    }
    const char* const key = direction == Direction::swap_out ? "swap_out" : "swap_in";
    report[key] = json::object{{"peak_bytes_per_second", link_peak(methods, direction)}, {"cells", cells}};
  }
  return json_text(report);
}

void add_doctor_options(CLI::App& command, DoctorArguments& into) {
  command.footer(doctor_examples);
  command.add_option("--device", into.device, "cuda[:N]; fails if it is not available (default: the first one, if any)")
      ->type_name("DEVICE");
  command.add_flag("--measure", into.measure,
                   "Measure the copy methods again, even if results for this device and driver are kept");
  command.add_option("--config", into.config_file, "Test every tier of this configuration as well")->type_name("FILE");
  command.add_option("--report", into.report, "Write all figures as JSON to this file")->type_name("FILE");
}

ExitStatus run_doctor(const DoctorArguments& arguments) {
  check_report(arguments.report, {});
  Config config;
  if (!arguments.config_file.empty()) read_config(config, arguments.config_file);
  describe_machine(arguments, arguments.config_file.empty() ? no_tiers() : options_of(config));
  flush_output();
  if (arguments.config_file.empty() || run_self_test(config)) return ExitStatus::done;
  return complain("terrace doctor", "a tier of the configuration does not work", ExitStatus::check_failed);
}

}  // namespace terrace::tools
