#pragma once

#include "runtime/request.hpp"
#include "runtime/residency.hpp"

#include <vector>

namespace terrace {

/// Of a manager that stores without caching (ManagerConfig::store_uncached): what requests have left behind on the device, until
/// it has left there for storage, or is found to go nowhere. Threads: the manager's.
class UncachedPaths {
 public:
  UncachedPaths(Residency& residency, ManagerStats& stats) : residency_{residency}, stats_{stats} {}

  /// The path is nobody's now but this one's, with its pin.
  void add(Path path) { paths_.push_back(path); }
  /// Gives up what nothing reads any more, from the ends of the paths. True where a slot became free.
  bool pump();
  [[nodiscard]] bool idle() const { return paths_.empty(); }

 private:
  /// Gives up the path's end. Takes back its pin; returns what has to wait, with a pin, or an empty path.
  Path give_up(Path path);

  Residency& residency_;
  ManagerStats& stats_;
  std::vector<Path> paths_;
  bool freed_ = false;
};

}  // namespace terrace
