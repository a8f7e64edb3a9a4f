#pragma once

#include "base/check.hpp"

#include <boost/random/mersenne_twister.hpp>
#include <boost/random/uniform_int_distribution.hpp>
#include <boost/random/uniform_real_distribution.hpp>

#include <cstdint>

namespace terrace {

/// The seam for random numbers: nothing in Terrace draws one but from a Random that it was given, so that one seed decides
/// a run. Boost's distributions repeat on every platform; the standard library's do not. Threads: one.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_{seed} {}

  /// Uniform in [0, bound). `bound` must not be 0.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) {
    TERRACE_CHECK(bound > 0);
    return boost::random::uniform_int_distribution<std::uint64_t>{0, bound - 1}(engine_);
  }
  /// Uniform in [low, high].
  [[nodiscard]] std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return boost::random::uniform_int_distribution<std::uint64_t>{low, high}(engine_);
  }
  /// True with the given probability.
  [[nodiscard]] bool chance(double probability) {
    return boost::random::uniform_real_distribution<double>{0.0, 1.0}(engine_) < probability;
  }
  /// The generator itself, for boost::random's other distributions.
  [[nodiscard]] boost::random::mt19937_64& engine() { return engine_; }

 private:
  boost::random::mt19937_64 engine_;
};

}  // namespace terrace
