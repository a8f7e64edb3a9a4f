#include "runtime/cache/measure/transfer_clock.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace terrace {

void TransferClock::begin(const Transfer& transfer, TimePoint now) {
  std::uint32_t blocks = 0;
  for (const SlotRun& run : transfer.runs) blocks += run.count;
  under_way_.insert_or_assign(transfer.id, UnderWay{transfer.direction, transfer.urgency, blocks, now});
}

void TransferClock::raise(TransferId id, Urgency urgency) {
  const auto found = under_way_.find(id);
  if (found != under_way_.end()) found->second.urgency = urgency;
}

bool TransferClock::is_urgent(TransferId id) const {
  const auto found = under_way_.find(id);
  return found == under_way_.end() || found->second.urgency == Urgency::request;
}

std::optional<TransferClock::Ended> TransferClock::end(TransferId id, TimePoint now) {
  const auto found = under_way_.find(id);
  if (found == under_way_.end()) return std::nullopt;
  const UnderWay transfer = found->second;
  (transfer.direction == Direction::swap_in ? times_.swap_in : times_.swap_out).add(now - transfer.ordered);
  under_way_.erase(found);
  return Ended{transfer.ordered, transfer.blocks};
}

TimePoint TransferClock::end(std::uint32_t number, TimePoint now) {
  const Ordered ordered = accesses_.take(number);
  (ordered.access == Access::read ? times_.storage_read : times_.storage_write).add(now - ordered.at);
  return ordered.at;
}

std::vector<TransferQueue> TransferClock::queues(TimePoint now) const {
  std::vector<TransferQueue> all;
  for (const Direction direction : {Direction::swap_out, Direction::swap_in}) {
    for (std::size_t urgency = 0; urgency < urgency_count; ++urgency) {
      all.push_back({.direction = direction, .urgency = static_cast<Urgency>(urgency)});
    }
  }
  for (const auto& [id, transfer] : under_way_) {
    const auto place = static_cast<std::size_t>(transfer.direction == Direction::swap_in ? urgency_count : 0);
    TransferQueue& queue = all[place + static_cast<std::size_t>(transfer.urgency)];
    ++queue.transfers;
    queue.blocks += transfer.blocks;
    queue.oldest_seconds = std::max(queue.oldest_seconds, std::chrono::duration<double>(now - transfer.ordered).count());
  }
  return all;
}

}  // namespace terrace
