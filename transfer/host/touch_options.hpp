#pragma once

#include "base/huge_pages.hpp"

#include <atomic>
#include <optional>

namespace terrace {

/// How the pages of new host memory are touched first.
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

}  // namespace terrace
