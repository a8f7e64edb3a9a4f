// The facts of `terrace doctor`, judged from made-up files of proc and sys.
#include "tools/doctor/doctor.hpp"
#include "storage/io/uring_calls.hpp"
#include "storage/io/uring_io.hpp"
#include "tests/refusal.hpp"
#include "tests/tools/temporary_directory.hpp"
#include "tools/device_name.hpp"
#include "tools/doctor/facts.hpp"
#include "tools/shared/facts.hpp"
#include "tools/usage_error.hpp"
#include "transfer/host/memory_limits.hpp"

#include <boost/json.hpp>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
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

// ---- the judgement of `terrace shared check`: from what is known about servers to what an operator reads

ServerFacts good_server(const std::string& address = "a:1") {
  return {.address = address,
          .software = "Redis",
          .version = "7.0.15",
          .memory_max = count(GiB * 64),
          .memory_used = count(GiB),
          .machine_memory = count(GiB * 128),
          .policy = "volatile-ttl",
          .appends = false,
          .snapshots = false,
          .role = "master",
          .replicas = 0};
}

/// A single server that is as it should be.
SharedFacts good() {
  SharedFacts facts;
  facts.servers.push_back(good_server());
  facts.round_trips.assign(100, 0.001);
  facts.writes = facts.reads = SharedCost{.blocks = 32, .seconds = 0.032};
  return facts;
}

SharedNeeds needs() {
  SharedNeeds needs;
  needs.compute_seconds = 0.004;
  needs.probe_deadline = std::chrono::milliseconds{20};
  return needs;
}

std::vector<Finding> of(const std::vector<Finding>& findings, const std::string& label) {
  std::vector<Finding> found;
  std::ranges::copy_if(findings, std::back_inserter(found), [&](const Finding& finding) { return finding.label == label; });
  return found;
}

/// The only finding about this.
Finding only(const SharedFacts& facts, const std::string& label, const SharedNeeds& with = needs()) {
  const std::vector<Finding> found = of(judge(facts, with), label);
  EXPECT_EQ(found.size(), 1U) << label;
  return found.empty() ? Finding{} : found.front();
}

TEST(SharedFacts, a_good_store_has_no_warning_and_each_fact_one_line) {
  const std::vector<Finding> findings = judge(good(), needs());
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.verdict, FactVerdict::ok) << finding.label << ": " << finding.text;
    EXPECT_TRUE(finding.advice.empty()) << finding.label;
    EXPECT_LE(finding.label.size(), 8U);
    EXPECT_EQ(of(findings, finding.label).size(), 1U) << finding.label;
  }
  EXPECT_EQ(findings.size(), 9U);
}

TEST(SharedFacts, whatever_is_no_ok_says_what_it_costs_or_how_to_mend_it) {
  SharedFacts facts = good();
  facts.cluster = true;
  facts.slots_lost = 5;
  facts.servers = {good_server(),
                   good_server("b:1"),
                   {.address = "c:1", .unreachable = "c:1: nobody listens there"},
                   {.address = "d:1", .info_refusal = "NOPERM"}};
  facts.servers[1].policy = "noeviction";
  facts.servers[1].version = "5.0.7";
  facts.servers[1].snapshots = true;
  facts.servers[1].role = "slave";
  facts.round_trips.assign(10, 0.1);
  facts.probes_failed = 1;
  facts.writes->failed = 1;
  facts.trouble = "b:1 forbids something";
  facts.not_removed = 3;
  SharedNeeds slow = needs();
  slow.compute_seconds = 0.0001;
  for (const Finding& finding : judge(facts, slow)) {
    EXPECT_EQ(finding.advice.empty(), finding.verdict == FactVerdict::ok) << finding.label << ": " << finding.text;
    EXPECT_LE(finding.label.size(), 8U);
  }
}

TEST(SharedFacts, the_eviction_policy_is_judged) {
  SharedFacts facts = good();
  for (const auto& [policy, verdict] :
       {std::pair{"volatile-ttl", FactVerdict::ok}, std::pair{"allkeys-lru", FactVerdict::ok},
        std::pair{"volatile-lfu", FactVerdict::ok}, std::pair{"allkeys-random", FactVerdict::warning},
        std::pair{"noeviction", FactVerdict::warning}}) {
    facts.servers[0].policy = policy;
    EXPECT_EQ(only(facts, "policy").verdict, verdict) << policy;
    EXPECT_TRUE(only(facts, "policy").text.starts_with(policy));
  }
  EXPECT_NE(only(facts, "policy").advice.find("CONFIG SET maxmemory-policy volatile-ttl"), std::string::npos);
}

TEST(SharedFacts, servers_that_differ_have_a_line_for_each_value) {
  SharedFacts facts = good();
  facts.cluster = true;
  facts.slots_lost = 0;
  for (const char* address : {"b:1", "c:1", "d:1", "e:1"}) facts.servers.push_back(good_server(address));
  for (ServerFacts& server : facts.servers) server.full_coverage = false;
  EXPECT_EQ(only(facts, "policy").verdict, FactVerdict::ok);
  EXPECT_EQ(only(facts, "coverage").verdict, FactVerdict::ok);
  EXPECT_EQ(only(facts, "cluster").text, "5 servers have all slots");
  facts.servers[2].policy = "noeviction";
  const std::vector<Finding> policies = of(judge(facts, needs()), "policy");
  ASSERT_EQ(policies.size(), 2U);
  EXPECT_EQ(policies[0].text, "noeviction at c:1");
  EXPECT_TRUE(policies[1].text.starts_with("volatile-ttl at a:1, b:1, d:1 and 1 more")) << policies[1].text;
}

TEST(SharedFacts, a_cluster_must_have_all_slots_and_go_on_without_one_server) {
  SharedFacts facts = good();
  facts.cluster = true;
  facts.servers[0].full_coverage = true;
  facts.slots_lost = 100;
  EXPECT_EQ(only(facts, "cluster").verdict, FactVerdict::failed);
  EXPECT_EQ(only(facts, "coverage").verdict, FactVerdict::warning);
  facts.slots_lost = std::nullopt;
  EXPECT_EQ(only(facts, "cluster").verdict, FactVerdict::unknown);
  facts.servers.push_back({.address = "b:1", .unreachable = "b:1: nobody listens there"});
  EXPECT_EQ(of(judge(facts, needs()), "server")[0].text, "b:1: nobody listens there");
}

TEST(SharedFacts, memory_needs_a_limit_that_the_machine_has_and_room_for_some_prompts) {
  SharedFacts facts = good();
  EXPECT_EQ(only(facts, "memory").text, "1GiB of 64GiB used; 32768 blocks of 2MiB fit into all of it, which are 524288 tokens");
  facts.servers[0].memory_max = 0;
  EXPECT_EQ(only(facts, "memory").verdict, FactVerdict::warning);
  EXPECT_EQ(only(facts, "memory").text, "no limit (maxmemory 0) at a:1");
  facts.servers[0].memory_max = count(GiB * 256);
  EXPECT_EQ(only(facts, "memory").verdict, FactVerdict::warning) << "the machine has 128 GiB";
  facts.servers[0].memory_max = count(GiB);
  EXPECT_EQ(only(facts, "memory").verdict, FactVerdict::warning) << "8192 tokens";
  facts.servers[0].memory_max = facts.servers[0].memory_used = count(GiB * 64);
  EXPECT_EQ(only(facts, "memory").verdict, FactVerdict::ok) << "a full cache is the usual state";
  facts.servers[0].policy = "noeviction";
  EXPECT_EQ(only(facts, "memory").verdict, FactVerdict::warning);
}

TEST(SharedFacts, a_cache_needs_no_disk_and_no_replica_takes_its_writes) {
  SharedFacts facts = good();
  facts.servers[0].appends = true;
  EXPECT_EQ(only(facts, "disk").text, "appendonly is on");
  facts.servers[0].snapshots = true;
  EXPECT_EQ(only(facts, "disk").text, "appendonly is on, and it saves snapshots");
  EXPECT_EQ(only(facts, "disk").verdict, FactVerdict::warning);
  facts.servers[0].replicas = 2;
  EXPECT_EQ(only(facts, "replicas").verdict, FactVerdict::ok);
  facts.servers[0].role = "slave";
  EXPECT_EQ(only(facts, "replicas").verdict, FactVerdict::failed);
}

TEST(SharedFacts, old_servers_are_named_and_valkey_is_none) {
  SharedFacts facts = good();
  for (const auto& [version, verdict] : {std::pair{"6.0.16", FactVerdict::warning}, std::pair{"6.2.0", FactVerdict::ok},
                                         std::pair{"10.1", FactVerdict::ok}, std::pair{"5", FactVerdict::warning}}) {
    facts.servers[0].version = version;
    EXPECT_EQ(only(facts, "server").verdict, verdict) << version;
  }
  facts.servers[0].software = "Valkey";
  EXPECT_EQ(only(facts, "server").verdict, FactVerdict::ok);
}

TEST(SharedFacts, what_a_user_with_few_rights_is_not_told_is_no_failure) {
  SharedFacts facts = good();
  facts.servers[0] = {.address = "a:1",
                      .software = "Redis",
                      .version = "7.0.15",
                      .role = "master",
                      .info_refusal = "NOPERM no info",
                      .config_refusal = "NOPERM no config"};
  for (const char* label : {"policy", "memory", "disk", "replicas"}) {
    const Finding finding = only(facts, label);
    EXPECT_EQ(finding.verdict, FactVerdict::unknown) << label;
    EXPECT_NE(finding.text.find("NOPERM"), std::string::npos) << label;
    EXPECT_NE(finding.advice.find("redis-cli "), std::string::npos) << label;
  }
  EXPECT_EQ(only(facts, "server").verdict, FactVerdict::ok);
}

TEST(SharedFacts, probes_are_compared_with_the_time_that_a_request_waits) {
  SharedFacts facts = good();
  EXPECT_EQ(only(facts, "probes").text, "1.00 ms in the median, 1.00 ms in the 99th percentile, of 100 probes");
  std::fill_n(facts.round_trips.begin(), 2, 0.025);
  EXPECT_EQ(only(facts, "probes").verdict, FactVerdict::warning);
  facts.round_trips.assign(100, 0.025);
  EXPECT_EQ(only(facts, "probes").verdict, FactVerdict::failed);
  facts.round_trips.clear();
  facts.probes_failed = 60;
  EXPECT_EQ(only(facts, "probes").verdict, FactVerdict::failed);
}

TEST(SharedFacts, loading_pays_if_it_is_faster_than_computing_and_from_the_block_on_that_makes_up_for_the_round_trip) {
  SharedFacts facts = good();
  facts.round_trips.assign(100, 0.005);  // 10 ms for two, and each block saves 3 ms
  EXPECT_EQ(only(facts, "pays").text, "loading a block takes 1.00 ms, computing it 4.00 ms: it pays from 4 blocks on");
  facts.round_trips.assign(100, 0.0001);
  EXPECT_TRUE(only(facts, "pays").text.ends_with("it pays from 1 block on"));
  SharedNeeds fast = needs();
  fast.compute_seconds = 0.0005;
  EXPECT_EQ(only(facts, "pays", fast).verdict, FactVerdict::warning);
  fast.compute_seconds = 0;
  EXPECT_EQ(only(facts, "pays", fast).verdict, FactVerdict::unknown);
  facts.reads->failed = 1;
  EXPECT_TRUE(of(judge(facts, fast), "pays").empty()) << "no block was read";
  EXPECT_EQ(only(facts, "read").verdict, FactVerdict::failed);
  EXPECT_EQ(only(facts, "write").verdict, FactVerdict::ok);
}

TEST(SharedFacts, a_command_that_is_forbidden_is_a_warning_if_blocks_come_and_go_all_the_same) {
  SharedFacts facts = good();
  facts.trouble = "a:1 forbids something: NOPERM";
  facts.not_removed = 2;
  EXPECT_EQ(only(facts, "client").verdict, FactVerdict::warning);
  EXPECT_EQ(only(facts, "left").text, "2 values of this check could not be removed");
  facts.writes = facts.reads = std::nullopt;
  EXPECT_EQ(only(facts, "client").verdict, FactVerdict::failed);
}

TEST(SharedFacts, where_no_block_is_written_nothing_is_said_about_probes_and_reads) {
  SharedFacts facts = good();
  facts.round_trips.clear();
  facts.probes_failed = 60;
  facts.reads->failed = facts.reads->blocks;
  facts.writes->failed = facts.writes->blocks - 1;
  EXPECT_EQ(only(facts, "probes").verdict, FactVerdict::failed);
  EXPECT_EQ(only(facts, "read").verdict, FactVerdict::failed);
  ++facts.writes->failed;
  EXPECT_EQ(only(facts, "probes").verdict, FactVerdict::unknown);
  EXPECT_EQ(only(facts, "read").verdict, FactVerdict::unknown);
  EXPECT_EQ(only(facts, "write").verdict, FactVerdict::failed);
}

TEST(SharedFacts, a_quantile_is_one_of_the_times) {
  EXPECT_EQ(quantile({}, 0.5), 0);
  EXPECT_EQ(quantile({3}, 0.99), 3);
  EXPECT_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(quantile({4, 3, 1, 2}, 1), 4);
  EXPECT_EQ(quantile({4, 3, 1, 2}, 0), 1);
}

}  // namespace
}  // namespace terrace::tools
