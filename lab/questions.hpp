#pragma once

#include "lab/rounds.hpp"
#include "lab/rows.hpp"
#include "terrace/types.hpp"
#include "tools/numbered_key.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace terrace::tools {

/// The number of keys in a question, and of blocks in an order.
inline constexpr std::uint32_t keys_a_question = 32;

/// Measures questions about 32 keys each, in a scattered order of the groups of keys.
class Questions {
 public:
  enum class Stop : bool { at_the_end, at_a_miss };

  /// `present` has the keys that are there, in groups of 32; a rest does not count, and there is at least one group.
  Questions(std::vector<BlockKey> present, unsigned rounds)
      : present_{std::move(present)}, set_{present_.begin(), present_.end()}, rounds_{rounds} {
    present_.resize(present_.size() / keys_a_question * keys_a_question);
    for (std::size_t n = 0; n < present_.size(); ++n) absent_.push_back(numbered_key(first_absent + n));
  }

  /// Measures a question that is answered at once. `ask` takes the keys and returns how many of them are there. A miss of a
  /// question that stops at a miss needs one look-up only; its time is divided by 32 all the same. The row has the time, and that
  /// of the same question to a std::unordered_set. Throws std::runtime_error for a wrong answer.
  template <class Ask>
  [[nodiscard]] Row measure(std::string_view question, bool hit, Stop stop, Ask ask) const {
    const auto ask_set = [&](std::span<const BlockKey> keys) {
      std::size_t found = 0;
      for (const BlockKey& key : keys) {
        if (set_.contains(key)) ++found;
        else if (stop == Stop::at_a_miss) break;
      }
      return found;
    };
    std::vector<double> subject;
    std::vector<double> set;
    for (unsigned round = 0; round < rounds_; ++round) {
      if (round % 2 == 0) subject.push_back(ns_a_key(hit, ask));
      set.push_back(ns_a_key(hit, ask_set));
      if (round % 2 == 1) subject.push_back(ns_a_key(hit, ask));
    }
    return {{"question", question}, {"hit", hit}, {"ns_a_key", median(subject)}, {"set_ns_a_key", median(set)}};
  }

 private:
  static constexpr std::uint64_t first_absent = std::uint64_t{1} << 48U;
  static constexpr std::uint32_t calls_min = 2000;

  template <class Ask>
  [[nodiscard]] double ns_a_key(bool hit, Ask& ask) const {
    const std::span<const BlockKey> keys{hit ? present_ : absent_};
    const std::vector<std::uint32_t> order = scattered_order(static_cast<std::uint32_t>(keys.size() / keys_a_question));
    const std::size_t calls = std::max<std::size_t>(calls_min, order.size());
    std::size_t found = 0;
    const double seconds = seconds_of([&] {
      for (std::size_t n = 0; n < calls; ++n) {
        const std::size_t first = std::size_t{order[n % order.size()]} * keys_a_question;
        found += ask(keys.subspan(first, keys_a_question));
      }
    });
    if (found != (hit ? calls * keys_a_question : 0)) throw std::runtime_error{"a question had a wrong answer"};
    return seconds * 1e9 / static_cast<double>(calls * keys_a_question);
  }

  std::vector<BlockKey> present_;
  std::vector<BlockKey> absent_;
  std::unordered_set<BlockKey> set_;
  unsigned rounds_;
};

}  // namespace terrace::tools
