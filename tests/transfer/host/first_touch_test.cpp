#include "transfer/host/first_touch.hpp"
#include "transfer/host/mapping.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace terrace {
namespace {

std::size_t pages_there(std::span<std::byte> bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> there((bytes.size() + page - 1) / page);
  EXPECT_EQ(::mincore(bytes.data(), bytes.size(), there.data()), 0);
  return static_cast<std::size_t>(std::ranges::count_if(there, [](unsigned char flags) { return (flags & 1) != 0; }));
}

TEST(FirstTouch, brings_every_page_on_however_many_threads_and_in_pages_of_either_size) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const Bytes size{count(MiB * 100) + page};  // thirteen slices; the last one is short
  for (const unsigned threads : {0U, 1U, 2U, 3U}) {
    for (const HugePages huge : {HugePages::yes, HugePages::no}) {
      const Mapping mapping = Mapping::reserve(size, "a test");
      EXPECT_EQ(pages_there(mapping.bytes()), 0U);
      TouchOptions options;
      options.threads = threads;
      options.huge_pages = huge;
      options.count_huge = true;
      const FirstTouch got = first_touch(mapping.bytes(), options);
      EXPECT_EQ(got.error, 0);
      EXPECT_EQ(pages_there(mapping.bytes()), count(size) / page);
      EXPECT_LE(got.huge, size);
      EXPECT_TRUE(huge == HugePages::yes || got.huge == Bytes{});
      EXPECT_EQ(mapping.bytes().back(), std::byte{0});
    }
  }
}

TEST(FirstTouch, ends_early_when_it_is_cancelled) {
  const Mapping mapping = Mapping::reserve(MiB * 64, "a test");
  const std::atomic<bool> cancel{true};
  TouchOptions options;
  options.cancel = &cancel;
  EXPECT_EQ(first_touch(mapping.bytes(), options).error, ECANCELED);
  EXPECT_EQ(pages_there(mapping.bytes()), 0U);
}

TEST(FirstTouch, says_whether_the_pages_are_on_the_node) {
  const Mapping mapping = Mapping::reserve(MiB * 4, "a test");
  TouchOptions options;
  options.numa_node = 0;
  const FirstTouch got = first_touch(mapping.bytes(), options);
  ASSERT_EQ(got.error, 0);
  // A container may forbid both setting and reading the NUMA node.
  if (!got.node_asked || !got.share_on_node) GTEST_SKIP() << "the kernel does not say";
  EXPECT_EQ(*got.share_on_node, 1.0);
}

TEST(FirstTouch, does_without_a_node_that_is_not_there) {
  const Mapping mapping = Mapping::reserve(MiB * 4, "a test");
  for (const unsigned node : {1000U, 5000U}) {
    TouchOptions options;
    options.numa_node = node;
    const FirstTouch got = first_touch(mapping.bytes(), options);
    EXPECT_EQ(got.error, 0);
    EXPECT_FALSE(got.node_asked);
  }
}

}  // namespace
}  // namespace terrace
