// What a stack does its file I/O with.

#include "runtime/system/stack.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace terrace::test {
namespace {

class StackIo : public testing::Test {
 protected:
  StackIo() {
    std::string name = (std::filesystem::temp_directory_path() / "terrace-test-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) directory_ = name;
  }
  ~StackIo() override { std::filesystem::remove_all(directory_); }

  StackOptions options(IoChoice io) const {
    StackOptions options;
    options.device_blocks = 8;
    options.host_blocks = 8;
    options.storage = FileStorage{.directory = directory_ / "store", .capacity = MiB, .io = io};
    return options;
  }

  std::filesystem::path directory_;
};

TEST_F(StackIo, is_done_by_what_was_named) {
  EXPECT_EQ(Stack{options(IoChoice::threads)}.io(), "4 threads");
  StackOptions none = options(IoChoice::threads);
  none.storage = NoStorage{};
  EXPECT_EQ(Stack{none}.io(), "");
}

TEST_F(StackIo, is_guarded_unless_told_otherwise) {
  StackOptions guarded = options(IoChoice::threads);
  {
    Stack stack{guarded};
    ASSERT_TRUE(stack.storage_health().has_value());
    EXPECT_EQ(stack.storage_health()->state, StoreState::well);
    EXPECT_NE(dynamic_cast<GuardedStore*>(stack.store()), nullptr);
  }
  guarded.storage_guard.reset();
  Stack stack{guarded};
  EXPECT_FALSE(stack.storage_health().has_value());
  EXPECT_NE(stack.store(), nullptr);
}

TEST_F(StackIo, has_the_host_tiers_memory_registered) {
  if (const auto why = UringIo::unavailable()) GTEST_SKIP() << *why;
  Stack stack{options(IoChoice::automatic)};
  const std::string said = stack.io();
  EXPECT_TRUE(said.starts_with("io_uring, ")) << said;
  EXPECT_TRUE(said.ends_with(" pieces of memory registered") || said.find(" pieces of memory registered (") != std::string::npos)
      << said;
}

TEST_F(StackIo, has_no_pace_with_io_uring) {
  StackOptions paced = options(IoChoice::automatic);
  std::get<FileStorage>(paced.storage).bandwidth = MiB;
  EXPECT_EQ(Stack{paced}.io(), "4 threads, at 1MiB a second");
  std::get<FileStorage>(paced.storage).io = IoChoice::uring;
  EXPECT_THROW(Stack{paced}, std::invalid_argument);
}

TEST_F(StackIo, has_a_store_of_its_own_by_its_name) {
  StackOptions one = options(IoChoice::threads);
  StackOptions two = one;
  std::get<FileStorage>(one.storage).name = "rank-0";
  std::get<FileStorage>(two.storage).name = "rank-1";
  const Stack first{one};
  const Stack second{two};
  EXPECT_THROW(Stack{two}, std::system_error) << "that one is in use";
  for (const char* name : {"rank-0", "rank-1"}) EXPECT_TRUE(std::filesystem::exists(directory_ / "store" / name / "catalog"));
  std::get<FileStorage>(two.storage).name = "Rank";
  EXPECT_THROW(Stack{two}, std::system_error);
}

TEST_F(StackIo, says_that_it_has_lost_a_directory) {
  StackOptions striped = options(IoChoice::threads);
  auto& file = std::get<FileStorage>(striped.storage);
  file.more_directories = {directory_ / "second"};
  file.capacity = capacity_for(64, striped.block_bytes, 2);
  file.stripe_bytes = striped.block_bytes;
  {
    Stack stack{striped};
    EXPECT_EQ(stack.storage_health()->state, StoreState::well);
    EXPECT_EQ(stack.store()->stat().directories, 2U);
  }
  std::filesystem::remove_all(directory_ / "second");
  EXPECT_THROW(Stack{striped}, std::system_error);
  file.accept_lost_directories = true;
  Stack stack{striped};
  const std::optional<StoreHealth> health = stack.storage_health();
  ASSERT_TRUE(health.has_value());
  EXPECT_EQ(health->state, StoreState::degraded);
  EXPECT_EQ(health->lost_directories, std::vector<std::filesystem::path>{directory_ / "second" / "store"});
  EXPECT_NE(health->reason.find((directory_ / "second").string()), std::string::npos) << health->reason;
  EXPECT_EQ(stack.store()->stat().capacity_blocks, 32U);
}

}  // namespace
}  // namespace terrace::test
