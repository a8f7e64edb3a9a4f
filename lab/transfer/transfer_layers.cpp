#include "lab/transfer/transfer_layers.hpp"

#include "base/check.hpp"
#include "lab/rounds.hpp"
#include "transfer/device/transfer.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

namespace terrace::tools {
namespace {

using enum Direction;
using Microseconds = std::chrono::duration<double, std::micro>;

struct Load {
  double first_us = 0;
  double all_us = 0;
  std::uint32_t told = 0;
};

Load load(TransferRig& rig, std::span<const SlotPair> pairs, TransferRig::ByLayer by_layer) {
  Load seen;
  const auto begin = std::chrono::steady_clock::now();
  const TransferId id = rig.submit(swap_in, Urgency::request, pairs, by_layer);
  for (bool ended = false; !ended;) {
    const std::span<const TransferEvent> events = rig.await_events();
    const double now = Microseconds{std::chrono::steady_clock::now() - begin}.count();
    for (const TransferEvent& event : events) {
      TERRACE_CHECK(event.id == id);
      if (seen.first_us == 0) seen.first_us = now;
      ended = event.kind == TransferEvent::Kind::finished;
      if (!ended) ++seen.told;
    }
    seen.all_us = now;
  }
  return seen;
}

}  // namespace

LayersRow measure_layers(TransferRig& rig, unsigned rounds) {
  std::vector<SlotPair> pairs;
  const std::uint32_t first_slot = rig.first_slot(swap_in).value();
  for (const std::uint32_t i : scattered_order(rig.blocks())) pairs.push_back({SlotId{first_slot + i}, SlotId{first_slot + i}});
  rig.stamp(swap_in);
  std::vector<double> whole;
  std::vector<double> first;
  std::vector<double> all;
  std::vector<double> first_of_whole;
  std::vector<double> all_of_whole;
  LayersRow row{.block_bytes = rig.block_bytes(), .blocks = rig.blocks(), .layers = rig.layers()};
  for (unsigned round = 0; round < rounds + 1; ++round) {
    const Load at_once = load(rig, pairs, TransferRig::ByLayer::no);
    const Load by_layer = load(rig, pairs, TransferRig::ByLayer::yes);
    if (round == 0) continue;  // the first round touches the memory
    whole.push_back(at_once.all_us);
    first.push_back(by_layer.first_us);
    all.push_back(by_layer.all_us);
    first_of_whole.push_back(by_layer.first_us / at_once.all_us);
    all_of_whole.push_back(by_layer.all_us / at_once.all_us);
    row.told = std::max(row.told, by_layer.told);
  }
  rig.check_stamps(swap_in, pairs);
  row.whole_us = median(whole);
  row.first_us = median(first);
  row.all_us = median(all);
  row.first_of_whole = median(first_of_whole);
  row.all_of_whole = median(all_of_whole);
  return row;
}

}  // namespace terrace::tools
