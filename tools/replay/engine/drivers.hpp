#pragma once

#include "base/waker.hpp"
#include "terrace/system.hpp"
#include "tools/replay/engine/session.hpp"

#include <cstdint>

namespace terrace::tools {

// Each driver serves all requests of the session. It returns when every request has ended. After an interruption or a failure it
// returns when all launched work is computed and all other requests have been dropped. Then no lease is left. `waker` is the
// session's.

/// Serves the requests as an inference engine does: one thread polls the cache, asks the scheduler what to run in each step,
/// launches it, and sleeps while there is nothing to do.
///
/// With --reference it serves one request at a time, each to its end, and waits for each copy before the next thing happens. With
/// `exclusive` copies the results are then those of the policy only if there is a SlotReserve.
///
/// A request by layer is told of layers that have arrived while it waits. A launch of its own then compares these layers of its
/// hits.
///
/// A step is launched in parts, because blocks are shared when the work that writes them is launched. The first part is the work
/// of the running requests, so that a request that is admitted in the same step finds their blocks. Then each admitted request is
/// a part of its own. The next step is decided while the last part is still computed.
///
/// `reserved_slots` is the size of the SlotReserve; 0: there is none. Returns SlotReserve::requests(). Threads: one.
std::uint64_t run_confined(Session& session, CacheSystem& system, EventFdWaker& waker, std::uint32_t reserved_slots);

/// Serves the requests as a server with an event loop does: one coroutine for each request, on an AsyncCache. Requests begin in
/// their order. A request without space waits in the AsyncCache, also in order.
///
/// A request's life is the same as in run_confined(), but there are no common steps and so no common token budget. Its prompt is
/// computed in chunks of `step_tokens`, and its output block by block; it waits for each part before it launches the next. A
/// request that cannot be extended preempts itself: it releases all its blocks and acquires them again, behind the requests that
/// wait already.
///
/// Threads: the session and this driver run on one strand, and the AsyncCache on its own. With more than one thread the two run
/// in parallel.
void run_loop(Session& session, CacheSystem& system, EventFdWaker& waker);

}  // namespace terrace::tools
