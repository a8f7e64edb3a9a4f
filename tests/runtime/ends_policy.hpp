#pragma once

#include "radix/eviction/lru_policy.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace terrace::test {

/// LRU that notes the ends of requests, and the leaves that become candidates. The list must outlive it.
class EndsPolicy final : public EvictionPolicy {
 public:
  /// The end of a request, or a candidate that it was the last to use.
  struct Noted {
    std::uint64_t stamp = 0;
    std::optional<std::uint64_t> output_tokens;  ///< none: a candidate
    friend bool operator==(const Noted&, const Noted&) = default;
  };

  explicit EndsPolicy(std::vector<Noted>& noted) : noted_{noted} {}

  [[nodiscard]] bool follows_blocks() const override { return true; }
  void on_ended(std::uint64_t stamp, std::uint64_t output_tokens) override { noted_.push_back({stamp, output_tokens}); }
  void on_evictable(const Leaf& leaf) override {
    noted_.push_back({leaf.last_use, std::nullopt});
    lru_.on_evictable(leaf);
  }
  void on_unevictable(NodeId node) override { lru_.on_unevictable(node); }
  [[nodiscard]] std::optional<NodeId> victim() const override { return lru_.victim(); }
  [[nodiscard]] std::size_t candidates() const override { return lru_.candidates(); }
  [[nodiscard]] std::size_t bytes_held() const override { return lru_.bytes_held(); }
  void check_invariants() const override { lru_.check_invariants(); }

 private:
  std::vector<Noted>& noted_;
  LruPolicy lru_;
};

}  // namespace terrace::test
