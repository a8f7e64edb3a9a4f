// The owner of a store: the lock file names it, and only the lock decides.

#include "storage/file/store_owner.hpp"

#include "tests/storage/fixtures.hpp"

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <system_error>

namespace terrace::test {
namespace {

TEST(StoreOwnerText, is_read_back_as_it_was_written) {
  const StoreOwner owner{1234, "terrace replay", "node7", "2026-11-21 10:00:00 UTC"};
  EXPECT_EQ(to_text(owner).size(), owner_text_bytes);
  EXPECT_EQ(parse_owner(to_text(owner)), owner);
  EXPECT_EQ(describe(owner), "process 1234 (terrace replay on node7), since 2026-11-21 10:00:00 UTC");
}

TEST(StoreOwnerText, says_this_process) {
  const StoreOwner owner = this_process();
  EXPECT_EQ(owner.pid, static_cast<std::uint64_t>(::getpid()));
  EXPECT_TRUE(owner.program.starts_with("storage_tests")) << owner.program;
  EXPECT_TRUE(owner.since.starts_with("20")) << owner.since;
  EXPECT_TRUE(owner.since.ends_with(" UTC")) << owner.since;
}

TEST(StoreOwnerText, that_is_no_owners_is_nobody) {
  for (const std::string text : {"", "\n", "pid", "pid \n", "pid x\n", "pid 12x\n", "pid -1\n", "pid 0\n", "program a\npid 1\n",
                                 "pid 99999999999999999999999\n", "\xff\xfe\x00"}) {
    EXPECT_EQ(parse_owner(text), std::nullopt) << text;
  }
  EXPECT_EQ(describe(std::nullopt), "an unknown process");
}

TEST(StoreOwnerText, in_part_is_told_in_part) {
  EXPECT_EQ(describe(parse_owner("pid 7\n")), "process 7");
  EXPECT_EQ(describe(parse_owner("pid 7\nhost h\nnonsense\n      ")), "process 7 (h)");
  EXPECT_EQ(describe(parse_owner("pid 7\nsince noon")), "process 7, since noon");
}

TEST(StoreOwnerText, brings_nothing_unprintable_to_a_terminal) {
  const std::string text = describe(parse_owner("pid 7\nprogram \x1b[2Jevil\x07\xe2\x80\xae\n"));
  EXPECT_EQ(text, "process 7 (?[2Jevil" + std::string(4, '?') + ")");
  const StoreOwner loud{7, std::string(1000, 'x') + "\n", "h\nost", "s"};
  EXPECT_EQ(to_text(loud).size(), owner_text_bytes);
  EXPECT_EQ(parse_owner(to_text(loud))->host, "h?ost");
}

/// A process that opens the store and keeps it until the process is ended.
class OwningProcess {
 public:
  explicit OwningProcess(const FileStoreConfig& config) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) throw std::runtime_error{"pipe"};
    pid_ = ::fork();
    if (pid_ == 0) {
      FaultyCalls calls;
      ThreadsHarness harness{config, calls, 1};
      harness.write(prefix_of(1, 3));
      while (harness.store().unwritten_pages() > 0) harness.drain();
      (void)!::write(ends[1], "!", 1);
      for (;;) ::pause();
    }
    char ready = 0;
    ::close(ends[1]);
    EXPECT_EQ(::read(ends[0], &ready, 1), 1);
    ::close(ends[0]);
  }
  ~OwningProcess() { kill(); }
  OwningProcess(const OwningProcess&) = delete;
  OwningProcess& operator=(const OwningProcess&) = delete;

  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

class OwnedStore : public testing::Test {
 protected:
  std::string refusal() {
    const std::system_error error = thrown_by([this] { const ThreadsHarness harness{config_, calls_}; });
    EXPECT_EQ(error.code(), static_cast<std::error_code>(make_error_code(Errc::in_use)));
    return error.what();
  }

  struct Orphan {
    pid_t owner = 0;
    pid_t child = 0;
  };
  /// Kills a process that has the store and has made a child, which lives on.
  Orphan orphan_of_killed_owner(pid_t (*make_child)()) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) throw std::runtime_error{"pipe"};
    Orphan orphan;
    orphan.owner = ::fork();
    if (orphan.owner == 0) {
      ThreadsHarness harness{config_, calls_, 1};
      if (make_child() == 0) {
        const pid_t self = ::getpid();  // the child tells: the handlers of a fork have run by then
        (void)!::write(ends[1], &self, sizeof self);
      }
      for (;;) ::pause();
    }
    ::close(ends[1]);
    EXPECT_EQ(::read(ends[0], &orphan.child, sizeof orphan.child), static_cast<ssize_t>(sizeof orphan.child));
    ::close(ends[0]);
    ::kill(orphan.owner, SIGKILL);
    ::waitpid(orphan.owner, nullptr, 0);
    return orphan;
  }

  TemporaryDirectory directory_;
  FileStoreConfig config_ = config_for(directory_.path() / "store", 8);
  FaultyCalls calls_;
};

TEST_F(OwnedStore, names_the_child_that_keeps_the_lock_of_an_owner_that_has_ended) {
  const Orphan orphan = orphan_of_killed_owner(::_Fork);  // calls no handlers, so that the child keeps the descriptors
  const std::string why = refusal();
  EXPECT_NE(
      why.find("in use by process " + std::to_string(orphan.child) + ", a child of process " + std::to_string(orphan.owner)),
      std::string::npos)
      << why;
  ::kill(orphan.child, SIGKILL);
  // The child belongs to another process now, and its descriptors may be closed a moment later; the start waits for that.
  ThreadsHarness next{config_, calls_};
}

TEST_F(OwnedStore, of_an_owner_that_forked_is_free_when_the_owner_ends) {
  const Orphan orphan = orphan_of_killed_owner(::fork);
  { ThreadsHarness next{config_, calls_}; }  // although the child lives
  EXPECT_EQ(::kill(orphan.child, SIGKILL), 0);
}

TEST_F(OwnedStore, is_refused_and_its_owner_named_until_that_is_killed) {
  OwningProcess owner{config_};
  const std::string why = refusal();
  EXPECT_NE(why.find("the file store in " + config_.directory.string() + " is in use by process " + std::to_string(owner.pid()) +
                     " (storage_tests"),
            std::string::npos)
      << why;
  EXPECT_NE(why.find("), since 20"), std::string::npos) << why;

  owner.kill();
  // The file still names the dead process, which does no harm.
  std::ifstream file{config_.directory / "lock"};
  const std::string left{std::istreambuf_iterator<char>{file}, {}};
  EXPECT_TRUE(parse_owner(left).has_value());
  ThreadsHarness next{config_, calls_};
  EXPECT_TRUE(next.reads_back(key_of(1)));
  std::ifstream again{config_.directory / "lock"};
  const std::string now{std::istreambuf_iterator<char>{again}, {}};
  EXPECT_EQ(parse_owner(now)->pid, static_cast<std::uint64_t>(::getpid()));
}

TEST_F(OwnedStore, starts_whatever_stands_in_the_lock_file_that_nobody_holds) {
  for (const std::string& text : {std::string{}, std::string{"pid 1\n"}, std::string(9000, '\xff'), std::string(512, '\0')}) {
    {
      ThreadsHarness{config_, calls_}.write({root_block(1)});
    }
    std::ofstream{config_.directory / "lock", std::ios::trunc} << text;
    EXPECT_TRUE((ThreadsHarness{config_, calls_}.reads_back(key_of(1))));
  }
}

TEST_F(OwnedStore, is_refused_whatever_stands_in_the_lock_file) {
  const OwningProcess owner{config_};
  for (const std::string& text : {std::string{}, std::string{"no pid"}, std::string(9000, '\xff')}) {
    std::ofstream{config_.directory / "lock", std::ios::trunc} << text;
    EXPECT_NE(refusal().find("in use by an unknown process"), std::string::npos);
  }
}

}  // namespace
}  // namespace terrace::test
