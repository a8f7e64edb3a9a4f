#include "radix/eviction/reuse_index.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <utility>

namespace terrace {

// ---- intervals -----------------------------------------------------------------------------------------------------------

ReuseIntervals::ReuseIntervals(std::size_t records_max)
    : records_max_{std::max<std::size_t>(records_max, 1)},
      buckets_(std::bit_ceil(records_max_), none),
      kinds_(history),
      recent_(recent),
      groups_(history / grain + 1) {
  records_.reserve(records_max_);
}

/// The count of open intervals in which this record's interval is.
std::uint32_t& ReuseIntervals::open_of(const Record& record) {
  if (record.last + recent > now_) return recent_[record.last % recent][record.uses];
  return groups_[record.last / grain % groups_.size()][class_of(record)];
}

/// Moves the requests that are not recent any more to their groups, and forgets blocks that were used too long ago.
void ReuseIntervals::advance(std::uint64_t stamp) {
  if (stamp <= now_) return;
  while (oldest_ != none && records_[oldest_].last + history - grain <= stamp) forget_oldest();
  const std::uint64_t first = now_ + 1;
  // After a longer gap, all that is recent leaves, and the kinds of all requests are unknown.
  const std::uint64_t leaving_end = std::min(stamp, first + recent - 1);
  for (std::uint64_t next = first; next <= leaving_end; ++next) {
    auto& opened = recent_[next % recent];
    if (next >= recent) {
      const std::uint64_t left = next - recent;
      auto& group = groups_[left / grain % groups_.size()];
      for (std::size_t uses = 0; uses < ReuseClass::uses; ++uses)
        group[ReuseClass::of(uses, kinds_[left % history])] += opened[uses];
    }
    opened = {};
  }
  for (std::uint64_t next = std::max(first, stamp - std::min(stamp, history - 1)); next <= stamp; ++next)
    kinds_[next % history] = 0;
  now_ = stamp;
}

void ReuseIntervals::tell(std::uint64_t stamp, std::size_t kind) {
  advance(stamp);
  if (stamp + recent > now_) kinds_[stamp % history] = static_cast<std::uint8_t>(kind);
}

void ReuseIntervals::end(const Record& record, bool with_use) {
  const std::size_t reuse_class = class_of(record);
  const std::size_t bin = AgeBins::of(now_ - record.last);
  ends_[reuse_class][bin] += 1;
  if (with_use) hits_[reuse_class][bin] += 1;
  --open_of(record);
}

ReuseIntervals::Index ReuseIntervals::find(std::uint64_t name) const {
  Index index = buckets_[name >> 32U & (buckets_.size() - 1)];
  while (index != none && records_[index].name != name) index = records_[index].next;
  return index;
}

std::optional<std::uint64_t> ReuseIntervals::last_use(std::uint64_t name) const {
  const Index index = find(name);
  return index == none ? std::nullopt : std::optional{records_[index].last};
}

void ReuseIntervals::use(std::uint64_t name, std::uint64_t stamp, std::size_t uses) {
  advance(stamp);
  if (stamp + recent <= now_) return;  // too late to be told from later requests
  Index index = find(name);
  if (index != none) {
    if (records_[index].last >= stamp) return;
    end(records_[index], true);
    take_out(index);
    uses = std::max<std::size_t>(uses, 1);
  } else {
    if (size_ == records_max_) forget_oldest();
    if (free_ == none) {
      free_ = static_cast<Index>(records_.size());
      records_.emplace_back();
    }
    index = free_;
    free_ = records_[index].next;
    records_[index] = {.name = name, .next = std::exchange(bucket_of(name), index)};
    ++size_;
  }
  Record& record = records_[index];
  record.last = stamp;
  record.uses = static_cast<std::uint8_t>(uses);
  push_newest(index);
  ++open_of(record);
}

void ReuseIntervals::forget_oldest() {
  const Index index = oldest_;
  end(records_[index], false);
  take_out(index);
  Index* at = &bucket_of(records_[index].name);
  while (*at != index) at = &records_[*at].next;
  *at = std::exchange(records_[index].next, free_);
  free_ = index;
  --size_;
}

void ReuseIntervals::push_newest(Index index) {
  records_[index].newer = none;
  records_[index].older = newest_;
  (newest_ == none ? oldest_ : records_[newest_].newer) = index;
  newest_ = index;
}

void ReuseIntervals::take_out(Index index) {
  const Record& record = records_[index];
  (record.newer == none ? newest_ : records_[record.newer].older) = record.older;
  (record.older == none ? oldest_ : records_[record.older].newer) = record.newer;
}

void ReuseIntervals::read(Seen& out, float fading) {
  out.hits = hits_;
  out.risk = ends_;
  for (std::uint64_t stamp = now_ - std::min(now_, recent - 1); stamp <= now_; ++stamp) {
    const std::size_t bin = AgeBins::of(now_ - stamp);
    for (std::size_t uses = 0; uses < ReuseClass::uses; ++uses)
      out.risk[ReuseClass::of(uses, kinds_[stamp % history])][bin] += static_cast<float>(recent_[stamp % recent][uses]);
  }
  const std::uint64_t groups_end = now_ < recent ? 0 : (now_ - recent) / grain + 1;
  const std::uint64_t first = oldest_ == none ? groups_end : records_[oldest_].last / grain;
  for (std::uint64_t group = first; group < groups_end; ++group) {
    const std::size_t bin = AgeBins::of(now_ - (group * grain + grain / 2));
    const auto& open = groups_[group % groups_.size()];
    for (std::size_t reuse_class = 0; reuse_class < ReuseClass::count; ++reuse_class)
      out.risk[reuse_class][bin] += static_cast<float>(open[reuse_class]);
  }
  // A block that was seen until some age was also seen until all earlier ages.
  for (auto& risk : out.risk) {
    for (std::size_t bin = AgeBins::count - 1; bin-- > 0;) risk[bin] += risk[bin + 1];
  }
  for (std::size_t reuse_class = 0; reuse_class < ReuseClass::count; ++reuse_class) {
    for (float& hits : hits_[reuse_class]) hits *= fading;
    for (float& ends : ends_[reuse_class]) ends *= fading;
  }
}

std::size_t ReuseIntervals::bytes_held() const {
  return records_.capacity() * sizeof(Record) + buckets_.capacity() * sizeof(Index) + kinds_.capacity() +
         recent_.capacity() * sizeof(recent_[0]) + groups_.capacity() * sizeof(groups_[0]);
}

void ReuseIntervals::check_invariants() const {
  std::size_t linked = 0;
  std::size_t open = 0;
  Index newer = none;
  for (Index at = newest_; at != none; newer = at, at = records_[at].older) {
    TERRACE_CHECK(records_[at].newer == newer && records_[at].last <= now_);
    ++linked;
  }
  TERRACE_CHECK(newer == oldest_ && linked == size_ && size_ <= records_max_);
  for (const auto& cell : recent_) {
    for (const std::uint32_t count : cell) open += count;
  }
  for (const auto& cell : groups_) {
    for (const std::uint32_t count : cell) open += count;
  }
  TERRACE_CHECK(open == size_);
}

// ---- ranks ---------------------------------------------------------------------------------------------------------------

namespace {

/// A class with few intervals is taken to be like all classes together, which count as this many intervals.
constexpr double prior = 20;
/// So that some blocks are left at every age.
constexpr double ends_max = 0.9999;

/// The number of ages in each bin.
const std::array<double, AgeBins::count>& widths() {
  static const std::array<double, AgeBins::count> all = [] {
    std::array<double, AgeBins::count> made{};
    for (std::size_t bin = 0; bin < AgeBins::count; ++bin) made[bin] = AgeBins::begin(bin + 1) - AgeBins::begin(bin);
    return made;
  }();
  return all;
}

}  // namespace

void ReuseRanks::begin(const ReuseIntervals::Seen& seen) {
  made_ = 0;
  like_.reset();
  pooled_ = pooled(seen);
  bins_ = AgeBins::count;
  while (bins_ > 0 && pooled_[bins_ - 1] == 0) --bins_;
  bins_ = std::min(bins_ + 1, AgeBins::count);  // ends_of() smooths over the next age, too
}

ReuseRanks::Ends ReuseRanks::pooled(const ReuseIntervals::Seen& seen) {
  Ends ends{};
  for (std::size_t bin = 0; bin < AgeBins::count; ++bin) {
    double hits = 0;
    double risk = 0;
    for (std::size_t reuse_class = 0; reuse_class < ReuseClass::count; ++reuse_class) {
      hits += seen.hits[reuse_class][bin];
      risk += seen.risk[reuse_class][bin];
    }
    ends[bin] = risk > 0 ? hits / risk : 0;
  }
  return ends;
}

ReuseRanks::Ends ReuseRanks::ends_of(const ReuseIntervals::Seen& seen, std::size_t reuse_class, const Ends& pooled,
                                     std::size_t bins) {
  const std::array<double, AgeBins::count>& width = widths();
  Ends each{};  // the share of one age of each bin
  Ends ends{};
  for (std::size_t bin = 0; bin < bins; ++bin) {
    if (width[bin] == 0) continue;
    each[bin] = (seen.hits[reuse_class][bin] + prior * pooled[bin]) / ((seen.risk[reuse_class][bin] + prior) * width[bin]);
  }
  for (std::size_t bin = 0; bin < bins; ++bin) {
    double weights = 0;
    double sum = 0;
    for (std::size_t near = bin == 0 ? 0 : bin - 1; near < std::min(bin + 2, AgeBins::count); ++near) {
      if (width[near] == 0) continue;
      const double weight = near == bin ? 2 : 1;
      weights += weight;
      sum += weight * each[near];
    }
    ends[bin] = std::min(ends_max, sum / weights * width[bin]);
  }
  return ends;
}

void ReuseRanks::step(const ReuseIntervals::Seen& seen) {
  const std::size_t reuse_class = made_++;
  const bool unseen = seen.risk[reuse_class][0] == 0;
  ranks_[reuse_class] = unseen && like_ ? ranks_[*like_] : ranks_of(seen, reuse_class);
  if (unseen) like_ = reuse_class;
}

ReuseRanks::Row ReuseRanks::ranks_of(const ReuseIntervals::Seen& seen, std::size_t reuse_class) const {
  const std::array<double, AgeBins::count>& width = widths();
  const Ends ends = ends_of(seen, reuse_class, pooled_, bins_);
  // A point has the hits of blocks that are kept from age 0 until a bin, and the requests paid for. The rank of an age is the
  // steepest slope from its point to a later one. So it is the slope to the next vertex of the upper hull of the points from
  // there on, which the stack has.
  struct Point {
    double time = 0;
    double hits = 0;
  };
  std::array<Point, AgeBins::count + 1> points;
  double alive = 1;
  for (std::size_t bin = 0; bin < bins_; ++bin) {
    points[bin + 1] = {points[bin].time + alive * width[bin], points[bin].hits + (width[bin] == 0 ? 0 : alive * ends[bin])};
    if (width[bin] != 0) alive *= 1 - ends[bin];
  }
  const auto slope = [&](std::size_t from, std::size_t to) {
    const double time = points[to].time - points[from].time;
    return time > 0 ? (points[to].hits - points[from].hits) / time : 0;
  };
  Row ranks{};
  std::array<std::size_t, AgeBins::count + 1> hull;
  std::array<double, AgeBins::count + 1> slopes;  // from each vertex to the one below it in the stack
  std::size_t size = 0;
  hull[size++] = bins_;
  for (std::size_t age = bins_; age-- > 0;) {
    double steepest = slope(age, hull[size - 1]);
    while (size > 1 && slopes[size - 1] >= steepest) steepest = slope(age, hull[--size - 1]);
    ranks[age] = static_cast<float>(steepest);
    slopes[size] = steepest;
    hull[size++] = age;
  }
  return ranks;
}

}  // namespace terrace
