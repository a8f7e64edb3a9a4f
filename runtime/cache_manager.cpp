#include "runtime/cache_manager.hpp"

#include "base/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace terrace {

CacheManager::CacheManager(const ManagerConfig& config)
    : config_{config},
      residency_{config},
      departures_{residency_, stats_},
      swap_outs_{config, residency_, departures_, actions_},
      persists_{residency_, departures_, swap_outs_, actions_, stats_},
      back_ups_{config, residency_, persists_, stats_},
      host_room_{config, residency_, departures_, swap_outs_, persists_},
      device_room_{config, residency_, departures_, host_room_, persists_},
      resizing_{config, residency_, device_room_},
      room_ahead_{config, residency_, device_room_, host_room_, stats_},
      loads_{config, residency_, departures_, host_room_, actions_, stats_} {
  TERRACE_CHECK(config.device_blocks > (config.null_block ? 1U : 0U));
  TERRACE_CHECK(!config.storage || config.staging_blocks > 0);
  device_room_.set_handler(
      [this](std::uint32_t index, std::span<const SlotId> slots, bool last) { on_served(index, slots, last); });
  loads_.set_handlers([this](std::uint32_t index, Loads::LoadId load) { on_load_ended(index, load); },
                      [this](BlockRef missing) { on_load_failed(missing); });
}

// ---- what happened elsewhere ---------------------------------------------------------------------------------------------

void CacheManager::on_transfer(const TransferEvent& event) {
  if (swap_outs_.on_event(event)) return;
  TERRACE_CHECK(loads_.on_event(event));
}

void CacheManager::on_store(const StoreEvent& event) {
  switch (event.kind) {
    case StoreEvent::Kind::read: loads_.on_read(event.token, event.error); break;
    case StoreEvent::Kind::written: persists_.on_written(static_cast<std::uint32_t>(event.token), event.error); break;
    case StoreEvent::Kind::removed:
    case StoreEvent::Kind::evicted: {
      const auto block = residency_.stored_block(static_cast<std::uint32_t>(event.write_token));
      if (!block || !residency_.stored(*block) || residency_.tree().key(*block) != event.key) break;
      ++stats_.stored_evicted;
      persists_.on_gone(*block);
      break;
    }
    case StoreEvent::Kind::contains: break;
  }
}

void CacheManager::on_time(TimePoint now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const Index index = deadlines_.begin()->second;
    fail(index, Errc::deadline_exceeded);
  }
  for (auto pin = pins_.begin(); pin != pins_.end();) {
    const auto next = std::next(pin);
    if (pin->second.until <= now) end_pin(pin);
    pin = next;
  }
}

void CacheManager::settle() {
  for (bool again = true; again;) {
    again = !to_replan_.empty();
    replan_failed();
    again |= host_room_.pump();
    again |= device_room_.pump();
    again |= persists_.pump();
    again |= loads_.pump();
    again |= sweep_hidden();
    again |= resizing_.pump();
    again |= room_ahead_.pump();
  }
  flush();
}

void CacheManager::flush() {
  swap_outs_.flush(last_job_);
  loads_.flush(last_job_);
}

void CacheManager::remember_freed() {
  // An instant copy's source may be free, for the books, before its bytes are read.
  TERRACE_CHECK(!config_.instant_copies);
  residency_.pool(Tier::device).remember_freed();
  residency_.pool(Tier::host).remember_freed();
}

void CacheManager::take_freed(std::vector<SlotId>& device, std::vector<SlotId>& arena) {
  residency_.pool(Tier::device).take_freed(device);
  residency_.pool(Tier::host).take_freed(arena);
}

void CacheManager::overwritten_by(std::span<const SlotId> device, Fence fence) {
  for (const SlotId slot : device) residency_.pool(Tier::device).raise_fence(slot, fence);
  // The plans at hand were made before.
  for (TransferPlan& plan : actions_.plans) plan.after = std::max(plan.after, fence);
}

std::vector<std::optional<std::uint32_t>> CacheManager::restore(std::span<const StoredBlock> blocks) {
  PrefixTree& tree = residency_.tree();
  boost::unordered_flat_map<BlockKey, Path, std::hash<BlockKey>> paths;
  std::vector<std::optional<std::uint32_t>> numbers;
  numbers.reserve(blocks.size());
  for (const StoredBlock& block : blocks) {
    Path parent;
    if (block.depth > 0) {
      const auto found = paths.find(block.parent);
      if (found == paths.end()) {
        numbers.emplace_back();
        continue;
      }
      parent = found->second;
    }
    const Path path = tree.extend(parent, std::span{&block.key, 1}, block.name_space);
    if (residency_.copy(path.last(), Tier::storage).present()) {
      numbers.emplace_back();
      continue;
    }
    tree.pin(path);
    numbers.emplace_back(residency_.begin_store(path.last()));
    residency_.publish_stored(path.last());
    tree.unpin(path);
    paths.emplace(block.key, path);
  }
  return numbers;
}

// ---- what to know --------------------------------------------------------------------------------------------------------

TimePoint CacheManager::next_deadline() const {
  TimePoint next = deadlines_.empty() ? never : deadlines_.begin()->first;
  for (const auto& [id, pin] : pins_) next = std::min(next, pin.until);
  return next;
}

bool CacheManager::has_pending_work() const {
  return !swap_outs_.idle() || !persists_.idle() || !host_room_.idle() || !device_room_.idle() || !loads_.idle();
}

std::string CacheManager::describe_pending() const {
  return fmt::format("{} requests; swap-outs {}, loads {}, persists {}, waiting for host room {}, for device room {}",
                     by_id_.size(), swap_outs_.idle() ? "idle" : "under way", loads_.idle() ? "idle" : "under way",
                     persists_.in_flight(), host_room_.idle() ? "nobody" : "some", device_room_.promised());
}

Usage CacheManager::usage(Tier tier) const {
  TERRACE_CHECK(tier != Tier::storage);
  Usage usage;
  usage.evictable = residency_.tree().unpinned(Residency::plane(tier));
  if (tier == Tier::device) {
    const SlotPool& device = residency_.pool(Tier::device);
    usage.blocks = device.capacity() - device.count(SlotState::null);
    usage.free = device.count(SlotState::free);
    usage.promised = device_room_.promised();
  } else {
    usage.blocks = residency_.host_blocks();
    usage.free = residency_.host_free();
  }
  return usage;
}

std::string CacheManager::describe_tree(std::size_t lines_max) const {
  const PrefixTree& tree = residency_.tree();
  std::string text = fmt::format("{} blocks in {} nodes; device {}, host {}, storage {}\n", tree.blocks(), tree.node_count(),
                                 tree.resident(Residency::plane(Tier::device)), tree.resident(Residency::plane(Tier::host)),
                                 tree.resident(Residency::plane(Tier::storage)));
  std::size_t lines = 0;
  tree.for_each_node([&](Run run) {
    if (lines++ >= lines_max) return;
    const auto here = [&](Tier tier) {
      return std::ranges::count_if(tree.copies(run, Residency::plane(tier)), [](Copy copy) { return copy.present(); });
    };
    const BlockRef last{run.node, run.end - 1};
    text += fmt::format("  blocks {} to {}, from {:.12}: device {}, host {}, storage {}; last use {}{}{}\n", run.begin,
                        run.end - 1, to_hex(tree.key({run.node, run.begin})), here(Tier::device), here(Tier::host),
                        here(Tier::storage), tree.last_use(last), tree.pinned({run.node, run.begin}) ? ", in use" : "",
                        tree.hidden(last) ? ", cleared" : "");
  });
  if (lines > lines_max) text += fmt::format("  and {} nodes more\n", lines - lines_max);
  return text;
}

std::uint64_t CacheManager::readers() const {
  return residency_.pool(Tier::device).readers_total() + residency_.pool(Tier::host).readers_total();
}

void CacheManager::check_invariants() const {
  residency_.check_invariants();
  const SlotPool& device = residency_.pool(Tier::device);
  const SlotPool& arena = residency_.pool(Tier::host);
  TERRACE_CHECK(device.ledger().balanced());
  TERRACE_CHECK(arena.ledger().balanced());

  std::uint64_t held = 0;
  std::uint64_t live = 0;
  for (const Request& r : requests_) {
    if (r.state == State::unused) continue;
    ++live;
    held += r.own.size() + r.redundant.size();
    if (r.state == State::ready) {
      TERRACE_CHECK(r.path.length <= r.table.size());
      held += r.table.size() - r.path.length;
      for (std::uint32_t i = 0; i < r.path.length; ++i) {
        TERRACE_CHECK(residency_.copy({r.path.node, i}, Tier::device).usable());
      }
    }
    if (r.state == State::failed) TERRACE_CHECK(r.own.empty() && r.path.length == 0);
  }
  TERRACE_CHECK(held == device.count(SlotState::held));
  TERRACE_CHECK(live == by_id_.size());
  if (live == 0) {
    TERRACE_CHECK(device_room_.promised() == 0);
    if (!has_pending_work() && pins_.empty()) {
      const PrefixTree& tree = residency_.tree();
      for (const Tier tier : {Tier::device, Tier::host}) {
        TERRACE_CHECK(tree.unpinned(Residency::plane(tier)) == tree.resident(Residency::plane(tier)));
        TERRACE_CHECK(residency_.pool(tier).leaving_total() == 0);
      }
      TERRACE_CHECK(readers() == 0);
      TERRACE_CHECK(arena.count(SlotState::held) == 0);
    }
  }
}

}  // namespace terrace
