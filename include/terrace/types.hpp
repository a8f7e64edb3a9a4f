#pragma once

#include "terrace/export.hpp"
#include "terrace/result.hpp"

#include <array>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace terrace {

/// An integer with a meaning of its own. Ids of two kinds cannot be mixed, and ids have no arithmetic.
template <class Tag, class Rep = std::uint32_t>
class StrongId {
 public:
  using rep = Rep;

  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep value) : value_{value} {}

  [[nodiscard]] constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;

 private:
  Rep value_{};
};

/// The number of a slot: a place for one block in the pool of one tier. The context says which pool.
using SlotId = StrongId<struct SlotIdTag>;
/// The number of a KV cache group: layers that share a block table and have the same kind of attention.
using GroupId = StrongId<struct GroupIdTag, std::uint16_t>;
/// The number of a TieredPool: the pools of one block size in all tiers.
using PoolId = StrongId<struct PoolIdTag, std::uint16_t>;
/// The owner of blocks, for quotas, statistics and write-back jobs. It is the first eight bytes of the root key
/// (BlockKey::prefix64).
using TenantId = StrongId<struct TenantIdTag, std::uint64_t>;
/// A caller's request. No two requests that have not ended have the same id.
using RequestId = StrongId<struct RequestIdTag, std::uint64_t>;
/// One transfer. Its creator chooses the id. No two transfers that have not ended have the same id.
using TransferId = StrongId<struct TransferIdTag, std::uint64_t>;
/// A point on a device's compute timeline. Work that waits for a fence starts after everything that was recorded before that
/// point. The value 0 means that there is nothing to wait for.
using Fence = StrongId<struct FenceTag, std::uint64_t>;
/// A counter that is increased by a reset or a weight update. The results of work from an older epoch are dropped.
using Epoch = StrongId<struct EpochTag>;

/// A set of blocks that a caller keeps from eviction.
using PinId = StrongId<struct PinIdTag, std::uint64_t>;

/// Names a retention: a caller's order to give a prefix some priority. The caller chooses the id.
using RetentionId = StrongId<struct RetentionIdTag, std::uint64_t>;

/// The priority that a caller gave to a block (Administration::retain). A policy that respects priorities evicts candidates of
/// lower priority first, however recently they were used. LruPolicy and AdaptivePolicy do so; a policy may ignore priorities.
using Priority = std::uint8_t;
inline constexpr Priority usual_priority = 7;
inline constexpr Priority lowest_priority = 0;
inline constexpr Priority highest_priority = 14;

/// A count with a meaning of its own. Counts of two kinds cannot be mixed. A constant converts implicitly if it fits, and a
/// number that is known only at run time needs the name of the type: `options.device_blocks = 4096`, `options.device_blocks =
/// Blocks{n}`.
template <class Tag>
class StrongCount {
 public:
  using rep = std::uint32_t;

  constexpr StrongCount() = default;
  constexpr explicit StrongCount(rep value) : value_{value} {}
  /// Only for constants. A value that does not fit does not compile.
  template <std::integral Constant>
    requires(!std::same_as<Constant, bool>)
  consteval StrongCount(Constant value) : value_{static_cast<rep>(value)} {  // NOLINT(google-explicit-constructor)
    if (!std::in_range<rep>(value)) throw "the constant does not fit into 32 bits";
  }

  [[nodiscard]] constexpr rep value() const { return value_; }
  friend constexpr auto operator<=>(StrongCount, StrongCount) = default;
  constexpr StrongCount& operator+=(StrongCount other) { return *this = *this + other; }
  constexpr StrongCount& operator-=(StrongCount other) { return *this = *this - other; }
  [[nodiscard]] friend constexpr StrongCount operator+(StrongCount a, StrongCount b) { return StrongCount{a.value_ + b.value_}; }
  [[nodiscard]] friend constexpr StrongCount operator-(StrongCount a, StrongCount b) { return StrongCount{a.value_ - b.value_}; }

 private:
  rep value_{};
};

/// A count of blocks of one pool.
using Blocks = StrongCount<struct BlocksTag>;
/// A count of hash units of a request (hash_unit()). Without groups, a hash unit is one block of the first pool.
using HashUnits = StrongCount<struct HashUnitsTag>;

/// A size in bytes, never a count of blocks.
enum class Bytes : std::uint64_t {};

[[nodiscard]] constexpr std::uint64_t count(Bytes b) { return static_cast<std::uint64_t>(b); }
[[nodiscard]] constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes{count(a) + count(b)}; }
[[nodiscard]] constexpr Bytes operator-(Bytes a, Bytes b) { return Bytes{count(a) - count(b)}; }
[[nodiscard]] constexpr Bytes operator*(Bytes a, std::uint64_t n) { return Bytes{count(a) * n}; }
[[nodiscard]] constexpr std::uint64_t operator/(Bytes a, Bytes b) { return count(a) / count(b); }
constexpr Bytes& operator+=(Bytes& a, Bytes b) { return a = a + b; }

inline constexpr Bytes KiB{std::uint64_t{1} << 10};
inline constexpr Bytes MiB{std::uint64_t{1} << 20};
inline constexpr Bytes GiB{std::uint64_t{1} << 30};
inline constexpr Bytes TiB{std::uint64_t{1} << 40};

/// Reads `64GiB`, `1.5MiB`, `512B` or `4096` (plain bytes). All units are binary; `GB` is an error, because its meaning is
/// ambiguous. Fails: invalid_argument (not a number, unknown unit, not a whole number of bytes, over 2^64 - 1, or more than nine
/// digits after the point).
[[nodiscard]] TERRACE_API Result<Bytes> parse_bytes(std::string_view text);

/// Returns the size in the largest unit that fits, exactly or rounded to at least three digits: `64GiB`, `1.5MiB`, `517B`.
[[nodiscard]] TERRACE_API std::string to_string(Bytes size);

/// Whether to ask the kernel for huge pages. Do not ask for memory of which only a little may be used: the first access to a huge
/// page allocates all of it.
enum class HugePages : bool { no, yes };

/// The places where a copy of a block can be, fastest first.
enum class Tier : unsigned char { device, host, storage };

inline constexpr std::size_t tier_count = 3;
inline constexpr std::array<Tier, tier_count> all_tiers{Tier::device, Tier::host, Tier::storage};

[[nodiscard]] constexpr std::size_t index(Tier t) { return static_cast<std::size_t>(t); }

[[nodiscard]] constexpr std::string_view to_string(Tier t) {
  switch (t) {
    case Tier::device: return "device";
    case Tier::host: return "host";
    case Tier::storage: return "storage";
  }
  return "?";
}

/// The name of a block: 32 bytes that identify the block's content and all blocks before it. terrace/keys.hpp makes
/// keys; all other code only compares them. A plain value.
struct TERRACE_API BlockKey {
  std::array<std::byte, 32> bytes{};

  /// Compares whole words. The default comparison would compare the array byte by byte.
  friend bool operator==(const BlockKey& a, const BlockKey& b) noexcept {
    return std::memcmp(a.bytes.data(), b.bytes.data(), sizeof a.bytes) == 0;
  }
  friend auto operator<=>(const BlockKey&, const BlockKey&) = default;

  /// Returns the key's first eight bytes as a number. A key is a digest, so these bytes serve as a hash.
  [[nodiscard]] std::uint64_t prefix64() const noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    return word;
  }
};

/// Returns the key as 64 lower-case hexadecimal digits.
[[nodiscard]] TERRACE_API std::string to_hex(const BlockKey& key);
/// The inverse of to_hex(). Fails: invalid_argument.
[[nodiscard]] TERRACE_API Result<BlockKey> parse_block_key(std::string_view hex);

/// Bytes per second, so that a bandwidth is never mixed up with a size. 0 stands for "no limit" where an option says so.
enum class BytesPerSecond : std::uint64_t {};

[[nodiscard]] constexpr std::uint64_t count(BytesPerSecond b) { return static_cast<std::uint64_t>(b); }
/// `per_second(MiB * 50)` is 50 MiB/s.
[[nodiscard]] constexpr BytesPerSecond per_second(Bytes size) { return BytesPerSecond{count(size)}; }

/// Reads a size per second: `50MiB/s`, `1.5GiB/s`. The `/s` may be left out. Returns nothing if the text is not a bandwidth.
[[nodiscard]] TERRACE_API std::optional<BytesPerSecond> parse_bandwidth(std::string_view text);

/// Returns the exact bandwidth in the largest unit that divides it: `50MiB/s`.
[[nodiscard]] TERRACE_API std::string to_string(BytesPerSecond bandwidth);

/// A place from which a cached block can come, nearest first: a tier of this cache, or a store behind it. Hits, statistics,
/// events and reports name sources. Operations on the memory of one cache, for example a resize, name a Tier.
///
/// `shared` is a store that several machines share (SharedStore). More sources may be added. Each gets the next larger value, and
/// is last in the order. No value ever changes its meaning. So a program that was compiled with this header works with a later
/// library if it treats a value that it does not know as "slower than storage":
///
///     switch (source) {
///       case Source::device: ...
///       case Source::host: ...
///       default: ...  // storage, and every source that is slower
///     }
enum class Source : std::uint8_t { device = 0, host = 1, storage = 2, shared = 3 };

/// All sources that this header knows, in their order.
inline constexpr std::array all_sources{Source::device, Source::host, Source::storage, Source::shared};
inline constexpr std::size_t source_count = all_sources.size();
/// The largest number of sources that the layout of PerSource allows. Every value of Source is smaller.
inline constexpr std::size_t source_capacity = 8;
static_assert(source_count <= source_capacity);

[[nodiscard]] constexpr std::size_t index(Source source) { return static_cast<std::size_t>(source); }

/// The name in reports. "unknown" for a source that this header does not know.
[[nodiscard]] constexpr std::string_view to_string(Source source) {
  switch (source) {
    case Source::device: return "device";
    case Source::host: return "host";
    case Source::storage: return "storage";
    case Source::shared: return "shared";
  }
  return "unknown";
}

/// Returns the source that corresponds to a tier of this cache.
[[nodiscard]] constexpr Source to_source(Tier tier) { return static_cast<Source>(tier); }
static_assert(to_source(Tier::device) == Source::device && to_source(Tier::host) == Source::host &&
              to_source(Tier::storage) == Source::storage);

/// One value for each source. Plain data, with room for sources that a later library adds: the layout does not change then, and
/// sum() includes them even in a program that does not know them. An index must be below source_capacity; every value that the
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

  /// Returns the sum over all sources, including sources that this header does not know.
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

template <class Tag, class Rep>
struct std::hash<terrace::StrongId<Tag, Rep>> {
  std::size_t operator()(terrace::StrongId<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value()); }
};

template <>
struct std::hash<terrace::BlockKey> {
  std::size_t operator()(const terrace::BlockKey& key) const noexcept { return key.prefix64(); }
};
