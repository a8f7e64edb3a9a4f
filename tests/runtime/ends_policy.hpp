#pragma once

#include "tests/runtime/watching_lru.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace terrace::test {

/// LRU that notes the ends of requests, and the leaves that become candidates. The list must outlive it.
class EndsPolicy final : public WatchingLru {
 public:
  /// The end of a request, or a candidate that it was the last to use.
  struct Noted {
    std::uint64_t stamp = 0;
    std::optional<std::uint64_t> output_tokens;  ///< none: a candidate
    friend bool operator==(const Noted&, const Noted&) = default;
  };

  explicit EndsPolicy(std::vector<Noted>& noted) : noted_{noted} {}

  void on_ended(std::uint64_t stamp, std::uint64_t output_tokens) override { noted_.push_back({stamp, output_tokens}); }
  void on_evictable(const Leaf& leaf) override {
    noted_.push_back({leaf.last_use, std::nullopt});
    WatchingLru::on_evictable(leaf);
  }

 private:
  std::vector<Noted>& noted_;
};

}  // namespace terrace::test
