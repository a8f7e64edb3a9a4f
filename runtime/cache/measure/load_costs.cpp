#include "runtime/cache/measure/load_costs.hpp"

namespace terrace {

std::uint32_t units_worth_loading(std::span<const UnitCost> units, const LoadQueues& queues, double unit_prefill_seconds) {
  std::uint32_t best = 0;
  double best_gain = 0;
  double read = 0;
  double link = 0;
  double shared = 0;
  std::uint64_t reads = 0;
  std::uint64_t shared_reads = 0;
  bool waits_for_read = false;
  bool waits_for_link = false;
  bool waits_for_shared = false;
  for (std::uint32_t taken = 1; taken <= units.size(); ++taken) {
    const UnitCost& unit = units[taken - 1];
    read += unit.read_seconds;
    link += unit.link_seconds;
    reads += unit.reads;
    shared += unit.shared_seconds;
    shared_reads += unit.shared;
    if (reads > queues.reads_max || shared_reads > queues.shared_max) break;
    waits_for_read |= unit.reads > 0 || unit.joins_read;
    waits_for_link |= unit.link_seconds > 0 || unit.joins_link;
    waits_for_shared |= unit.shared > 0 || unit.joins_shared;
    double wait = read + shared + link;
    if (waits_for_read) wait += queues.read_seconds;
    if (waits_for_link) wait += queues.link_seconds;
    if (waits_for_shared) wait += queues.shared_seconds;
    const double gain = taken * unit_prefill_seconds - wait;
    if (gain < best_gain) continue;
    best = taken;
    best_gain = gain;
  }
  return best;
}

}  // namespace terrace
