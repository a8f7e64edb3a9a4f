#include "transfer/host/memory_limits.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace terrace {
namespace {

namespace fs = std::filesystem;

/// A root folder with the files that a test puts there.
class MemoryLimitsFiles : public ::testing::Test {
 protected:
  MemoryLimitsFiles() {
    std::string name = (fs::temp_directory_path() / "terrace-limits-XXXXXX").string();
    root = ::mkdtemp(name.data());
  }
  ~MemoryLimitsFiles() override { fs::remove_all(root); }

  void put(const std::string& path, const std::string& text) const {
    fs::create_directories((root / path).parent_path());
    std::ofstream{root / path} << text;
  }

  fs::path root;
};

TEST_F(MemoryLimitsFiles, a_system_that_says_nothing_limits_nothing) {
  const MemoryLimits limits = read_memory_limits(root);
  EXPECT_FALSE(memory_left(limits).has_value());
  EXPECT_FALSE(limits.memlock.has_value());
  EXPECT_FALSE(preflight({.bytes = TiB}, limits).has_value());
}

TEST_F(MemoryLimitsFiles, reads_what_the_machine_and_the_process_say) {
  put("proc/meminfo", "MemTotal:       16000 kB\nMemFree:  100 kB\nMemAvailable:    8000 kB\n");
  put("proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units     \n"
                          "Max locked memory         65536                unlimited            bytes     \n");
  put("proc/self/status", "Name:\tx\nVmLck:\t      16 kB\n");
  const MemoryLimits limits = read_memory_limits(root);
  EXPECT_EQ(limits.available, KiB * 8000);
  EXPECT_EQ(limits.memlock, KiB * 64);
  EXPECT_EQ(limits.locked, KiB * 16);
  put("proc/self/limits", "Max locked memory         unlimited            unlimited            bytes\n");
  EXPECT_FALSE(read_memory_limits(root).memlock.has_value());
}

TEST_F(MemoryLimitsFiles, takes_the_tightest_group_of_version_2_and_leaves_out_its_page_cache) {
  put("proc/self/cgroup", "0::/pods/mine\n");
  put("sys/fs/cgroup/pods/mine/memory.max", "max\n");
  put("sys/fs/cgroup/pods/mine/memory.current", "1000\n");
  put("sys/fs/cgroup/pods/memory.max", "1048576\n");
  put("sys/fs/cgroup/pods/memory.current", "500000\n");
  put("sys/fs/cgroup/pods/memory.stat", "anon 1\ninactive_file 100000\n");
  put("sys/fs/cgroup/memory.max", "9000000\n");
  put("sys/fs/cgroup/memory.current", "500000\n");
  const MemoryLimits limits = read_memory_limits(root);
  EXPECT_EQ(limits.cgroup_max, MiB);
  EXPECT_EQ(limits.cgroup_current, Bytes{400'000});
  EXPECT_EQ(memory_left(limits), Bytes{1'048'576 - 400'000});
}

TEST_F(MemoryLimitsFiles, reads_version_1_whose_no_limit_is_a_number) {
  put("proc/self/cgroup", "5:cpu:/x\n4:memory:/x\n");
  put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "4096\n");
  EXPECT_FALSE(read_memory_limits(root).cgroup_max.has_value());
  put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "2097152\n");
  put("sys/fs/cgroup/memory/x/memory.stat", "total_inactive_file 96\n");
  const MemoryLimits limits = read_memory_limits(root);
  EXPECT_EQ(limits.cgroup_max, MiB * 2);
  EXPECT_EQ(limits.cgroup_current, Bytes{4000});
}

TEST(Preflight, names_the_tightest_limit_and_the_largest_size_that_fits) {
  MemoryLimits limits;
  limits.available = GiB * 8;
  limits.cgroup_max = GiB * 4;
  limits.cgroup_current = GiB;
  limits.memlock = GiB * 2;
  MemoryRequest wanted{.bytes = GiB * 16, .unit = MiB * 100, .spare = MiB * 24};
  auto refusal = preflight(wanted, limits);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(*refusal, "16GiB do not fit: the control group allows 4GiB, of which 1GiB are used; "
                      "the largest size that fits is 2.93GiB");

  // The reported size fits, and nothing larger does.
  wanted.bytes = MiB * 3000;
  EXPECT_FALSE(preflight(wanted, limits).has_value());
  wanted.bytes += wanted.unit;
  EXPECT_TRUE(preflight(wanted, limits).has_value());

  limits.cgroup_max.reset();
  EXPECT_FALSE(preflight(wanted, limits).has_value());
  limits.available = MiB;
  refusal = preflight(wanted, limits);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_NE(refusal->find("the machine has 1MiB available; the largest size that fits is 0B"), std::string::npos);
}

TEST(Preflight, of_this_machine_says_something) {
  const MemoryLimits limits = read_memory_limits();
  ASSERT_TRUE(memory_left(limits).has_value());
  EXPECT_FALSE(preflight({.bytes = MiB}, limits).has_value());
  EXPECT_TRUE(preflight({.bytes = TiB * 4096}, limits).has_value());
}

}  // namespace
}  // namespace terrace
