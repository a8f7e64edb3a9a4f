#pragma once

#include "base/large_memory.hpp"
#include "terrace/types.hpp"

#include <atomic>
#include <cstddef>
#include <optional>
#include <span>

namespace terrace {

struct TouchOptions {
  /// The number of threads that touch pages in parallel. 0: one for each processor, up to 8. More threads do not help, because
  /// the kernel clears pages at the speed of memory.
  unsigned threads = 0;
  /// The NUMA node on which the pages should lie. Nothing: the node of the thread that touches them.
  std::optional<unsigned> numa_node;
  HugePages huge_pages = HugePages::yes;
  /// If another thread sets this, touching ends early: each thread stops after its present slice of 8 MiB. May be null.
  const std::atomic<bool>* cancel = nullptr;
  /// Whether to count the huge pages afterwards. This reads /proc/self/smaps, which takes long if much memory is mapped.
  bool count_huge = false;
};

/// The result of first_touch(). Only missing memory is an error. Huge pages and the NUMA node are requests that the kernel may
/// refuse.
struct FirstTouch {
  int error = 0;  ///< 0, or an errno if some pages are missing; ECANCELED if `cancel` was set
  Bytes huge{};   ///< bytes in huge pages, if counted; an estimate if the kernel has joined neighbouring mappings
  /// the share of pages on the requested node, from a sample; nothing if no node was requested or it is unknown
  std::optional<double> share_on_node;
  bool node_asked = false;  ///< the kernel accepted the requested node
};

/// Makes every page of `bytes` present and zeroed, so that no later copy waits for a page fault. `bytes` must begin at a page
/// boundary. If huge pages are not requested, or the kernel has none, the pages are small. The call takes about 0.1 to 1 s per
/// GiB.
///
/// Threads: any; no other thread may use the bytes meanwhile. The function starts threads and ends them. If it can start none,
/// the calling thread does all the work.
[[nodiscard]] FirstTouch first_touch(std::span<std::byte> bytes, const TouchOptions& options);

}  // namespace terrace
