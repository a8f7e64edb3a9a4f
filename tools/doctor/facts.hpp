#pragma once

#include "storage/io/posix_calls.hpp"
#include "terrace/host_memory.hpp"
#include "terrace/options.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace terrace::tools {

/// A fact about this machine, for `terrace doctor`.
struct Fact {
  std::string label;     ///< at most 8 characters
  std::string text;      ///< one sentence without its end
  std::string advice{};  ///< what the present state costs, and how to get the better one; empty: nothing is missing
};
/// The fact for a screen of 80 columns: the label, and beside it the text and the advice.
[[nodiscard]] std::string to_text(const Fact& fact);

/// The ordinary memory that a configuration takes.
struct MemoryNeeds {
  Bytes host{};  ///< host tier and staging slots, without memory of the embedder
  Bytes all{};   ///< the same with emulated devices and memory in place of a disk
};
[[nodiscard]] MemoryNeeds memory_needs(const CacheSystemOptions& options);

// Each function judges one fact. `root` is "/", or the folder of a test with files below proc and sys. `needs` is 0 without a
// configuration. `unavailable` is the sentence of the part concerned that says why it cannot be used, or nothing.

/// The memory of the machine.
[[nodiscard]] Fact memory_fact(const MemoryLimits& limits, const MemoryNeeds& needs);
/// The limit of the control group, of version 1 or 2.
[[nodiscard]] Fact cgroup_fact(const MemoryLimits& limits, const MemoryNeeds& needs);
/// Transparent huge pages.
[[nodiscard]] Fact huge_pages_fact(const std::filesystem::path& root);
/// The limit of locked memory. io_uring counts the memory that is registered with it, unless the process has CAP_IPC_LOCK.
[[nodiscard]] Fact memlock_fact(const std::filesystem::path& root, const MemoryLimits& limits, const MemoryNeeds& needs);
[[nodiscard]] Fact uring_fact(const std::filesystem::path& root, const std::optional<std::string>& unavailable);
/// Direct I/O in a directory; `error` is the result of try_direct_io().
[[nodiscard]] Fact direct_io_fact(const std::filesystem::path& directory, int error);
/// The damaged blocks of the store in this directory (`.../store`); nothing if there is no store that can be read.
[[nodiscard]] std::optional<Fact> damage_fact(const std::filesystem::path& store);
/// The NUMA nodes. `pci` is the address of the GPU, "0000:17:00.0", or empty; `host_node` is the configured node of the host
/// tier.
[[nodiscard]] Fact numa_fact(const std::filesystem::path& root, const std::string& pci, std::optional<unsigned> host_node);
[[nodiscard]] Fact cuda_fact(const std::filesystem::path& root, const std::string& unavailable);

/// Writes 4 KiB with direct I/O to a new file in the directory, or beside it if it does not exist, and removes the file. Returns
/// 0, or the errno of the call that failed.
[[nodiscard]] int try_direct_io(const std::filesystem::path& directory, PosixCalls& calls);

}  // namespace terrace::tools
