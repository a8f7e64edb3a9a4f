#pragma once

#include "base/block_key.hpp"
#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "storage/resilience/guarded_store.hpp"
#include "storage/io/io_engine.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace terrace {

struct ScrubOptions {
  /// Read a second, at most; 0: off. 16 MiB are about a hundredth of what an NVMe drive reads, and a TiB in 18 hours.
  Bytes bandwidth = MiB * 16;
  /// From the start of a pass to that of the next, where it is over by then; at least a tenth of a second. A day, so that a
  /// small store is not read over and over for nothing.
  Duration period = std::chrono::hours{24};
};

enum class ScrubState : unsigned char {
  off,
  resting,  ///< until the next pass
  running,
  paused,   ///< in a pass, and the breaker is not closed
};
[[nodiscard]] const char* to_string(ScrubState state) noexcept;

struct ScrubHealth {
  ScrubState state = ScrubState::off;
  Bytes bandwidth{};
  std::uint64_t began_at = 0;      ///< the place of the store at which the pass at hand began, and before which it ends
  std::uint64_t place = 0;         ///< of the pass at hand: places of the store that it has behind it
  std::uint64_t places = 0;        ///< of the store, as last seen
  TimePoint next_pass = never;     ///< where it rests
  TimePoint last_pass_ended = never;  ///< never where none has
  Duration last_pass_took{};
  std::uint64_t passes = 0;        ///< that have ended, since construction, as are the rest
  std::uint64_t blocks = 0;        ///< read, and verified
  Bytes read{};                    ///< by them
  std::uint64_t corrupt = 0;       ///< blocks that did not verify: the store has given them up with their descendants
  std::uint64_t io_failed = 0;     ///< reads that failed with an error
  std::uint64_t passed_over = 0;   ///< blocks inside a back-off of theirs, not read in this pass
};

/// Reads all that a store holds, again and again, so that what has rotted on the device is found before somebody asks for it.
/// It compares nothing itself: the store verifies every read, and gives up what does not verify, with its descendants and
/// the events for its owner. (Schwarz et al., "Disk Scrubbing in Large Archival Storage Systems", MASCOTS 2004.)
///
/// A pass visits every place of the store once, in their order: from the place where it began to the store's end, and from 0 to
/// where it began. Blocks that stay where they are from its start to its end are read once. Where the store grows meanwhile, the
/// new places are visited too if the pass has not turned at the end yet; where it shrinks, those that stay are.
///
/// Where a pass has come to is not kept over a restart. Instead the first one may begin anywhere (start()), and those after it
/// begin there as well: whoever is stopped before a pass is over has another part of the store read after each start.
///
/// Pace: a poll begins all the reads that are due, reads_max() at most, once those of an earlier poll have ended; so an owner
/// that polls once a step of some tens of milliseconds has its rate kept. No more than these, a MiB or else one block, are ahead
/// of somebody else's read. In any time t no more than bandwidth * t is read, and reads_max() + 1 blocks: what could not be
/// begun in time is made up for so far, but not what came due while it was off, paused or at rest.
///
/// Where a poll finds operations of the owner's under way, a read waits for one that finds none, up to nine times the time that
/// a block has at this bandwidth, each after the one before it: however busy the store is, a tenth of the bandwidth remains. An
/// owner with one operation at a time, who begins the next when a poll has told of the last, leaves such a gap at each.
///
/// A poll looks at looks_max places at most; where it has come to the last of them, the next look is look_pause later. It
/// pauses while the guard's breaker is not closed, and never probes.
///
/// A state machine without a clock: time enters with poll(), and does not go back. Threads: one, the guard's. Allocates
/// nothing after construction.
class Scrub final : public StoreBackground {
 public:
  static constexpr std::uint32_t looks_max = 512;
  static constexpr Duration look_pause = std::chrono::milliseconds{10};
  static constexpr Duration period_min = std::chrono::milliseconds{100};
  /// Blocks of this size that may be under way: what a MiB holds, at least 1 and at most 32.
  [[nodiscard]] static constexpr std::uint32_t reads_max(Bytes block_bytes) {
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(MiB / block_bytes, 1, 32));
  }

  /// `engine`, where given, has the buffers registered while the scrub lives, and outlives it. Throws std::invalid_argument
  /// where a block has no bytes or the period is negative, std::bad_alloc.
  Scrub(Bytes block_bytes, const ScrubOptions& options, IoEngine* engine = nullptr);
  /// No read is under way: the store at the guard's end has been destroyed or closed before. So that nothing has to wait for a
  /// read here, it is constructed before the store.
  ~Scrub() override;
  Scrub(const Scrub&) = delete;
  Scrub& operator=(const Scrub&) = delete;

  /// Becomes the guard's background. Its blocks have the size given at construction. Once. The first pass begins now, at place
  /// `first` modulo the store's places: a number drawn at random, unless the same store is always scrubbed to the end.
  void start(GuardedStore& store, TimePoint now, std::uint64_t first = 0);
  /// From now on. A pass goes on where it was; what rests begins its next pass at the new period. Throws as the constructor.
  void set(const ScrubOptions& options, TimePoint now);
  [[nodiscard]] const ScrubOptions& options() const { return options_; }

  void poll(TimePoint now) override;
  [[nodiscard]] TimePoint next_deadline() const override { return wake_at_; }
  void on_read(const StoreEvent& event) override;

  [[nodiscard]] ScrubHealth health() const;

 private:
  enum class Owner : bool { idle, busy };
  enum class Leg : unsigned char {
    to_the_end,  ///< of the store, from where the pass began
    to_where_it_began,
    over,
  };

  [[nodiscard]] bool is_on() const { return count(options_.bandwidth) > 0; }
  void begin_pass(TimePoint now);
  void go_on(TimePoint now, Owner owner);  ///< with the pass, whose time has come
  /// Walks to the next readable block, over `looks` places at most, and takes those that it took off them.
  [[nodiscard]] std::optional<BlockKey> find(std::uint32_t& looks);
  void end_pass(TimePoint now);
  void take(const ScrubOptions& options);

  Bytes block_bytes_;
  AlignedBuffer buffer_;
  std::vector<StoreRead> reads_;  ///< each with its part of the buffer; free where none is under way
  IoEngine* engine_;
  ScrubOptions options_;
  Duration block_time_{};  ///< of one block at this bandwidth
  GuardedStore* store_ = nullptr;
  bool in_pass_ = false;
  bool held_up_ = true;    ///< reads that were due could not begin, for another reason than the pace or the owner's operations
  std::size_t under_way_ = 0;
  Leg leg_ = Leg::over;
  std::uint64_t first_ = 0;  ///< the place where passes begin; beyond the store: a number that one is to be made of
  std::uint64_t at_ = 0;   ///< the place where the pass goes on
  TimePoint due_{};        ///< of the next read
  TimePoint waits_until_{};  ///< the next read, for the owner's operations
  TimePoint look_at_{};    ///< not before
  TimePoint wake_at_ = never;
  TimePoint pass_began_{};
  TimePoint next_pass_{};
  ScrubHealth counted_;    ///< all but the state
};

}  // namespace terrace
