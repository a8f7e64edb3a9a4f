#pragma once

#include "terrace/types.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace terrace {

/// A place from which a cached block can come, nearest first: a tier of this cache, or a store beyond it. Hits, statistics,
/// events and reports name sources. What acts on the memory of one cache, for example a resize, names a Tier.
///
/// More sources will be added, for example a store that several machines share. Each one gets the next larger value, and comes
/// after storage in the order. No value ever changes its meaning. So a program that was compiled with this header works with a
/// later library if it treats a value that it does not know as "slower than storage":
///
///     switch (source) {
///       case Source::device: ...
///       case Source::host: ...
///       default: ...  // storage, and every source that is slower
///     }
enum class Source : std::uint8_t { device = 0, host = 1, storage = 2 };

/// All sources that this header knows, in their order.
inline constexpr std::array all_sources{Source::device, Source::host, Source::storage};
inline constexpr std::size_t source_count = all_sources.size();
/// The most sources that there will be while the layout of PerSource stays. Every value of Source is smaller.
inline constexpr std::size_t source_capacity = 8;
static_assert(source_count <= source_capacity);

[[nodiscard]] constexpr std::size_t index(Source source) { return static_cast<std::size_t>(source); }

/// The name in reports. "unknown" for a source that this header does not know.
[[nodiscard]] constexpr std::string_view to_string(Source source) {
  switch (source) {
    case Source::device: return "device";
    case Source::host: return "host";
    case Source::storage: return "storage";
  }
  return "unknown";
}

/// The source that a tier of this cache is.
[[nodiscard]] constexpr Source to_source(Tier tier) {
  switch (tier) {
    case Tier::device: return Source::device;
    case Tier::host: return Source::host;
    case Tier::storage: return Source::storage;
  }
  return Source::storage;
}

/// One value for each source. Plain data, with room for sources that a later library adds: the layout does not change then, and
/// sum() has their part even in a program that does not know them. An index must be below source_capacity; every value that the
/// library reports is.
///
///     const SourceCounts now = cache.stats().requests.found;
///     const SourceCounts since = now - before;
///     for (const Source source : all_sources) print(to_string(source), since[source]);
template <class T>
class PerSource {
 public:
  [[nodiscard]] constexpr T& operator[](Source source) { return values_[index(source)]; }
  [[nodiscard]] constexpr const T& operator[](Source source) const { return values_[index(source)]; }

  /// The sum over all sources, with those that this header does not know.
  [[nodiscard]] constexpr T sum() const {
    T all{};
    for (const T& value : values_) all = all + value;
    return all;
  }

  constexpr PerSource& operator+=(const PerSource& other) {
    for (std::size_t i = 0; i < source_capacity; ++i) values_[i] = values_[i] + other.values_[i];
    return *this;
  }
  constexpr PerSource& operator-=(const PerSource& other) {
    for (std::size_t i = 0; i < source_capacity; ++i) values_[i] = values_[i] - other.values_[i];
    return *this;
  }
  friend constexpr PerSource operator+(PerSource a, const PerSource& b) { return a += b; }
  friend constexpr PerSource operator-(PerSource a, const PerSource& b) { return a -= b; }
  friend bool operator==(const PerSource&, const PerSource&) = default;

 private:
  std::array<T, source_capacity> values_{};
};

using SourceCounts = PerSource<std::uint64_t>;

}  // namespace terrace
