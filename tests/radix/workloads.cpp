#include "tests/radix/workloads.hpp"

#include "base/random.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

namespace terrace::test {
namespace {

/// Names that no workload with another seed uses.
std::uint64_t name_base(const WorkloadShape& shape) { return shape.seed << 40U; }

class Writer {
 public:
  explicit Writer(const WorkloadShape& shape) : left_{shape.blocks} {}

  [[nodiscard]] bool full() const { return left_ == 0; }
  void add(std::vector<std::uint64_t> request) {
    left_ -= std::min<std::uint64_t>(left_, request.size());
    requests_.push_back(std::move(request));
  }
  [[nodiscard]] Requests take() { return std::move(requests_); }

 private:
  std::uint64_t left_;
  Requests requests_;
};

/// `length` blocks below their own root.
std::vector<std::uint64_t> prefix(std::uint64_t root, std::uint64_t length) {
  std::vector<std::uint64_t> names(length);
  std::iota(names.begin(), names.end(), root << 16U);
  return names;
}

constexpr std::uint64_t prefix_length = 8;

std::vector<std::uint64_t> fresh_prefix(std::uint64_t& next) { return prefix(next++, prefix_length); }

}  // namespace

Requests zipf(const WorkloadShape& shape) {
  Random random{shape.seed};
  Writer writer{shape};
  const std::uint64_t prompts = std::max<std::uint64_t>(shape.size, 8);
  std::vector<double> sums(prompts);
  for (std::uint64_t i = 0; i < prompts; ++i) sums[i] = (i == 0 ? 0 : sums[i - 1]) + 1.0 / static_cast<double>(i + 1);
  std::uint64_t tail = name_base(shape) + prompts;
  while (!writer.full()) {
    const double at = static_cast<double>(random.below(1'000'000'000)) * 1e-9 * sums.back();
    const auto rank = std::ranges::lower_bound(sums, at) - sums.begin();
    std::vector<std::uint64_t> request = prefix(name_base(shape) + static_cast<std::uint64_t>(rank), 4);
    const std::vector<std::uint64_t> rest = prefix(tail++, random.between(1, 6));
    request.insert(request.end(), rest.begin(), rest.end());
    writer.add(std::move(request));
  }
  return writer.take();
}

Requests loop(const WorkloadShape& shape) {
  Writer writer{shape};
  const std::uint64_t prefixes = shape.size * 3ULL / 2 / prefix_length;
  for (std::uint64_t i = 0; !writer.full(); ++i) writer.add(prefix(name_base(shape) + i % prefixes, prefix_length));
  return writer.take();
}

Requests conversations(const WorkloadShape& shape) {
  Random random{shape.seed};
  Writer writer{shape};
  struct Conversation {
    std::uint64_t root;
    std::uint64_t length;
  };
  std::uint64_t next = name_base(shape);
  std::vector<Conversation> open(std::max<std::size_t>(shape.size / 24, 2));
  for (Conversation& each : open) each = {next++, random.between(2, 20)};
  while (!writer.full()) {
    Conversation& speaks = open[random.below(open.size())];
    if (random.chance(0.15)) speaks = {next++, random.between(1, 6)};
    speaks.length = std::min<std::uint64_t>(speaks.length + random.between(1, 4), shape.size);
    writer.add(prefix(speaks.root, speaks.length));
  }
  return writer.take();
}

Requests hot_set(const WorkloadShape& shape) {
  Random random{shape.seed};
  Writer writer{shape};
  const std::uint64_t prefixes = shape.size * 9ULL / 10 / prefix_length;
  while (!writer.full()) writer.add(prefix(name_base(shape) + random.below(prefixes), prefix_length));
  return writer.take();
}

Requests scan(const WorkloadShape& shape) {
  Writer writer{shape};
  std::uint64_t next = name_base(shape);
  while (!writer.full()) writer.add(fresh_prefix(next));
  return writer.take();
}

Requests drift(const WorkloadShape& shape) {
  Random random{shape.seed};
  Writer writer{shape};
  const std::uint64_t window = std::max<std::uint64_t>(shape.size * 3ULL / 4 / prefix_length, 1);
  double first = 0;
  while (!writer.full()) {
    writer.add(prefix(name_base(shape) + static_cast<std::uint64_t>(first) + random.below(window), prefix_length));
    first += 0.2;  // a prefix is used five times on average while the window passes over it
  }
  return writer.take();
}

Requests hot_set_and_scan(const WorkloadShape& shape) {
  Random random{shape.seed};
  Writer writer{shape};
  const std::uint64_t prefixes = std::max<std::uint64_t>(shape.size / 2 / prefix_length, 1);
  std::uint64_t next = name_base(shape) + prefixes;
  while (!writer.full()) {
    writer.add(random.below(11) == 0 ? prefix(name_base(shape) + random.below(prefixes), prefix_length) : fresh_prefix(next));
  }
  return writer.take();
}

Requests phases(const WorkloadShape& shape) {
  Random random{shape.seed};
  Requests all;
  std::uint64_t blocks = 0;
  for (std::uint64_t phase = 1; blocks < shape.blocks; ++phase) {
    const std::vector<Workload>& kinds = all_workloads();
    const Workload& kind = kinds[random.below(kinds.size() - 1)];  // the last kind is this one
    const std::uint64_t length = shape.size * random.between(5, 25);
    Requests part = kind.make({shape.size, shape.seed * 100 + phase, std::min<std::uint64_t>(length, shape.blocks - blocks)});
    for (const auto& request : part) blocks += request.size();
    all.insert(all.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
  }
  return all;
}

const std::vector<Workload>& all_workloads() {
  static const std::vector<Workload> all{
      {"zipf", zipf}, {"loop", loop},   {"conversations", conversations},       {"hot_set", hot_set},
      {"scan", scan}, {"drift", drift}, {"hot_set_and_scan", hot_set_and_scan}, {"phases", phases}};
  return all;
}

}  // namespace terrace::test
