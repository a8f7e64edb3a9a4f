#include "runtime/cache/measure/load_costs.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace terrace {
namespace {

constexpr double prefill = 0.010;  // per unit

UnitCost on_device() { return {}; }
UnitCost in_host(double link) { return {.link_seconds = link}; }
UnitCost in_storage(double read, double link) { return {.read_seconds = read, .link_seconds = link, .reads = 1}; }

std::vector<UnitCost> hit(std::size_t device, std::size_t host, std::size_t storage, double link, double read) {
  std::vector<UnitCost> units(device, on_device());
  units.insert(units.end(), host, in_host(link));
  units.insert(units.end(), storage, in_storage(read, link));
  return units;
}

TEST(UnitsWorthLoading, takes_what_costs_nothing) {
  EXPECT_EQ(units_worth_loading(hit(10, 0, 0, 1, 1), {.read_seconds = 100, .link_seconds = 100}, prefill), 10U);
  EXPECT_EQ(units_worth_loading({}, {}, prefill), 0U);
}

TEST(UnitsWorthLoading, takes_each_tier_only_where_it_beats_computing) {
  EXPECT_EQ(units_worth_loading(hit(3, 4, 5, 0.001, 0.002), {}, prefill), 12U);
  EXPECT_EQ(units_worth_loading(hit(3, 4, 5, 0.001, 0.020), {}, prefill), 7U);
  EXPECT_EQ(units_worth_loading(hit(3, 4, 5, 0.020, 0.001), {}, prefill), 3U);
  // For blocks from storage, both the read and the copy count.
  EXPECT_EQ(units_worth_loading(hit(3, 4, 5, 0.006, 0.006), {}, prefill), 7U);
}

TEST(UnitsWorthLoading, counts_what_others_wait_for) {
  // Loading ten blocks from the host saves 90 ms. That is worth a wait of 80 ms but not of 100 ms. Loading fewer blocks never
  // pays here.
  EXPECT_EQ(units_worth_loading(hit(0, 10, 0, 0.001, 0), {.link_seconds = 0.080}, prefill), 10U);
  EXPECT_EQ(units_worth_loading(hit(0, 10, 0, 0.001, 0), {.link_seconds = 0.100}, prefill), 0U);
  // A queue in front of storage does not matter for blocks from the host.
  EXPECT_EQ(units_worth_loading(hit(0, 10, 10, 0.001, 0.001), {.read_seconds = 10}, prefill), 10U);
}

TEST(UnitsWorthLoading, counts_the_queue_for_what_it_joins) {
  std::vector<UnitCost> units(10);
  for (UnitCost& unit : units) unit.joins_read = unit.joins_link = true;
  EXPECT_EQ(units_worth_loading(units, {.read_seconds = 0.050, .link_seconds = 0.040}, prefill), 10U);
  EXPECT_EQ(units_worth_loading(units, {.read_seconds = 0.050, .link_seconds = 0.060}, prefill), 0U);
}

TEST(UnitsWorthLoading, asks_no_more_of_storage_than_it_is_trusted_with) {
  EXPECT_EQ(units_worth_loading(hit(2, 2, 10, 0.001, 0), {.reads_max = 4}, prefill), 8U);
}

TEST(UnitsWorthLoading, takes_a_dear_beginning_for_a_cheap_end) {
  // In a window group, cheap blocks may come after expensive ones. The sum decides.
  std::vector<UnitCost> units{in_host(0.030), on_device(), on_device(), on_device()};
  EXPECT_EQ(units_worth_loading(units, {}, prefill), 4U);
  units.resize(2);
  EXPECT_EQ(units_worth_loading(units, {}, prefill), 0U);
}

}  // namespace
}  // namespace terrace
