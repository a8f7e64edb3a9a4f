// The facts of `terrace doctor`, judged from made-up files of proc and sys.
#include "tools/doctor/doctor.hpp"
#include "storage/io/uring_calls.hpp"
#include "storage/io/uring_io.hpp"
#include "tests/refusal.hpp"
#include "tests/tools/temporary_directory.hpp"
#include "tools/calibration_file.hpp"
#include "tools/device_name.hpp"
#include "tools/doctor/facts.hpp"
#include "tools/usage_error.hpp"
#include "transfer/host/memory_limits.hpp"

#include <boost/json.hpp>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace terrace::tools {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

/// A root folder with the files that a test puts there.
class DoctorFacts : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) const {
    fs::create_directories((root() / path).parent_path());
    std::ofstream{root() / path} << text;
  }
  [[nodiscard]] const fs::path& root() const { return directory_.path(); }

  test::TemporaryDirectory directory_;
};

testing::AssertionResult says(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (text.find(part) == std::string::npos) return testing::AssertionFailure() << "\"" << part << "\" is missing in: " << text;
  }
  return testing::AssertionSuccess();
}

constexpr MemoryNeeds no_needs{};

TEST(DoctorFactText, stands_beside_its_label_on_a_screen_of_80_columns) {
  const std::string text =
      to_text({.label = "numa", .text = "2 nodes", .advice = std::string(60, 'a') + " " + std::string(30, 'b')});
  EXPECT_EQ(text, "numa     2 nodes\n         " + std::string(60, 'a') + "\n         " + std::string(30, 'b') + "\n");
  EXPECT_EQ(to_text({.label = "io_uring", .text = "usable"}), "io_uring usable\n");
}

TEST_F(DoctorFacts, compare_the_memory_of_the_machine_with_the_configuration) {
  EXPECT_TRUE(says(memory_fact({}, no_needs).text, {"does not say"}));
  put("proc/meminfo", "MemAvailable:    8388608 kB\n");
  const MemoryLimits limits = read_memory_limits(root());
  EXPECT_EQ(memory_fact(limits, no_needs).text, "8GiB available on this machine");
  const Fact fits = memory_fact(limits, {.host = GiB, .all = GiB * 2});
  EXPECT_EQ(fits.text, "8GiB available on this machine; the configuration takes 2GiB");
  EXPECT_EQ(fits.advice, "");
  const Fact large = memory_fact(limits, {.host = GiB, .all = GiB * 8});
  EXPECT_TRUE(says(large.text, {"8GiB do not fit: the machine has 8GiB available"}));
  EXPECT_TRUE(says(large.advice, {"refused", "host-capacity"}));
}

TEST_F(DoctorFacts, compare_control_groups_of_both_versions_with_the_configuration) {
  put("proc/meminfo", "MemAvailable:    8388608 kB\n");
  EXPECT_EQ(cgroup_fact(read_memory_limits(root()), {.all = TiB}).text, "no control group limits the memory");
  const auto judge = [&] {
    const MemoryLimits limits = read_memory_limits(root());
    EXPECT_EQ(cgroup_fact(limits, no_needs).text, "the control group allows 4GiB of memory, of which 1GiB are used");
    EXPECT_EQ(cgroup_fact(limits, {.all = GiB * 2}).advice, "");
    const Fact large = cgroup_fact(limits, {.all = GiB * 3});
    EXPECT_TRUE(says(large.text, {"3GiB do not fit: the control group allows 4GiB, of which 1GiB are used", "2.94GiB"}));
    EXPECT_TRUE(says(large.advice, {"kills", "--memory", "resources.limits.memory", "MemoryMax"}));
  };
  put("proc/self/cgroup", "0::/pod\n");
  put("sys/fs/cgroup/pod/memory.max", "4294967296\n");
  put("sys/fs/cgroup/pod/memory.current", "1073741824\n");
  judge();
  put("proc/self/cgroup", "4:memory:/job\n");
  put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "4294967296\n");
  put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1073741824\n");
  judge();
}

TEST(DoctorNeeds, are_the_ordinary_memory_of_a_configuration) {
  CacheSystemOptions options;
  options.pools = {{.block_bytes = MiB, .device_blocks = 100, .host_blocks = 1000, .staging_blocks = 24}};
  EXPECT_EQ(memory_needs(options).host, GiB);
  EXPECT_EQ(memory_needs(options).all, GiB + MiB * 100);
  options.storage = MemoryStorage{.capacity = GiB};
  EXPECT_EQ(memory_needs(options).all, GiB * 2 + MiB * 100);
  options.ranks.resize(2);
  EXPECT_EQ(memory_needs(options).all, GiB * 2 + MiB * 100);
  options.rank_payload = RankPayload::replicated;
  EXPECT_EQ(memory_needs(options).all, GiB * 2 + MiB * 200);
  options.ranks.front().regions.resize(1);
  EXPECT_EQ(memory_needs(options).all, GiB * 2 + MiB * 100) << "memory of the engine";
  for (RankOptions& rank : options.ranks) rank.device = CudaGpu{};
  EXPECT_EQ(memory_needs(options).all, GiB * 2);
  options.pools.front().host_rows.emplace();
  EXPECT_EQ(memory_needs(options).host, Bytes{}) << "memory of the embedder";
}

TEST_F(DoctorFacts, say_how_to_get_huge_pages) {
  EXPECT_TRUE(says(huge_pages_fact(root()).text, {"has no transparent huge pages"}));
  for (const std::string mode : {"always", "madvise"}) {
    put("sys/kernel/mm/transparent_hugepage/enabled", mode == "always" ? "[always] madvise never\n" : "always [madvise] never\n");
    EXPECT_EQ(huge_pages_fact(root()).text, "transparent huge pages: " + mode);
    EXPECT_EQ(huge_pages_fact(root()).advice, "");
  }
  put("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  EXPECT_EQ(huge_pages_fact(root()).text, "transparent huge pages: never");
  EXPECT_TRUE(
      says(huge_pages_fact(root()).advice, {"small pages", "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"}));
}

TEST_F(DoctorFacts, compare_locked_memory_with_the_host_tier) {
  EXPECT_EQ(memlock_fact(root(), {}, {.host = TiB}).text, "no limit of locked memory");
  put("proc/self/limits", "Max locked memory         8388608              8388608              bytes     \n");
  put("proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\n");
  const MemoryLimits limits = read_memory_limits(root());
  EXPECT_EQ(memlock_fact(root(), limits, {.host = MiB * 8}).text, "8MiB of memory can be locked; the host tier takes 8MiB");
  EXPECT_EQ(memlock_fact(root(), limits, {.host = MiB * 8}).advice, "");
  const Fact large = memlock_fact(root(), limits, {.host = GiB});
  EXPECT_EQ(large.text, "8MiB of memory can be locked, less than the host tier of 1GiB");
  EXPECT_TRUE(says(large.advice, {"processor time", "ulimit -l", "LimitMEMLOCK", "--ulimit memlock"}));
  EXPECT_TRUE(says(memlock_fact(root(), limits, no_needs).text, {"a larger host tier"}));
  put("proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n");
  EXPECT_TRUE(says(memlock_fact(root(), limits, {.host = GiB}).text, {"CAP_IPC_LOCK"}));
  EXPECT_EQ(memlock_fact(root(), limits, {.host = GiB}).advice, "");
}

/// A kernel that refuses to make a ring.
class RefusingKernel final : public UringCalls {
 public:
  explicit RefusingKernel(int error) : error_{error} {}
  int setup(unsigned, io_uring&, io_uring_params&) override { return -error_; }

 private:
  int error_;
};

TEST_F(DoctorFacts, say_why_io_uring_cannot_be_used_and_what_that_costs) {
  EXPECT_TRUE(says(uring_fact(root(), std::nullopt).text, {"usable"}));
  EXPECT_EQ(uring_fact(root(), std::nullopt).advice, "");
  RefusingKernel kernel{EPERM};
  const std::optional<std::string> forbidden = UringIo::unavailable(kernel);
  if (forbidden->find("this build") != std::string::npos) GTEST_SKIP() << *forbidden;
  const auto advice = [&] { return uring_fact(root(), forbidden).advice; };
  EXPECT_TRUE(says(uring_fact(root(), forbidden).text, {"not usable", "I/O workers"}));
  EXPECT_TRUE(says(advice(), {"storage.io-threads", "The reason: forbidden here"}));
  put("proc/self/status", "Seccomp:\t2\n");
  EXPECT_TRUE(says(advice(), {"A seccomp filter forbids it", "io_uring_setup", "--security-opt"}));
  put("proc/sys/kernel/io_uring_disabled", "1\n");
  EXPECT_TRUE(says(advice(), {"kernel.io_uring_disabled is 1", "kernel.io_uring_group"}));
  put("proc/sys/kernel/io_uring_disabled", "2\n");
  EXPECT_TRUE(says(advice(), {"kernel.io_uring_disabled is 2: set it to 0"}));
  RefusingKernel old{ENOSYS};
  EXPECT_TRUE(says(uring_fact(root(), UringIo::unavailable(old)).advice, {"The reason: this kernel has none", "Linux 5.6"}));
}

/// A file system without direct I/O, or a full one.
class RefusingFiles final : public PosixCalls {
 public:
  int open(const char* path, int flags, unsigned mode) override {
    const bool is_direct = (flags & O_DIRECT) != 0;
    const int fd = PosixCalls::open(path, flags & ~O_DIRECT, mode);
    if (!is_direct || open_error == 0 || fd < 0) return fd;
    errno = open_error;
    return -1;
  }
  ssize_t pwrite(int fd, const void* from, std::size_t bytes, off_t offset) override {
    if (write_error == 0) return PosixCalls::pwrite(fd, from, bytes, offset);
    errno = write_error;
    return -1;
  }

  int open_error = 0;
  int write_error = 0;
};

TEST_F(DoctorFacts, try_direct_io_and_leave_no_file) {
  RefusingFiles files;
  EXPECT_EQ(try_direct_io(root(), files), 0);
  EXPECT_EQ(try_direct_io(root() / "made later", files), 0);
  EXPECT_EQ(try_direct_io(root() / "no" / "such", files), ENOENT);
  files.write_error = EINVAL;
  EXPECT_EQ(try_direct_io(root(), files), EINVAL);
  files.open_error = EINVAL;
  EXPECT_EQ(try_direct_io(root(), files), EINVAL);
  EXPECT_TRUE(fs::is_empty(root()));
}

TEST(DoctorDirectIo, says_what_the_page_cache_costs) {
  EXPECT_EQ(direct_io_fact("/kv", 0).text, "direct I/O works in /kv");
  EXPECT_EQ(direct_io_fact("/kv", 0).advice, "");
  EXPECT_EQ(direct_io_fact("/kv", EINVAL).text, "the file system of /kv has no direct I/O (Invalid argument)");
  EXPECT_TRUE(says(direct_io_fact("/kv", EINVAL).advice, {"page cache", "copied once more", "ext4 or XFS"}));
  EXPECT_EQ(direct_io_fact("/kv", EACCES).text, "/kv: cannot be tested: Permission denied");
  EXPECT_TRUE(says(direct_io_fact("/kv", EACCES).advice, {"cannot be made there either"}));
}

TEST_F(DoctorFacts, say_on_which_node_the_gpu_and_the_host_tier_are) {
  const std::string pci = "0000:17:00.0";
  EXPECT_EQ(numa_fact(root(), pci, {}).text, "one node");
  put("sys/devices/system/node/node0/cpulist", "0-7\n");
  put("sys/devices/system/node/possible", "0\n");
  EXPECT_EQ(numa_fact(root(), "", {}).text, "one node");
  put("sys/devices/system/node/node1/cpulist", "8-15\n");
  EXPECT_EQ(numa_fact(root(), "", {}).text, "2 nodes");
  EXPECT_TRUE(says(numa_fact(root(), "", {}).advice, {"slower", "nvidia-smi topo -m", "numactl"}));
  put("sys/bus/pci/devices/0000:17:00.0/numa_node", "1\n");
  const Fact not_told = numa_fact(root(), pci, {});
  EXPECT_EQ(not_told.text, "2 nodes; the GPU is on node 1, the host tier on the node of the thread that starts it");
  EXPECT_TRUE(says(not_told.advice, {"Set host.numa-node to 1"}));
  EXPECT_TRUE(says(numa_fact(root(), pci, 0).text, {"the GPU is on node 1, the host tier on node 0"}));
  EXPECT_TRUE(says(numa_fact(root(), pci, 0).advice, {"Set host.numa-node to 1"}));
  EXPECT_TRUE(says(numa_fact(root(), pci, 1).text, {"the GPU is on node 1, the host tier on node 1"}));
  EXPECT_EQ(numa_fact(root(), pci, 1).advice, "");
  put("sys/bus/pci/devices/0000:17:00.0/numa_node", "-1\n");
  EXPECT_EQ(numa_fact(root(), pci, 1).text, "2 nodes");
}

TEST_F(DoctorFacts, say_how_to_get_a_gpu) {
  const std::string no_driver = "no CUDA driver on this machine (libcuda.so.1)";
  EXPECT_EQ(cuda_fact(root(), no_driver).text, "CUDA: " + no_driver);
  EXPECT_TRUE(says(cuda_fact(root(), no_driver).advice, {"emulated", "There is no GPU of NVIDIA on the PCI bus"}));
  EXPECT_TRUE(says(cuda_fact(root(), "this build has no CUDA device").advice, {"CUDA toolkit 12.8"}));
  put("sys/bus/pci/devices/0000:00:1f.0/vendor", "0x10de\n");
  put("sys/bus/pci/devices/0000:00:1f.0/class", "0x040300\n");  // its sound
  EXPECT_TRUE(says(cuda_fact(root(), no_driver).advice, {"There is no GPU"}));
  put("sys/bus/pci/devices/0000:17:00.0/vendor", "0x10de\n");
  put("sys/bus/pci/devices/0000:17:00.0/class", "0x030200\n");
  EXPECT_TRUE(says(cuda_fact(root(), no_driver).advice, {"install its driver"}));
  put("proc/driver/nvidia/version", "NVRM version: 580.65.06\n");
  EXPECT_TRUE(says(cuda_fact(root(), no_driver).advice, {"docker run --gpus", "same driver release"}));
}

CopyMethods all() { return CopyMethods{}.set(); }

/// A table in which kernels are best for small pieces from host to device, and batches for everything else; at most 50 GB/s.
CopyMethodTable measured() {
  CopyMethodTable table;
  for (std::size_t bytes = 0; bytes < CopyMethodTable::piece_bytes.size(); ++bytes) {
    for (std::size_t count = 0; count < CopyMethodTable::piece_counts.size(); ++count) {
      const double batch = 8e9 * static_cast<double>(bytes + 1);
      table.measured(Direction::swap_out, bytes, count, {batch, 1e9, 2e9, 0});
      table.measured(Direction::swap_in, bytes, count, {batch + 2e9, 1e9, bytes == 0 ? 20e9 : 2e9, 0});
    }
  }
  return table;
}

TEST(Doctor, says_which_copy_method_is_used_and_how_fast_it_is) {
  const std::string table = to_table(measured(), all());
  EXPECT_NE(table.find("device to host: at most 48.0 GB/s"), std::string::npos) << table;
  EXPECT_NE(table.find("host to device: at most 50.0 GB/s"), std::string::npos) << table;
  EXPECT_NE(table.find("kernel 20.0"), std::string::npos) << table;
  EXPECT_NE(table.find("batch 8.0"), std::string::npos) << table;
  EXPECT_NE(table.find("under 8KiB"), std::string::npos) << table;
  EXPECT_NE(table.find("from 2MiB"), std::string::npos) << table;
  EXPECT_EQ(table.find("plain"), std::string::npos) << table;
}

TEST(Doctor, names_no_copy_method_that_is_not_available) {
  CopyMethods without_kernels = all();
  without_kernels.reset(static_cast<std::size_t>(CopyMethod::kernel));
  without_kernels.reset(static_cast<std::size_t>(CopyMethod::bulk_kernel));
  const std::string table = to_table(measured(), without_kernels);
  EXPECT_EQ(table.find("kernel"), std::string::npos) << table;
  EXPECT_NE(table.find("batch 10.0"), std::string::npos) << table;
}

TEST(Doctor, says_where_nothing_was_measured) {
  EXPECT_NE(to_table(CopyMethodTable{}, all()).find("device to host: not measured"), std::string::npos);
  EXPECT_EQ(link_peak(CopyMethodTable{}, Direction::swap_in), 0);
}

TEST(Doctor, reports_every_figure_to_programs) {
  CudaFacts facts;
  facts.device = "a GPU";
  facts.methods = all();
  const json::value report = json::parse(to_json(facts, measured()));
  EXPECT_EQ(report.at("device").as_string(), "a GPU");
  const json::value& in = report.at("swap_in");
  EXPECT_EQ(in.at("peak_bytes_per_second").to_number<double>(), 50e9);
  const json::array& cells = in.at("cells").as_array();
  ASSERT_EQ(cells.size(), CopyMethodTable::piece_bytes.size() * CopyMethodTable::piece_counts.size());
  EXPECT_EQ(cells.front().at("path").as_string(), "kernel");
  EXPECT_EQ(cells.front().at("bytes_per_second").at("plain").to_number<double>(), 1e9);
  EXPECT_EQ(cells.back().at("path").as_string(), "batch");
}

TEST(DeviceName, of_a_device_that_is_not_there_is_refused_with_the_reason) {
  EXPECT_FALSE(parse_cuda("--device", "emulated"));
  EXPECT_EQ(device_name(std::nullopt), "emulated");
  EXPECT_EQ(device_name(3), "cuda:3");
  const std::string said = test::refusal_of<UsageError>([&] { (void)parse_cuda("--device", "cuda:999"); });
  EXPECT_NE(said.find("--device cuda:999: "), std::string::npos) << said;
  EXPECT_THROW((void)parse_cuda("--device", "cuda:1x"), UsageError);
  EXPECT_THROW((void)parse_cuda("--device", "cuda0"), UsageError);
}

TEST(DeviceName, of_several_are_by_rank) {
  const std::vector<std::optional<int>> none{std::nullopt, std::nullopt, std::nullopt};
  EXPECT_EQ(device_names(none), "emulated");
  EXPECT_EQ(device_names(std::vector<std::optional<int>>{0, 2}), "cuda:0,cuda:2");
  EXPECT_EQ(device_names(std::vector<std::optional<int>>{std::nullopt, 1}), "emulated,cuda:1");
}

TEST(CalibrationFile, is_in_the_users_cache) {
  const test::TemporaryDirectory directory;
  ::setenv("XDG_CACHE_HOME", directory.path().c_str(), 1);
  EXPECT_EQ(calibration_file(), directory.path() / "terrace" / "copy-paths.json");
  EXPECT_TRUE(std::filesystem::is_directory(directory.path() / "terrace"));
  ::setenv("XDG_CACHE_HOME", "", 1);
  ::setenv("HOME", directory.path().c_str(), 1);
  EXPECT_EQ(calibration_file(), directory.path() / ".cache" / "terrace" / "copy-paths.json");
  ::unsetenv("HOME");
  EXPECT_TRUE(calibration_file().empty());
}

}  // namespace
}  // namespace terrace::tools
