#pragma once

#include "terrace/export.hpp"

#include <utility>

namespace terrace {

class Turns;

/// While an object of this class exists, its thread is the one that calls the cache, and the idle service
/// (CacheSystemOptions::idle_service) leaves the cache alone. CacheSystem::take_turn() makes one. If the service is in the middle
/// of a slice, that call waits for the end of this slice. Turns of one thread may be nested.
///
/// Threads: an object is made and destroyed on one thread. It ends before CacheSystem::close() and the end of the CacheSystem.
class TERRACE_API Turn {
 public:
  /// Nobody's turn, for a cache without an idle service.
  Turn() = default;
  explicit Turn(Turns& turns);
  ~Turn();
  Turn(Turn&& other) noexcept : turns_{std::exchange(other.turns_, nullptr)} {}
  Turn& operator=(Turn&&) = delete;

 private:
  Turns* turns_ = nullptr;
};

}  // namespace terrace
