#include "tools/report_file.hpp"

#include "base/descriptor.hpp"
#include "tools/usage_error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace terrace::tools {
namespace {

namespace fs = std::filesystem;

/// Returns the absolute path with links resolved, or an empty path if this is not possible.
fs::path true_path(const fs::path& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  if (error) return {};
  const fs::path followed = fs::weakly_canonical(absolute, error);
  return error ? fs::path{} : followed;
}

bool is_inside(const fs::path& file, const fs::path& directory) {
  const fs::path inner = true_path(file);
  const fs::path outer = true_path(directory);
  return !inner.empty() && !outer.empty() && std::ranges::mismatch(outer, inner).in1 == outer.end();
}

/// Whether the directory belongs to a store of any name. The first directory of a store has a catalog; each further one has a
/// file that says which part it is.
bool is_a_stores(const fs::path& directory) {
  std::error_code ignored;
  const auto has = [&](const char* name) { return fs::exists(directory / name, ignored); };
  return has("lock") && (has("catalog") || has("stripe"));
}

/// Whether the file is empty (as mktemp makes it) or begins as JSON does.
bool may_be_a_report(const fs::path& file) {
  const int first = std::ifstream{file, std::ios::binary}.get();
  return first == '{' || first == std::ifstream::traits_type::eof();
}

}  // namespace

void check_report(const fs::path& report, const KeptFiles& kept) {
  if (report.empty()) return;
  const auto refuse = [&](const std::string& why) { throw UsageError{fmt::format("--report: {} {}", report.string(), why)}; };
  std::error_code ignored;
  if (fs::is_directory(report, ignored)) refuse("is a directory");
  if (!kept.trace.empty() && fs::equivalent(report, kept.trace, ignored)) refuse("is the trace: give another file");
  for (const fs::path& directory : kept.store_directories) {
    if (is_inside(report, directory)) refuse(fmt::format("is inside the store {}: give another file", directory.string()));
  }
  const fs::path beside = true_path(report).parent_path();
  if (!beside.empty() && is_a_stores(beside)) refuse(fmt::format("is inside the store {}: give another file", beside.string()));
  const bool exists = fs::exists(report, ignored);
  const fs::path target = exists ? report : report.has_parent_path() ? report.parent_path() : fs::path{"."};
  if (::access(target.c_str(), W_OK) != 0) {
    throw UsageError{fmt::format("--report: cannot write {}: {}", report.string(), std::generic_category().message(errno))};
  }
  if (exists && fs::is_regular_file(report, ignored) && !may_be_a_report(report)) {
    refuse("exists and is not a JSON report: give another file, or remove it");
  }
}

void write_file(const fs::path& file, std::string_view what, const std::string& text) {
  errno = 0;
  std::ofstream out{file, std::ios::binary};
  out << text;
  out.close();
  if (!out) {
    throw std::runtime_error{
        fmt::format("cannot write the {} {}: {}", what, file.string(), std::generic_category().message(errno))};
  }
}

void write_report(const fs::path& file, const std::string& json) {
  // Otherwise, opening a pipe would wait until somebody reads it.
  const Descriptor reader{fs::is_fifo(file) ? ::open(file.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC) : -1};
  if (fs::is_fifo(file) && !reader.is_open()) {
    throw std::runtime_error{fmt::format("cannot write the report {}: nobody reads this pipe", file.string())};
  }
  write_file(file, "report", json + '\n');
}

}  // namespace terrace::tools
