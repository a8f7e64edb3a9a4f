#pragma once

#include "base/vector_pool.hpp"
#include "radix/tree/copy.hpp"
#include "terrace/statistics.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace terrace {

/// Collects events until they are taken. Call add() only if on() is true, that is after record_from_now_on(). It keeps every
/// event, so take the events in every step of the engine. Threads: one.
class KvEvents {
 public:
  void record_from_now_on() { on_ = true; }
  [[nodiscard]] bool on() const { return on_; }
  void add(KvEvent event) { waiting_.push_back(event); }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  /// Moves all events since the last call into `events`. The two vectors are swapped, so that their memory is reused.
  void take(std::vector<KvEvent>& events) { take_all(waiting_, events); }

 private:
  bool on_ = false;
  std::vector<KvEvent> waiting_;
};

}  // namespace terrace
