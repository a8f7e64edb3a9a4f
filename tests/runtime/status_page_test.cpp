#include "runtime/status_page.hpp"

#include "tests/runtime/fixture.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <system_error>

namespace terrace {
namespace {

/// Whether `look` is true in a process of its own.
bool in_another_process(const std::function<bool()>& look) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(look() ? 0 : 1);
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class StatusPageTest : public test::CacheFixture {
 protected:
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("terrace-status-" + std::to_string(::getpid()));
};

TEST_F(StatusPageTest, shows_other_processes_what_the_cache_is_doing) {
  StatusPage page{file};
  status_page = &page;
  make(test::sizes(8));
  const auto shown = [&](CacheStatus status, std::uint32_t epoch) {
    return in_another_process([&] {
      const Result<StatusView> view = StatusView::open(file);
      return view && !view->read().ended && view->read().status == status && view->read().epoch == Epoch{epoch};
    });
  };
  EXPECT_TRUE(shown(CacheStatus::normal, 0));
  ASSERT_TRUE(acquire(1, test::keys_of({1, 2})).has_value());
  ClearOptions wait;
  wait.wait = true;
  ASSERT_TRUE(commit(1, test::keys_of({1, 2})).has_value());
  cache->clear(wait);
  EXPECT_TRUE(shown(CacheStatus::clearing, 1));
  release(1);
  EXPECT_TRUE(shown(CacheStatus::cleared, 1));
  ASSERT_TRUE(cache->resume().has_value());
  EXPECT_TRUE(shown(CacheStatus::normal, 1));
  cache.reset();  // the page outlives it
}

TEST_F(StatusPageTest, says_that_its_writer_has_ended) {
  std::optional<StatusPage> page{std::in_place, file};
  const Result<StatusView> opened = StatusView::open(file);
  const StatusView& view = opened.value();
  EXPECT_FALSE(view.read().ended);
  page.reset();
  EXPECT_TRUE(view.read().ended);
  EXPECT_EQ(StatusView::open(file).error(), Errc::not_found);
}

TEST_F(StatusPageTest, of_a_writer_that_was_killed_is_taken_over) {
  EXPECT_TRUE(in_another_process([&]() -> bool {
    const auto* const left = new StatusPage{file};
    (void)left;
    ::_exit(0);  // as kill -9 does: nothing is tidied up
  }));
  const Result<StatusView> opened = StatusView::open(file);
  const StatusView& view = opened.value();
  EXPECT_TRUE(view.read().ended);
  StatusPage mine{file};
  EXPECT_FALSE(view.read().ended);
}

TEST_F(StatusPageTest, has_one_writer_and_refuses_what_is_none) {
  StatusPage page{file};
  EXPECT_THROW(StatusPage{file}, std::system_error);
  EXPECT_THROW(StatusPage{"/nowhere/status"}, std::system_error);
  const std::filesystem::path other = file.string() + ".other";
  std::ofstream{other} << std::string(5000, 'x');
  EXPECT_EQ(StatusView::open(other).error(), Errc::corrupt);
  std::ofstream{other, std::ios::trunc} << "terrstat";
  EXPECT_EQ(StatusView::open(other).error(), Errc::corrupt);
  std::filesystem::remove(other);
}

}  // namespace
}  // namespace terrace
