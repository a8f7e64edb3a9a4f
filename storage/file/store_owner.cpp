#include "storage/file/store_owner.hpp"

#include "storage/file/file_set.hpp"
#include "storage/format/format.hpp"
#include "storage/format/refuse_store.hpp"
#include "storage/format/store_label.hpp"
#include "storage/io/aligned_buffer.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>

namespace terrace {
namespace {

constexpr std::size_t name_bytes_max = 100;

/// Returns the program's file name, and the next word if it looks like a command. Other arguments are left out, because they may
/// be secret.
std::string program_name() {
  std::ifstream in{"/proc/self/cmdline", std::ios::binary};
  const std::string words{std::istreambuf_iterator<char>{in}, {}};
  const std::size_t end = words.find('\0');
  std::string name = std::filesystem::path{words.substr(0, end)}.filename().string();
  if (end == std::string::npos) return name;
  const std::string second{words.c_str() + end + 1};
  const bool is_command = !second.empty() && second.size() <= 16 &&
                          std::all_of(second.begin(), second.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  return is_command ? name + " " + second : name;
}

}  // namespace

StoreOwner this_process() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return {static_cast<std::uint64_t>(::getpid()), program_name(), host.data(),
          fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(now))};
}

std::string to_text(const StoreOwner& owner) {
  const std::string text =
      fmt::format("pid {}\nprogram {}\nhost {}\nsince {}\n", owner.pid, printable_text(owner.program, name_bytes_max),
                  printable_text(owner.host, name_bytes_max), printable_text(owner.since, name_bytes_max));
  return fmt::format("{:<{}}", text, owner_text_bytes);
}

std::optional<StoreOwner> parse_owner(std::string_view text) {
  StoreOwner owner;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const auto value_of = [&](std::string_view name) -> std::optional<std::string_view> {
      if (!line.starts_with(name)) return std::nullopt;
      return line.substr(name.size());
    };
    if (const auto pid = value_of("pid ")) {
      const auto [rest, error] = std::from_chars(pid->data(), pid->data() + pid->size(), owner.pid);
      if (error != std::errc{} || rest != pid->data() + pid->size()) return std::nullopt;
    } else if (owner.pid == 0) {
      return std::nullopt;
    } else if (const auto program = value_of("program ")) {
      owner.program = printable_text(*program, name_bytes_max);
    } else if (const auto host = value_of("host ")) {
      owner.host = printable_text(*host, name_bytes_max);
    } else if (const auto since = value_of("since ")) {
      owner.since = printable_text(*since, name_bytes_max);
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  if (owner.pid == 0) return std::nullopt;
  return owner;
}

std::string describe(const std::optional<StoreOwner>& owner) {
  if (!owner) return "an unknown process";
  std::string text = fmt::format("process {}", owner->pid);
  if (!owner->program.empty() && !owner->host.empty()) {
    text += fmt::format(" ({} on {})", owner->program, owner->host);
  } else if (!owner->program.empty() || !owner->host.empty()) {
    text += fmt::format(" ({})", owner->program + owner->host);
  }
  if (!owner->since.empty()) text += fmt::format(", since {}", owner->since);
  return text;
}

namespace {

/// Returns a process that has the file open with a lock, other than this one. A child process can keep the lock of a parent that
/// has ended, if it was made by a raw system call and so has not closed the parent's files.
std::optional<std::uint64_t> holder_of(const std::filesystem::path& file) {
  struct stat wanted {};
  if (::stat(file.c_str(), &wanted) != 0) return std::nullopt;
  std::error_code error;
  for (const auto& process : std::filesystem::directory_iterator{"/proc", error}) {
    const std::string name = process.path().filename().string();
    std::uint64_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc{} || pid == this_process().pid) continue;
    for (auto opened = std::filesystem::directory_iterator{process.path() / "fd", error};
         opened != std::filesystem::directory_iterator{}; opened.increment(error)) {
      struct stat found {};
      if (::stat(opened->path().c_str(), &found) != 0 || found.st_ino != wanted.st_ino || found.st_dev != wanted.st_dev) continue;
      std::ifstream info{process.path() / "fdinfo" / opened->path().filename()};
      const std::string text{std::istreambuf_iterator<char>{info}, {}};
      if (text.find("lock:") != std::string::npos) return pid;
    }
  }
  return std::nullopt;
}

/// Returns true if the owner was probably killed a moment ago. The kernel destroys its io_uring later, and the lock file may stay
/// open and locked until the last operation has ended.
bool has_ended(const std::optional<StoreOwner>& owner) {
  return owner && owner->host == this_process().host && ::kill(static_cast<pid_t>(owner->pid), 0) != 0 && errno == ESRCH;
}

}  // namespace

void take_lock(IoEngine& engine, FileId lock_file, const std::filesystem::path& directory) {
  constexpr std::chrono::milliseconds pause{5};
  constexpr int pauses_max = 400;
  // If the file names this process, another process may be about to write its name, or this process may have the store open
  // twice: wait for a short time. If it names no process, an owner may have been killed before it wrote its name: wait as long as
  // for a killed owner.
  constexpr int own_pauses_max = 40;
  AlignedBuffer buffer{owner_text_bytes};
  const std::span<std::byte> bytes = buffer.span(0, owner_text_bytes);
  for (int pauses = 0;; ++pauses) {
    const Result<void> locked = engine.files().lock(lock_file);
    if (locked) break;
    if (locked.error() != Errc::in_use) refuse_store(locked.error(), "cannot lock the file store in {}", directory.string());
    const IoCompletion read = run_alone(engine, {.kind = IoOperation::Kind::read, .file = lock_file, .into = bytes});
    const std::string_view text{reinterpret_cast<const char*>(bytes.data()), read.error == 0 ? read.bytes : 0};
    const std::optional<StoreOwner> owner = parse_owner(text);
    const bool is_own = owner && owner->pid == this_process().pid;
    if (pauses < (!owner || has_ended(owner) ? pauses_max : is_own ? own_pauses_max : 0)) {
      std::this_thread::sleep_for(pause);
      continue;
    }
    std::string who = describe(owner);
    if (has_ended(owner)) {
      if (const std::optional<std::uint64_t> holder = holder_of(directory / "lock")) {
        who = fmt::format("process {}, a child of {}, which has ended", *holder, who);
      }
    }
    refuse_store(Errc::in_use, "the file store in {} is in use by {}: stop it, or give another directory", directory.string(),
                 who);
  }
  std::memcpy(bytes.data(), to_text(this_process()).data(), owner_text_bytes);
  const IoCompletion written = run_alone(engine, {.kind = IoOperation::Kind::write, .file = lock_file, .from = bytes});
  const ErrorCode error = error_of(written, owner_text_bytes);
  if (error) refuse_store(error, "cannot write {}", (directory / "lock").string());
}

void record_label(IoEngine& engine, FileId lock_file, std::string_view label) {
  AlignedBuffer buffer{labels_max * label_bytes};
  const IoCompletion read =
      run_alone(engine, {.kind = IoOperation::Kind::read, .file = lock_file, .offset = labels_at, .into = buffer.span()});
  if (read.error != 0) return;
  const StoreLabel now{printable_text(label), this_process().since};
  const std::size_t at = sector_for(buffer.span(0, read.bytes), now.text) * label_bytes;
  std::memcpy(buffer.span(at, label_bytes).data(), to_text(now).data(), label_bytes);
  (void)run_alone(
      engine,
      {.kind = IoOperation::Kind::write, .file = lock_file, .offset = labels_at + at, .from = buffer.span(at, label_bytes)});
}

}  // namespace terrace
