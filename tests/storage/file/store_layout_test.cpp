// The places of the slots of a store, striped and not, compared with a table that is filled slot by slot.

#include "storage/format/format.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace terrace::test {
namespace {

/// Distributes stripes to directories one by one, and fills one file after the other.
std::map<std::uint32_t, std::pair<std::uint32_t, std::uint64_t>> dealt_out(const StoreLayout& layout) {
  std::map<std::uint32_t, std::pair<std::uint32_t, std::uint64_t>> places;
  std::vector<std::uint32_t> used(layout.directories, 0);
  std::uint32_t directory = 0;
  std::uint32_t in_stripe = 0;
  for (std::uint32_t slot = 0; slot < layout.slots; ++slot) {
    if (layout.directories > 1 && in_stripe == layout.stripe_slots) {
      directory = (directory + 1) % layout.directories;
      in_stripe = 0;
    }
    const std::uint32_t place = used[directory]++;
    ++in_stripe;
    places[slot] = {place / layout.slots_per_file * layout.directories + directory,
                    place % layout.slots_per_file * layout.block_bytes};
  }
  return places;
}

TEST(StoreLayout, stripes_are_dealt_out_in_turn_and_fill_their_files_to_the_end) {
  constexpr std::uint64_t block = 4096;
  for (std::uint32_t directories = 1; directories <= 4; ++directories) {
    for (std::uint32_t stripe = 1; stripe <= 3; ++stripe) {
      for (std::uint32_t stripes_per_file = 1; stripes_per_file <= 3; ++stripes_per_file) {
        for (std::uint32_t slots = 1; slots <= 70; ++slots) {
          SCOPED_TRACE(testing::Message() << directories << " directories, stripes of " << stripe << ", files of "
                                          << stripes_per_file << ", slots " << slots);
          const StoreLayout layout{block, slots, stripe * stripes_per_file, directories, stripe};
          std::map<std::uint32_t, std::uint64_t> ends;
          std::vector<std::uint32_t> in(directories, 0);
          for (const auto& [slot, place] : dealt_out(layout)) {
            ASSERT_EQ(layout.file_of(SlotId{slot}), place.first) << "slot " << slot;
            ASSERT_EQ(layout.offset_of(SlotId{slot}), place.second) << "slot " << slot;
            ASSERT_EQ(layout.directory_of(SlotId{slot}), place.first % directories);
            ++in[place.first % directories];
            std::uint64_t& end = ends[place.first];
            end = std::max(end, place.second + block);
          }
          ASSERT_EQ(layout.data_files(), ends.size());
          ASSERT_EQ(ends.rbegin()->first + 1, ends.size()) << "files are numbered without gaps";
          for (const auto& [file, end] : ends) ASSERT_EQ(count(layout.data_file_bytes(file)), end) << "file " << file;
          for (std::uint32_t n = 0; n < directories; ++n) ASSERT_EQ(layout.slots_in(n), in[n]) << "directory " << n;
        }
      }
    }
  }
}

TEST(StoreLayout, a_run_ends_where_the_next_slot_lies_elsewhere) {
  for (const auto& [directories, per_file, stripe] : {std::tuple{1U, 5U, 0U}, {2U, 6U, 3U}, {3U, 2U, 1U}}) {
    const StoreLayout layout{4096, 100, per_file, directories, stripe};
    for (std::uint32_t slot = 0; slot + 1 < layout.slots; ++slot) {
      const SlotId here{slot};
      const SlotId next{slot + 1};
      const bool adjoins =
          layout.file_of(here) == layout.file_of(next) && layout.offset_of(next) == layout.offset_of(here) + 4096;
      EXPECT_EQ(layout.end_of_run(here) > next.value(), adjoins) << slot;
    }
  }
}

TEST(StoreLayout, capacities_and_slots_are_each_others_inverse_however_many_directories) {
  for (const std::uint32_t directories : {1U, 2U, 3U, 64U}) {
    for (const std::uint32_t slots : {1U, 31U, 32U, 33U, 1000U, 99999U}) {
      const Bytes capacity = capacity_for(slots, Bytes{65536}, directories);
      EXPECT_EQ(slots_within(capacity, 65536, directories), slots);
      EXPECT_EQ(slots_within(capacity - Bytes{1}, 65536, directories), slots - 1);
    }
  }
}

}  // namespace
}  // namespace terrace::test
