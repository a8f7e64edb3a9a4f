#include "tools/bench/transfer/touch.hpp"

#include "tools/output.hpp"
#include "transfer/host/first_touch.hpp"
#include "transfer/host/mapping.hpp"
#include "transfer/host/memory_limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <system_error>

namespace terrace::tools {
namespace {

struct Subject {
  TouchOptions touch;
  std::vector<double> seconds;
  Bytes huge{};
};

}  // namespace

void bench_touch(const TouchBenchOptions& options) {
  if (count(options.size) == 0 || options.threads.empty() || options.rounds == 0) {
    throw std::invalid_argument{"bench touch: a size, a number of threads and at least 1 round are needed"};
  }
  if (const auto refusal = preflight({.bytes = options.size, .spare = MiB * 64}, read_memory_limits())) {
    throw std::invalid_argument{"bench touch: " + refusal->sentence};
  }
  std::vector<Subject> subjects;
  for (const HugePages huge : {HugePages::no, HugePages::yes}) {
    for (const unsigned threads : options.threads) {
      Subject& subject = subjects.emplace_back();
      subject.touch.threads = threads;
      subject.touch.huge_pages = huge;
      subject.touch.count_huge = true;
    }
  }
  for (unsigned round = 0; round < options.rounds; ++round) {
    for (Subject& subject : subjects) {
      const Mapping mapping = Mapping::reserve(options.size, "bench touch");
      const auto start = std::chrono::steady_clock::now();
      const FirstTouch got = first_touch(mapping.bytes(), subject.touch);
      subject.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      if (got.error != 0) throw std::system_error{got.error, std::generic_category(), "bench touch"};
      subject.huge = got.huge;
    }
  }
  for (Subject& subject : subjects) {
    std::ranges::sort(subject.seconds);
    print("{} touched by {} threads, huge pages {}: {:.0f} ms ({:.0f} to {:.0f}); {} in huge pages\n", to_string(options.size),
          subject.touch.threads, subject.touch.huge_pages == HugePages::yes ? "asked for" : "not wanted",
          1e3 * subject.seconds[subject.seconds.size() / 2], 1e3 * subject.seconds.front(), 1e3 * subject.seconds.back(),
          to_string(subject.huge));
  }
}

}  // namespace terrace::tools
