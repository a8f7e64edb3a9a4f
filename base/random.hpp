#pragma once

#include "base/check.hpp"

#include <boost/random/mersenne_twister.hpp>
#include <boost/random/uniform_int_distribution.hpp>
#include <boost/random/uniform_real_distribution.hpp>

#include <cstdint>

namespace terrace {

/// A source of random numbers. All code in Terrace that needs random numbers is given a Random, so that one seed determines a
/// whole run. Boost's distributions give the same numbers on every platform; the standard library's distributions do not.
/// Threads: one.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_{seed} {}

  /// Returns a number that is uniformly distributed in [0, bound). `bound` must not be 0.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) {
    TERRACE_CHECK(bound > 0);
    return boost::random::uniform_int_distribution<std::uint64_t>{0, bound - 1}(engine_);
  }
  /// Returns a number that is uniformly distributed in [low, high].
  [[nodiscard]] std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return boost::random::uniform_int_distribution<std::uint64_t>{low, high}(engine_);
  }
  /// Returns true with the given probability.
  [[nodiscard]] bool chance(double probability) {
    return boost::random::uniform_real_distribution<double>{0.0, 1.0}(engine_) < probability;
  }
  /// The generator itself, for boost::random's other distributions.
  [[nodiscard]] boost::random::mt19937_64& engine() { return engine_; }

 private:
  boost::random::mt19937_64 engine_;
};

}  // namespace terrace
