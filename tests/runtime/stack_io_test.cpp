// What a stack does its file I/O with.

#include "runtime/stack.hpp"

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

}  // namespace
}  // namespace terrace::test
