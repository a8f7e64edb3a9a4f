#pragma once

#include "terrace/export.hpp"

#include <utility>

namespace terrace {

class Turns;

/// While an object of this class exists, its thread may call the cache, and the idle service (CacheSystemOptions::idle_service)
/// does not use the cache. CacheSystem::take_turn() makes one. If the service is in the middle of a slice, take_turn() waits for
/// the end of the slice. Turns of one thread may be nested.
///
/// Threads: an object is made and destroyed on the same thread. It must be destroyed before CacheSystem::close() is called and
/// before the CacheSystem is destroyed.
class TERRACE_API Turn {
 public:
  /// An empty turn, for a cache without an idle service.
  Turn() = default;
  explicit Turn(Turns& turns);
  ~Turn();
  Turn(Turn&& other) noexcept : turns_{std::exchange(other.turns_, nullptr)} {}
  Turn& operator=(Turn&&) = delete;

 private:
  Turns* turns_ = nullptr;
};

}  // namespace terrace
