#pragma once

#include "base/waker.hpp"
#include "tools/bench/storage.hpp"
#include "tools/replay/interrupt.hpp"

namespace terrace::tools {

/// A guarded FileStore's reads of blocks in scattered order, without a scrub and with one at each rate of the options, which take
/// turns in each round; for each size and depth in two ways:
///
/// - *steady*: so many are under way at once, all the time, and the store is polled whenever one has ended. The scrub reads
///   where a poll finds all of them ended; where that never happens, a tenth of its rate.
/// - *steps*: as many are begun together once in 20 ms, right after the step's one poll, in which the scrub begins what is due;
///   when they have ended nobody polls until the next step. Speed is that of the time in which they were under way.
///
/// Prints the medians of throughput and 99th percentile, their ratios to those without a scrub in the same round, and what the
/// scrub has read. Throws as bench_storage(), which has checked the options.
void bench_beside_scrub(const StorageBenchOptions& options, const Interrupt& interrupt, EventFdWaker& waker);

}  // namespace terrace::tools
