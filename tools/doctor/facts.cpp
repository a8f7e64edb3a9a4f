#include "tools/doctor/facts.hpp"

#include "storage/io/aligned_buffer.hpp"
#include "tools/store/opening.hpp"
#include "tools/text.hpp"
#include "transfer/host/memory_limits.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <string_view>
#include <system_error>

namespace terrace::tools {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::ifstream in{file};
  std::string line;
  std::getline(in, line);
  return line;
}

/// The number at the begin of a file.
std::optional<int> number_in(const fs::path& file) {
  std::ifstream in{file};
  int number = 0;
  if (in >> number) return number;
  return std::nullopt;
}

/// The word after `name` in /proc/self/status.
std::string status_of(const fs::path& root, std::string_view name) {
  std::ifstream in{root / "proc/self/status"};
  for (std::string word; in >> word;) {
    if (word == name && in >> word) return word;
  }
  return {};
}

bool may_lock_all_memory(const fs::path& root) {
  constexpr std::uint64_t cap_ipc_lock = std::uint64_t{1} << 14;  // linux/capability.h
  const std::string word = status_of(root, "CapEff:");
  std::uint64_t capabilities = 0;
  std::from_chars(word.data(), word.data() + word.size(), capabilities, 16);
  return (capabilities & cap_ipc_lock) != 0;
}

/// Returns why the memory does not fit one of the limits, or nothing.
std::optional<std::string> refusal(Bytes needed, const MemoryLimits& limits) {
  const std::optional<std::string> why = preflight({.bytes = needed, .unit = MiB, .spare = MiB * 64}, limits);
  return why ? std::optional{"the configuration takes too much: " + *why} : std::nullopt;
}

/// True if a device of the PCI bus is a GPU of NVIDIA.
bool has_nvidia_gpu(const fs::path& root) {
  std::error_code ignored;
  for (const fs::directory_entry& device : fs::directory_iterator{root / "sys/bus/pci/devices", ignored}) {
    const bool is_display = first_line(device.path() / "class").starts_with("0x03");
    if (is_display && first_line(device.path() / "vendor") == "0x10de") return true;
  }
  return false;
}

int count_nodes(const fs::path& root) {
  int nodes = 0;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator{root / "sys/devices/system/node", ignored}) {
    const std::string name = entry.path().filename();
    const bool is_node = name.starts_with("node") && name.size() > 4 &&
                         std::ranges::all_of(name.substr(4), [](char c) { return c >= '0' && c <= '9'; });
    nodes += is_node ? 1 : 0;
  }
  return nodes;
}

}  // namespace

std::string to_text(const Fact& fact) {
  constexpr std::size_t indent = 9;
  std::string text = fmt::format("{:<8} {}\n", fact.label, wrapped(fact.text, indent, indent));
  if (!fact.advice.empty()) text += std::string(indent, ' ') + wrapped(fact.advice, indent, indent) + '\n';
  return text;
}

MemoryNeeds memory_needs(const CacheSystemOptions& options) {
  MemoryNeeds needs;
  Bytes device{};
  for (const PoolOptions& pool : options.pools) {
    if (!pool.host_rows) needs.host += pool.block_bytes * (pool.host_blocks.value() + pool.staging_blocks.value());
    device += pool.block_bytes * std::max(pool.device_blocks, pool.device_blocks_max).value();
  }
  const auto emulated = static_cast<std::uint64_t>(std::ranges::count_if(options.ranks, [](const RankOptions& rank) {
    return std::holds_alternative<EmulatedGpu>(rank.device) && rank.regions.empty();
  }));
  // A sharded block is spread over all ranks.
  const std::uint64_t parts = options.rank_payload == RankPayload::replicated ? 1 : options.ranks.size();
  needs.all = needs.host + Bytes{count(device) / parts * emulated};
  if (const auto* memory = std::get_if<MemoryStorage>(&options.storage)) needs.all += memory->capacity;
  return needs;
}

Fact memory_fact(const MemoryLimits& limits, const MemoryNeeds& needs) {
  Fact fact{.label = "memory", .text = "the machine does not say how much is available"};
  if (!limits.available) return fact;
  fact.text = to_string(*limits.available) + " available on this machine";
  if (needs.all == Bytes{}) return fact;
  fact.text += fmt::format("; the configuration takes {}", to_string(needs.all));
  if (const auto refused = refusal(needs.all, {.available = limits.available})) {
    fact.text = *refused;
    fact.advice = "A start is refused, or the machine swaps. Give the tiers less (host-capacity), or end other processes.";
  }
  return fact;
}

Fact cgroup_fact(const MemoryLimits& limits, const MemoryNeeds& needs) {
  Fact fact{.label = "cgroup", .text = "no control group limits the memory"};
  if (!limits.cgroup_max) return fact;
  fact.text = fmt::format("the control group allows {} of memory, of which {} are used", to_string(*limits.cgroup_max),
                          to_string(limits.cgroup_current));
  if (const auto refused = refusal(needs.all, {.cgroup_max = limits.cgroup_max, .cgroup_current = limits.cgroup_current})) {
    fact.text = *refused;
    fact.advice = "The kernel kills a process above this limit, so a start is refused. Raise it (docker run --memory, Kubernetes "
                  "resources.limits.memory, systemd MemoryMax), or give the tiers less (host-capacity).";
  }
  return fact;
}

Fact huge_pages_fact(const fs::path& root) {
  const std::string words = first_line(root / "sys/kernel/mm/transparent_hugepage/enabled");
  const auto begin = words.find('[');
  const auto end = words.find(']');
  Fact fact{.label = "pages", .text = "this kernel has no transparent huge pages"};
  if (begin != std::string::npos && end != std::string::npos) {
    const std::string mode = words.substr(begin + 1, end - begin - 1);
    fact.text = "transparent huge pages: " + mode;
    if (mode != "never") return fact;
  }
  fact.advice =
      "The host tier and large tables are in small pages: they take longer to touch and to pin, and lookups are slower. As root: "
      "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
  return fact;
}

Fact memlock_fact(const fs::path& root, const MemoryLimits& limits, const MemoryNeeds& needs) {
  Fact fact{.label = "memlock", .text = "no limit of locked memory"};
  if (!limits.memlock) return fact;
  fact.text = to_string(*limits.memlock) + " of memory can be locked";
  if (may_lock_all_memory(root)) {
    fact.text += ", which does not limit this process (CAP_IPC_LOCK)";
    return fact;
  }
  if (needs.host > Bytes{} && needs.host <= *limits.memlock) {
    fact.text += fmt::format("; the host tier takes {}", to_string(needs.host));
    return fact;
  }
  fact.text += needs.host > Bytes{} ? fmt::format(", less than the host tier of {}", to_string(needs.host))
                                    : std::string{": a larger host tier is not registered with io_uring"};
  fact.advice =
      "io_uring then looks up the pages of each read and write, which takes processor time. ulimit -l unlimited, systemd "
      "LimitMEMLOCK=infinity, docker run --ulimit memlock=-1";
  return fact;
}

Fact uring_fact(const fs::path& root, const std::optional<std::string>& unavailable) {
  Fact fact{.label = "io_uring", .text = "usable: it reads and writes the files of storage"};
  if (!unavailable) return fact;
  fact.text = "not usable; I/O workers read and write instead";
  fact.advice = "Each worker has one operation under way (storage.io-threads), so fast disks are not used fully, and small "
                "blocks take more "
                "processor time. ";
  const int disabled = number_in(root / "proc/sys/kernel/io_uring_disabled").value_or(0);
  const bool is_refused = unavailable->find("forbidden") != std::string::npos;
  if (is_refused && disabled > 0) {
    fact.advice += fmt::format("The sysctl kernel.io_uring_disabled is {}: {}", disabled,
                               disabled == 1 ? "set it to 0, or kernel.io_uring_group to a group of the user" : "set it to 0");
  } else if (is_refused && status_of(root, "Seccomp:") == "2") {
    fact.advice += "A seccomp filter forbids it: allow io_uring_setup, io_uring_enter and io_uring_register (docker run "
                   "--security-opt seccomp=FILE)";
  } else {
    constexpr std::string_view subject = "io_uring: ";
    fact.advice += "The reason: " + unavailable->substr(unavailable->starts_with(subject) ? subject.size() : 0);
  }
  return fact;
}

Fact direct_io_fact(const fs::path& directory, int error) {
  Fact fact{.label = "direct", .text = fmt::format("direct I/O works in {}", printable(directory.string()))};
  if (error == 0) return fact;
  const std::string message = std::generic_category().message(error);
  if (error == EINVAL || error == EOPNOTSUPP) {
    fact.text = fmt::format("the file system of {} has no direct I/O ({})", printable(directory.string()), message);
    fact.advice =
        "Blocks go through the page cache: each is copied once more, and takes memory that the host tier could have. Use a "
        "directory on a local disk with ext4 or XFS.";
  } else {
    fact.text = fmt::format("{}: cannot be tested: {}", printable(directory.string()), message);
    fact.advice = "A store cannot be made there either. Make the directory, and give it to the user who serves.";
  }
  return fact;
}

std::optional<Fact> damage_fact(const fs::path& store) {
  try {
    const std::unique_ptr<StoreReader> reader = open_store(store);
    return Fact{.label = "damaged", .text = fmt::format("{}: {}", printable(store.string()), damage_in(*reader))};
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

Fact numa_fact(const fs::path& root, const std::string& pci, std::optional<unsigned> host_node) {
  Fact fact{.label = "numa", .text = "one node"};
  const int nodes = count_nodes(root);
  if (nodes < 2) return fact;
  fact.text = fmt::format("{} nodes", nodes);
  const int gpu_node = pci.empty() ? -1 : number_in(root / "sys/bus/pci/devices" / pci / "numa_node").value_or(-1);
  std::string node = "that of the GPU (nvidia-smi topo -m)";
  if (gpu_node >= 0) {
    node = fmt::format("{}", gpu_node);
    fact.text += fmt::format("; the GPU is on node {}, the host tier on {}", gpu_node,
                             host_node ? fmt::format("node {}", *host_node) : "the node of the thread that starts it");
    if (host_node && static_cast<int>(*host_node) == gpu_node) return fact;
  }
  fact.advice = fmt::format("Copies between the GPU and memory of another node are slower. Set host.numa-node to {}, and run the "
                            "engine there (numactl --cpunodebind).",
                            node);
  return fact;
}

Fact cuda_fact(const fs::path& root, const std::string& unavailable) {
  Fact fact{.label = "", .text = "CUDA: " + unavailable};
  fact.advice = "Only the emulated device works, which is for tests. ";
  if (unavailable.starts_with("this build")) {
    fact.advice += "Build Terrace where the CUDA toolkit 12.8 or newer is installed.";
  } else if (fs::exists(root / "proc/driver/nvidia/version")) {
    fact.advice +=
        "The kernel has the driver of NVIDIA: give this container its GPU (docker run --gpus all, Kubernetes nvidia.com/gpu), or "
        "install the libraries of the same driver release.";
  } else if (has_nvidia_gpu(root)) {
    fact.advice += "There is a GPU of NVIDIA on the PCI bus: install its driver.";
  } else {
    fact.advice += "There is no GPU of NVIDIA on the PCI bus.";
  }
  return fact;
}

int try_direct_io(const fs::path& directory, PosixCalls& calls) {
  std::error_code ignored;
  const fs::path absolute = fs::absolute(directory, ignored);
  const fs::path there = fs::is_directory(absolute, ignored) ? absolute : absolute.parent_path();
  const fs::path file = there / fmt::format(".terrace-doctor-{}", ::getpid());
  const int fd = calls.open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600);
  int error = fd < 0 ? errno : 0;
  if (fd >= 0) {
    const AlignedBuffer zeros{io_alignment};
    if (calls.pwrite(fd, zeros.data(), zeros.size(), 0) < 0) error = errno;
    ::close(fd);
  }
  // Some file systems make the file before they refuse to open it. A file that existed is not ours.
  if (error != EEXIST) ::unlink(file.c_str());
  return error;
}

}  // namespace terrace::tools
