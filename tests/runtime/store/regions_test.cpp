// Memory of an engine and of a process that blocks are moved from and to.

#include "terrace/host_memory.hpp"
#include "tests/runtime/store/child.hpp"
#include "tests/storage/harness.hpp"
#include "transfer/host/host_arena.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace terrace::test {
namespace {

std::byte* address(std::uintptr_t number) { return reinterpret_cast<std::byte*>(number); }

TEST(HostRows, are_checked_for_any_numbers) {
  const std::array<std::uintptr_t, 4> addresses{0, 1, 4096, std::numeric_limits<std::uintptr_t>::max()};
  const std::array<std::uint32_t, 4> counts{0, 1, 7, ~0U};
  const std::array<std::uint64_t, 6> sizes{0, 1, 4096, std::uint64_t{1} << 33, std::uint64_t{1} << 63, ~std::uint64_t{0}};
  for (const std::uintptr_t at : addresses) {
    for (const std::uint32_t count : counts) {
      for (const std::uint64_t bytes : sizes) {
        for (const std::uint64_t stride : sizes) {
          const HostRows rows{address(at), count, Bytes{bytes}, Bytes{stride}};
          const std::uint64_t distance = stride == 0 ? bytes : stride;
          const bool fits = at != 0 && count > 0 && bytes > 0 && distance >= bytes &&
                            static_cast<unsigned __int128>(distance) * (count - 1) + bytes <= ~std::uint64_t{0} - at;
          EXPECT_EQ(check_rows(rows).has_value(), fits) << at << ' ' << count << ' ' << bytes << ' ' << stride;
        }
      }
    }
  }
}

TEST(PrivateRegion, has_aligned_rows_of_zeros) {
  const PrivateRegion region{3, Bytes{5000}};
  EXPECT_EQ(region.rows().count, 3U);
  EXPECT_EQ(region.rows().row(1).size(), 5000U);
  EXPECT_EQ(region.rows().stride(), Bytes{8192});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region.rows().row(2).data()) % 4096, 0U);
  EXPECT_TRUE(std::ranges::all_of(region.rows().row(2), [](std::byte byte) { return byte == std::byte{0}; }));
  EXPECT_THROW(PrivateRegion(0, Bytes{1}), std::invalid_argument);
  EXPECT_THROW(PrivateRegion(1, Bytes{0}), std::invalid_argument);
  EXPECT_THROW(PrivateRegion(~0U, TiB), std::invalid_argument);
  EXPECT_THROW(PrivateRegion(1U << 16, GiB), std::runtime_error);
}

struct Observer final : HostChunkObserver {
  Result<void> chunk_added(const HostChunk& chunk) override {
    added.push_back(chunk);
    return {};
  }
  void chunk_removing(const HostChunk&) override { ++removed; }
  std::vector<HostChunk> added;
  int removed = 0;
};

HostArenaOptions arena_in(const HostRows& rows, std::uint32_t slots) {
  HostArenaOptions options;
  options.slots = options.ready_slots = slots;
  options.block_bytes = rows.row_bytes;
  options.chunk_bytes = rows.row_bytes * 2;
  options.rows = rows;
  return options;
}

TEST(HostArenaInRows, puts_each_slot_into_its_row_and_leaves_the_rest_alone) {
  std::vector<std::byte> memory(7 * 200, std::byte{5});
  const HostRows rows{memory.data(), 7, Bytes{100}, Bytes{200}};
  const auto owner = std::make_shared<int>(1);
  Observer observer;
  {
    HostArenaOptions options = arena_in(rows, 5);
    options.rows_owner = owner;
    HostArena arena{std::move(options)};
    ASSERT_TRUE(arena.observe(observer).has_value());
    EXPECT_EQ(owner.use_count(), 2);
    for (std::uint32_t slot = 0; slot < 5; ++slot) {
      EXPECT_EQ(arena.block(SlotId{slot}).data(), rows.row(slot).data());
      EXPECT_EQ(arena.block(SlotId{slot}).size(), 100U);
      EXPECT_EQ(arena.contiguous_from(SlotId{slot}), 1U);
    }
    EXPECT_TRUE(arena.holds({SlotId{0}, 5}));
    EXPECT_FALSE(arena.holds({SlotId{0}, 6}));
    ASSERT_EQ(observer.added.size(), 3U);
    EXPECT_EQ(observer.added[0].slots, (SlotSpan{SlotId{0}, 2}));
    EXPECT_EQ(observer.added[0].bytes.data(), memory.data());
    EXPECT_EQ(observer.added[0].bytes.size(), 300U);
    EXPECT_EQ(observer.added[2].slots, (SlotSpan{SlotId{4}, 1}));

    // One more row is there after the chunk of row 4, which cannot become larger.
    EXPECT_EQ(arena.grow(2).error(), Errc::never_fits);
    ASSERT_TRUE(arena.grow(1).has_value());
    std::vector<ArenaEvent> events;
    while (events.empty()) arena.poll(events);
    EXPECT_EQ(events[0].kind, ArenaEvent::Kind::warm);
    EXPECT_EQ(arena.block(SlotId{6}).data(), rows.row(6).data());
    EXPECT_EQ(arena.grow(1).error(), Errc::never_fits);

    arena.give_back(3);
    events.clear();
    while (events.empty()) arena.poll(events);
    EXPECT_EQ(events[0].kind, ArenaEvent::Kind::gone);
  }
  EXPECT_EQ(observer.removed, 4);
  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_TRUE(std::ranges::all_of(memory, [](std::byte byte) { return byte == std::byte{5}; }));
}

TEST(HostArenaInRows, without_gaps_is_contiguous) {
  std::vector<std::byte> memory(8 * 64);
  HostArena arena{arena_in({memory.data(), 8, Bytes{64}}, 8)};
  EXPECT_EQ(arena.contiguous_from(SlotId{2}), 2U) << "up to the end of the chunk";
  EXPECT_EQ(arena.block(SlotId{7}).data(), memory.data() + 7 * 64);
}

TEST(HostArenaInRows, refuses_rows_that_cannot_hold_its_slots) {
  std::vector<std::byte> memory(8 * 64);
  const HostRows rows{memory.data(), 8, Bytes{64}};
  EXPECT_THROW(HostArena{arena_in(rows, 9)}, std::invalid_argument);
  EXPECT_THROW(HostArena{arena_in({nullptr, 8, Bytes{64}}, 8)}, std::invalid_argument);
  EXPECT_THROW(HostArena{arena_in({memory.data(), 8, Bytes{64}, Bytes{63}}, 8)}, std::invalid_argument);
  HostArenaOptions other_size = arena_in(rows, 8);
  other_size.block_bytes = Bytes{32};
  EXPECT_THROW(HostArena{std::move(other_size)}, std::invalid_argument);
}

constexpr SharedLayout layout{.rows = 4, .row_bytes = Bytes{5000}};

std::string hex(const RegionNonce& nonce) {
  std::string text;
  for (const std::byte byte : nonce) {
    text.push_back("0123456789abcdef"[std::to_integer<unsigned>(byte) / 16]);
    text.push_back("0123456789abcdef"[std::to_integer<unsigned>(byte) % 16]);
  }
  return text;
}

/// Expects that the call throws this error, with these words in its sentence.
void expect_error(const std::function<void()>& call, std::error_code error, const std::string& words) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected: " << words;
  } catch (const std::system_error& thrown) {
    EXPECT_EQ(thrown.code(), error) << thrown.what();
    EXPECT_NE(std::string{thrown.what()}.find(words), std::string::npos) << thrown.what();
  }
}

std::error_code code(Errc error) { return make_error_code(error); }
std::error_code errno_of(int error) { return {error, std::generic_category()}; }

SharedRegion create_in(const TemporaryDirectory& directory, const SharedLayout& wanted = layout) {
  return SharedRegion::create("region", wanted, MemoryCheck::yes, directory.path());
}

TEST(SharedRegion, is_the_same_memory_in_another_process) {
  const TemporaryDirectory directory;
  const SharedRegion region = create_in(directory);
  EXPECT_EQ(region.rows().stride(), Bytes{8192});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region.rows().address) % 4096, 0U);
  std::ranges::fill(region.rows().row(1), std::byte{41});
  Child child{{"join", directory.path().string(), "region", hex(region.nonce())}};
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(std::ranges::all_of(region.rows().row(1), [](std::byte byte) { return byte == std::byte{42}; }));
  EXPECT_EQ(region.rows().row(2)[0], std::byte{0});
}

TEST(SharedRegion, is_joined_by_a_descriptor_without_a_name) {
  const SharedRegion region = SharedRegion::create(layout);
  const int passed = ::dup(region.descriptor());
  SharedRegion joined = SharedRegion::join(passed, region.nonce(), layout);
  ::close(passed);
  joined.rows().row(3)[4999] = std::byte{9};
  EXPECT_EQ(region.rows().row(3)[4999], std::byte{9});
  EXPECT_TRUE(joined.creator_lives());
  EXPECT_NE(::ftruncate(joined.descriptor(), 0), 0) << "nobody makes it shorter";
}

TEST(SharedRegion, refuses_a_joiner_with_another_nonce_or_layout) {
  const TemporaryDirectory directory;
  const SharedRegion region = create_in(directory);
  const auto join = [&](const RegionNonce& nonce, const SharedLayout& wanted) {
    return [&, nonce, wanted] { static_cast<void>(SharedRegion::join("region", nonce, wanted, directory.path())); };
  };
  RegionNonce other = region.nonce();
  other[15] ^= std::byte{1};
  expect_error(join(other, layout), code(Errc::incompatible), "its nonce is another one");
  SharedLayout wanted = layout;
  wanted.rows = 5;
  expect_error(join(region.nonce(), wanted), code(Errc::incompatible), "it has 4 rows, and 5 are expected");
  wanted = layout;
  wanted.row_bytes = Bytes{4999};
  expect_error(join(region.nonce(), wanted), code(Errc::incompatible), "it has rows of 5000, and 4999 are expected");
  wanted = layout;
  wanted.row_stride = Bytes{12288};
  expect_error(join(region.nonce(), wanted), code(Errc::incompatible), "it has a row stride of 8192, and 12288 are expected");
  wanted = layout;
  wanted.digest[0] = std::byte{1};
  expect_error(join(region.nonce(), wanted), code(Errc::incompatible), "its layout digest is another one");
}

TEST(SharedRegion, refuses_a_joiner_when_there_is_none_or_its_file_is_too_small) {
  const TemporaryDirectory directory;
  const auto join = [&](const RegionNonce& nonce) {
    return [&directory, nonce] { static_cast<void>(SharedRegion::join("region", nonce, layout, directory.path())); };
  };
  expect_error(join({}), code(Errc::not_found), "there is none");
  const SharedRegion region = create_in(directory);
  std::filesystem::resize_file(directory.path() / "region", 4096 + 3 * 8192);
  expect_error(join(region.nonce()), code(Errc::incompatible), "its file is too small: 28672 bytes, and 36864 are needed");
}

TEST(SharedRegion, refuses_files_that_are_no_regions_or_that_others_may_open) {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "region";
  std::ofstream{path} << "something else";
  std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const auto join = [&] { static_cast<void>(SharedRegion::join("region", {}, layout, directory.path())); };
  expect_error(join, code(Errc::incompatible), "it is no shared region");
  expect_error([&] { static_cast<void>(create_in(directory)); }, code(Errc::incompatible), "that is no shared region");
  EXPECT_TRUE(std::filesystem::exists(path)) << "it is left alone";
  std::filesystem::permissions(path, std::filesystem::perms::others_read, std::filesystem::perm_options::add);
  expect_error(join, errno_of(EPERM), "it is not a file of this user alone");
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/zero", path);
  expect_error(join, errno_of(ELOOP), "cannot be opened");
}

TEST(SharedRegion, of_a_creator_that_was_killed_is_refused_and_replaced) {
  const TemporaryDirectory directory;
  Child child{{"create", directory.path().string(), "region"}};
  ASSERT_EQ(child.line(), "ready");
  expect_error([&] { static_cast<void>(create_in(directory)); }, code(Errc::in_use), "another process that is alive");
  EXPECT_EQ(SharedRegion::remove_stale("region", directory.path()).error(), Errc::in_use);
  child.kill();
  EXPECT_TRUE(std::filesystem::exists(directory.path() / "region"));

  // The nonce is in the file; a joiner that had it is told that the creator has ended.
  RegionNonce nonce{};
  std::ifstream file{directory.path() / "region", std::ios::binary};
  file.seekg(40);
  file.read(reinterpret_cast<char*>(nonce.data()), static_cast<std::streamsize>(nonce.size()));
  expect_error([&] { static_cast<void>(SharedRegion::join("region", nonce, layout, directory.path())); }, code(Errc::not_found),
               "has ended");

  const SharedRegion region = create_in(directory);
  EXPECT_NE(region.nonce(), nonce);
  static_cast<void>(SharedRegion::join("region", region.nonce(), layout, directory.path()));
}

TEST(SharedRegion, that_does_not_fit_is_refused_and_leaves_nothing) {
  const std::filesystem::path mount = "/dev/shm";
  const std::string name = "terrace-test-" + std::to_string(::getpid());
  const std::uint64_t all = std::filesystem::space(mount).capacity;
  if (all == 0) GTEST_SKIP() << "/dev/shm has no limit here";
  const auto rows = static_cast<std::uint32_t>(all / count(MiB) + 1024);
  expect_error([&] { static_cast<void>(SharedRegion::create(name, {.rows = rows, .row_bytes = MiB}, MemoryCheck::no, mount)); },
               errno_of(ENOSPC), "no room for");
  EXPECT_FALSE(std::filesystem::exists(mount / name));
}

TEST(SharedRegion, that_is_stale_is_removed_by_name) {
  const TemporaryDirectory directory;
  EXPECT_EQ(SharedRegion::remove_stale("region", directory.path()).error(), Errc::not_found);
  EXPECT_EQ(SharedRegion::remove_stale("../region", directory.path()).error(), Errc::invalid_argument);
  Child child{{"create", directory.path().string(), "region"}};
  ASSERT_EQ(child.line(), "ready");
  child.kill();
  EXPECT_TRUE(SharedRegion::remove_stale("region", directory.path()).has_value());
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(SharedRegion, lives_in_its_joiners_when_its_creator_has_ended) {
  const TemporaryDirectory directory;
  std::optional<SharedRegion> region = create_in(directory);
  const SharedRegion joined = SharedRegion::join("region", region->nonce(), layout, directory.path());
  region->rows().row(0)[7] = std::byte{3};
  EXPECT_TRUE(joined.creator_lives());
  region.reset();
  EXPECT_FALSE(joined.creator_lives());
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "region"));
  EXPECT_EQ(joined.rows().row(0)[7], std::byte{3});
}

TEST(SharedRegion, can_lose_its_name_when_all_have_joined) {
  const TemporaryDirectory directory;
  SharedRegion region = create_in(directory);
  region.unlink();
  region.unlink();
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  region.rows().row(0)[0] = std::byte{1};
  static_cast<void>(SharedRegion::join(region.descriptor(), region.nonce(), layout));
}

TEST(SharedRegion, leaves_a_name_that_another_region_has_now) {
  const TemporaryDirectory directory;
  std::optional<SharedRegion> first = create_in(directory);
  std::filesystem::remove(directory.path() / "region");
  const SharedRegion second = create_in(directory);
  first.reset();
  EXPECT_TRUE(std::filesystem::exists(directory.path() / "region"));
}

TEST(SharedRegion, refuses_impossible_layouts_and_names) {
  const TemporaryDirectory directory;
  EXPECT_THROW(static_cast<void>(SharedRegion::create({})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(SharedRegion::create({.rows = 1})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(SharedRegion::create({.rows = 2, .row_bytes = Bytes{100}, .row_stride = Bytes{99}})),
               std::invalid_argument);
  EXPECT_THROW(static_cast<void>(SharedRegion::create({.rows = ~0U, .row_bytes = Bytes{~std::uint64_t{0}}})),
               std::invalid_argument);
  EXPECT_THROW(static_cast<void>(SharedRegion::create({.rows = ~0U, .row_bytes = MiB, .row_stride = TiB})),
               std::invalid_argument);
  EXPECT_THROW(static_cast<void>(SharedRegion::create({.rows = 1U << 16, .row_bytes = GiB})), std::runtime_error);
  const std::vector<std::string> names{"", ".", "..", ".hidden", "a/b", "a b", std::string(201, 'a')};
  for (const std::string& name : names) {
    EXPECT_THROW(static_cast<void>(SharedRegion::create(name, layout, MemoryCheck::yes, directory.path())),
                 std::invalid_argument);
    EXPECT_THROW(static_cast<void>(SharedRegion::join(name, {}, layout, directory.path())), std::invalid_argument);
  }
  EXPECT_THROW(static_cast<void>(SharedRegion::join(-1, {}, layout)), std::system_error);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace terrace::test
