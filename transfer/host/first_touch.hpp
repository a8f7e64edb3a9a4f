#pragma once

#include "terrace/host_memory.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <optional>
#include <span>

namespace terrace {

/// The result of first_touch(). Only missing memory is an error. Huge pages and the NUMA node are requests that the kernel may
/// refuse.
struct FirstTouch {
  int error = 0;  ///< 0, or an errno if some pages are missing; ECANCELED if `cancel` was set
  Bytes huge{};   ///< bytes in huge pages, if counted; an estimate if the kernel has joined neighbouring mappings
  /// the share of pages on the requested node, from a sample; empty if no node was requested or the share is unknown
  std::optional<double> share_on_node;
  bool node_asked = false;  ///< the kernel accepted the requested node
};

/// Makes every page of `bytes` present and zeroed, so that no later copy waits for a page fault. `bytes` must begin at a page
/// boundary. If huge pages are not requested, or the kernel has none, the pages are small. The call takes about 0.1 to 1 s per
/// GiB.
///
/// Threads: any; no other thread may use the bytes meanwhile. The function starts threads and joins them. If it cannot start a
/// thread, the calling thread does all the work.
[[nodiscard]] FirstTouch first_touch(std::span<std::byte> bytes, const TouchOptions& options);

}  // namespace terrace
