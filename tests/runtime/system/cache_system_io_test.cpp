// How a CacheSystem does its file I/O.

#include "storage/format/format.hpp"
#include "storage/io/uring_io.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "terrace/system.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace terrace::test {
namespace {

class CacheSystemIo : public testing::Test {
 protected:
  CacheSystemIo() {
    std::string name = (std::filesystem::temp_directory_path() / "terrace-test-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) directory_ = name;
  }
  ~CacheSystemIo() override { std::filesystem::remove_all(directory_); }

  CacheSystemOptions options(IoChoice io) const {
    CacheSystemOptions options;
    options.pools[0].device_blocks = 8;
    options.pools[0].host_blocks = 8;
    options.storage = FileStorage{.directories = {directory_ / "store"}, .capacity = MiB, .io = io};
    return options;
  }

  std::filesystem::path directory_;
};

TEST_F(CacheSystemIo, is_done_by_what_was_named) {
  EXPECT_EQ(CacheSystem{options(IoChoice::threads)}.io(), "4 threads");
  CacheSystemOptions none = options(IoChoice::threads);
  none.storage = NoStorage{};
  EXPECT_EQ(CacheSystem{none}.io(), "");
}

TEST_F(CacheSystemIo, is_resilient_unless_told_otherwise) {
  CacheSystemOptions guarded = options(IoChoice::threads);
  {
    CacheSystem stack{guarded};
    ASSERT_TRUE(stack.storage_health().has_value());
    EXPECT_EQ(stack.storage_health()->state, StoreState::well);
    EXPECT_NE(dynamic_cast<ResilientStore*>(stack.store()), nullptr);
  }
  guarded.storage_guard.reset();
  CacheSystem stack{guarded};
  EXPECT_FALSE(stack.storage_health().has_value());
  EXPECT_NE(stack.store(), nullptr);
}

TEST_F(CacheSystemIo, has_the_host_tiers_memory_registered) {
  if (const auto why = UringIo::unavailable()) GTEST_SKIP() << *why;
  CacheSystem stack{options(IoChoice::automatic)};
  const std::string said = stack.io();
  EXPECT_TRUE(said.starts_with("io_uring, ")) << said;
  EXPECT_TRUE(said.ends_with(" pieces of memory registered") || said.find(" pieces of memory registered (") != std::string::npos)
      << said;
}

TEST_F(CacheSystemIo, has_no_pace_with_io_uring) {
  CacheSystemOptions paced = options(IoChoice::automatic);
  std::get<FileStorage>(paced.storage).bandwidth = per_second(MiB);
  EXPECT_EQ(CacheSystem{paced}.io(), "4 threads, at 1MiB a second");
  std::get<FileStorage>(paced.storage).io = IoChoice::uring;
  EXPECT_THROW(CacheSystem{paced}, std::invalid_argument);
}

TEST_F(CacheSystemIo, has_a_store_of_its_own_by_its_name) {
  CacheSystemOptions one = options(IoChoice::threads);
  CacheSystemOptions two = one;
  std::get<FileStorage>(one.storage).name = "rank-0";
  std::get<FileStorage>(two.storage).name = "rank-1";
  const CacheSystem first{one};
  const CacheSystem second{two};
  EXPECT_THROW(CacheSystem{two}, std::system_error) << "that one is in use";
  for (const char* name : {"rank-0", "rank-1"}) EXPECT_TRUE(std::filesystem::exists(directory_ / "store" / name / "catalog"));
  std::get<FileStorage>(two.storage).name = "Rank";
  EXPECT_THROW(CacheSystem{two}, std::system_error);
}

TEST_F(CacheSystemIo, says_that_it_has_lost_a_directory) {
  CacheSystemOptions striped = options(IoChoice::threads);
  auto& file = std::get<FileStorage>(striped.storage);
  file.directories.push_back(directory_ / "second");
  file.capacity = capacity_for(64, striped.pools[0].block_bytes, 2);
  file.stripe_bytes = striped.pools[0].block_bytes;
  {
    CacheSystem stack{striped};
    EXPECT_EQ(stack.storage_health()->state, StoreState::well);
    EXPECT_EQ(stack.store()->stat().directories, 2U);
  }
  std::filesystem::remove_all(directory_ / "second");
  EXPECT_THROW(CacheSystem{striped}, std::system_error);
  file.accept_lost_directories = true;
  CacheSystem stack{striped};
  const std::optional<StoreHealth> health = stack.storage_health();
  ASSERT_TRUE(health.has_value());
  EXPECT_EQ(health->state, StoreState::degraded);
  EXPECT_EQ(health->lost_directories, std::vector<std::filesystem::path>{directory_ / "second" / "store"});
  EXPECT_NE(health->reason.find((directory_ / "second").string()), std::string::npos) << health->reason;
  EXPECT_EQ(stack.store()->stat().capacity_blocks, 32U);
}

}  // namespace
}  // namespace terrace::test
