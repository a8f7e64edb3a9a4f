#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace terrace {

/// Ages of blocks: the number of requests since their last use, in bins of half an octave.
struct AgeBins {
  static constexpr std::size_t count = 48;

  [[nodiscard]] static constexpr std::size_t of(std::uint64_t age) {
    if (age <= 1) return 0;
    if (age >= std::uint64_t{1} << (count / 2)) return count - 1;
    const auto octave = static_cast<unsigned>(std::bit_width(age) - 1);
    return 2 * octave + (age * age >> (2 * octave + 1) != 0 ? 1 : 0);
  }
  /// Returns the first age of the bin. Bin 1 is empty, because no whole number is between the square root of 2 and 2.
  [[nodiscard]] static double begin(std::size_t bin) { return std::ceil(std::exp2(static_cast<double>(bin) / 2)); }
};

/// The class of a block that was used tells how often it was used, and by what kind of request.
struct ReuseClass {
  /// How often a request has used the block again since it entered the tree: 0, 1, or more often. A block that returns soon
  /// enough after its eviction begins with 1.
  static constexpr std::size_t uses = 3;

  /// The kinds of the last request. If the engine has told how many tokens the request wrote, this counts, compared with other
  /// requests.
  enum Kind : std::uint8_t {
    fresh,  ///< it begins something new, or nothing is known
    soon,   ///< it continues an earlier one after fewer requests than usual
    late,   ///< it continues an earlier one after more requests
    short_output,
    medium_output,
    long_output,
  };
  static constexpr std::array<std::string_view, uses> use_names{"0", "1", "2+"};
  static constexpr std::array<std::string_view, long_output + 1> kind_names{"fresh",        "soon",          "late",
                                                                            "short_output", "medium_output", "long_output"};
  static constexpr std::size_t kinds = kind_names.size();
  static constexpr std::size_t count = uses * kinds;

  [[nodiscard]] static constexpr std::size_t of(std::size_t used, std::size_t kind) { return used * kinds + kind; }
};

/// Estimates a quantile of numbers that come one after the other (H. Robbins and S. Monro, A Stochastic Approximation Method,
/// 1951).
class Quantile {
 public:
  Quantile(double share, double first) : share_{share}, value_{first} {}
  [[nodiscard]] double value() const { return value_; }
  void add(double x) { value_ += step * (share_ - (x < value_ ? 1 : 0)); }

 private:
  static constexpr double step = 0.1;
  double share_;
  double value_;
};

/// Counts, for a sample of the blocks, after how many requests they are used again, also after their eviction: one interval for
/// each use of a block, which ends with its next use, or without one when the block is forgotten.
///
/// An interval that has not ended tells that the block was not used until now. These are counted by the request that began them:
/// exactly for the last requests, and in groups of requests before that. So the counts can be read without a look at every block.
///
/// Ownership: all memory is taken at construction, in proportion to the number of records. Threads: one. A use costs O(1).
class ReuseIntervals {
 public:
  /// Remembers this many blocks, those used last.
  explicit ReuseIntervals(std::size_t records_max);

  /// A request with this stamp uses the block. `uses`: ReuseClass::uses of the block, without the knowledge whether it returns
  /// after its eviction. Stamps may be a little out of order.
  void use(std::uint64_t name, std::uint64_t stamp, std::size_t uses);
  /// The kind of the request is known. It counts for the intervals that it began, unless the request is long ago.
  void tell(std::uint64_t stamp, std::size_t kind);

  /// The stamp of the block's last use; nothing if the block is not known.
  [[nodiscard]] std::optional<std::uint64_t> last_use(std::uint64_t name) const;
  /// The kind of a request that tell() has told; 0 if it was not told, or is long ago.
  [[nodiscard]] std::size_t kind(std::uint64_t stamp) const {
    return stamp + history > now_ && stamp <= now_ ? kinds_[stamp % history] : 0;
  }

  using Counts = std::array<std::array<float, AgeBins::count>, ReuseClass::count>;
  /// By class and age: the intervals that ended with a use; and those that were seen up to this age, which is the number that
  /// could have ended there.
  struct Seen {
    Counts hits{};
    Counts risk{};
  };
  /// Makes `out` the counts until now, and lets them fade by a factor.
  void read(Seen& out, float fading);

  [[nodiscard]] std::size_t records() const { return size_; }
  [[nodiscard]] std::size_t bytes_held() const;
  void check_invariants() const;

 private:
  using Index = std::uint32_t;
  static constexpr Index none = 0xFFFF'FFFF;
  static constexpr std::uint64_t recent = 256;      ///< requests that are counted one by one
  static constexpr std::uint64_t grain = 64;        ///< requests in a group
  static constexpr std::uint64_t history = 65'536;  ///< requests after which a block is forgotten

  struct Record {
    std::uint64_t name = 0;
    std::uint64_t last = 0;  ///< stamp of the last use
    Index newer = none;
    Index older = none;
    Index next = none;  ///< in the same hash bucket
    std::uint8_t uses = 0;
  };

  [[nodiscard]] Index& bucket_of(std::uint64_t name) { return buckets_[name >> 32U & (buckets_.size() - 1)]; }
  [[nodiscard]] Index find(std::uint64_t name) const;
  [[nodiscard]] std::size_t class_of(const Record& record) const {
    return ReuseClass::of(record.uses, kinds_[record.last % history]);
  }
  [[nodiscard]] std::uint32_t& open_of(const Record& record);
  void advance(std::uint64_t stamp);
  void end(const Record& record, bool with_use);
  void forget_oldest();
  void take_out(Index index);
  void push_newest(Index index);

  std::size_t records_max_;
  std::vector<Record> records_;
  std::vector<Index> buckets_;
  Index newest_ = none;
  Index oldest_ = none;
  Index free_ = none;
  std::size_t size_ = 0;
  std::uint64_t now_ = 0;  ///< the latest stamp
  Counts hits_{};
  Counts ends_{};
  std::vector<std::uint8_t> kinds_;                                   ///< by stamp: the kind of the request
  std::vector<std::array<std::uint32_t, ReuseClass::uses>> recent_;   ///< by stamp: open intervals
  std::vector<std::array<std::uint32_t, ReuseClass::count>> groups_;  ///< by group of stamps: open intervals
};

/// How much a tier gains by keeping a block, by its class and age: the largest number of hits per request that it can be kept for
/// (a Gittins index; J. C. Gittins, Bandit Processes and Dynamic Allocation Indices, 1979; hits per space and time: N. Beckmann,
/// H. Chen, A. Cidon, LHD, NSDI 2018). Threads: one.
class ReuseRanks {
 public:
  [[nodiscard]] float rank(std::size_t reuse_class, std::uint64_t age) const { return ranks_[reuse_class][AgeBins::of(age)]; }
  /// Begins to make ranks from counts. step() makes the ranks of one class, until done(). A class of which nothing was seen has
  /// the ranks of all classes together.
  void begin(const ReuseIntervals::Seen& seen);
  void step(const ReuseIntervals::Seen& seen);
  [[nodiscard]] bool done() const { return made_ == ReuseClass::count; }

  /// By age: the share of intervals that end there with a use, of those that reach it.
  using Ends = std::array<double, AgeBins::count>;
  [[nodiscard]] static Ends pooled(const ReuseIntervals::Seen& seen);
  /// The same for one class, smoothed over neighbouring ages. `pooled`: that of all classes together, which counts for a class
  /// with few intervals. `bins`: only the first ones are made, because no interval is longer.
  [[nodiscard]] static Ends ends_of(const ReuseIntervals::Seen& seen, std::size_t reuse_class, const Ends& pooled,
                                    std::size_t bins = AgeBins::count);

 private:
  using Row = std::array<float, AgeBins::count>;
  [[nodiscard]] Row ranks_of(const ReuseIntervals::Seen& seen, std::size_t reuse_class) const;

  Ends pooled_{};
  std::size_t bins_ = 0;             ///< blocks of any class that are older than the first `bins_` ages are never used again
  std::optional<std::size_t> like_;  ///< a class of which nothing was seen, and whose ranks are made
  std::size_t made_ = 0;
  ReuseIntervals::Counts ranks_{};
};

}  // namespace terrace
