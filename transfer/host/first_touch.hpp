#pragma once

#include "base/bytes.hpp"
#include "base/large_memory.hpp"

#include <atomic>
#include <cstddef>
#include <optional>
#include <span>

namespace terrace {

struct TouchOptions {
  /// That touch side by side; 0: as many as the machine has processors, up to 8. More do not help: the kernel clears pages at
  /// the speed of memory.
  unsigned threads = 0;
  /// Where the pages are to lie; nothing: wherever the touching thread runs.
  std::optional<unsigned> numa_node;
  HugePages huge_pages = HugePages::yes;
  /// Set by somebody else, it ends the touching early: within one slice of 8 MiB.
  const std::atomic<bool>* cancel = nullptr;
  /// To count the huge pages afterwards: the kernel's books are read, which takes long where much is mapped.
  bool count_huge = false;
};

/// What was got; what was asked for is a wish but for the memory itself.
struct FirstTouch {
  int error = 0;                        ///< errno: the memory is not all there. ECANCELED: `cancel` was set
  Bytes huge{};                         ///< counted, of it in huge pages: about, where neighbours share the kernel's books
  std::optional<double> share_on_node;  ///< of the pages, sampled; nothing where none was asked for, or nobody knows
  bool node_asked = false;              ///< the kernel took the wish for a node
};

/// Makes every page of `bytes` (that begins at a page) be there, zeroed, so that no copy later waits for one. Where the kernel
/// has no huge pages for it, or none are asked for, small ones come. Blocks for as long as it takes, about 0.1 to 1 s a GiB.
/// Threads: any; nobody else uses the bytes meanwhile. Starts threads of its own and ends them; where none are to be had, it
/// does with the caller's.
[[nodiscard]] FirstTouch first_touch(std::span<std::byte> bytes, const TouchOptions& options);

}  // namespace terrace
