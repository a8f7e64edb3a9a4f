#pragma once

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "storage/aligned_buffer.hpp"
#include "storage/guarded_store.hpp"
#include "storage/io_engine.hpp"

#include <chrono>
#include <cstdint>

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
/// A pass visits every place of the store once, in their order: blocks that stay where they are from its start to its end
/// are read once. Where a pass has come to is not kept over a restart.
///
/// Pace: one read at a time, so that at most one block's read is ahead of somebody else's. In any time t no more than
/// bandwidth * t is read, and two blocks; less where the owner polls seldom, since a poll begins one read at most: an engine
/// that is busy and polls once a step has a block or less scrubbed in each. Where the owner's operations are under way a read
/// waits for them to end, up to nine times the time that its block has at this bandwidth: however busy the store is, a tenth of
/// the bandwidth remains. A stretch without readable blocks is walked over in steps of looks_max places, look_pause apart. It
/// pauses while the guard's breaker is not closed, and never probes.
///
/// A state machine without a clock: time enters with poll(), and does not go back. Threads: one, the guard's. Allocates
/// nothing after construction.
class Scrub final : public StoreBackground {
 public:
  static constexpr std::uint32_t looks_max = 512;
  static constexpr Duration look_pause = std::chrono::milliseconds{10};
  static constexpr Duration period_min = std::chrono::milliseconds{100};

  /// `engine`, where given, has the buffer registered while the scrub lives, and outlives it. Throws std::invalid_argument
  /// where the period is negative, std::bad_alloc.
  Scrub(Bytes block_bytes, const ScrubOptions& options, IoEngine* engine = nullptr);
  /// No read is under way: the store at the guard's end has been destroyed or closed before. So that nothing has to wait for a
  /// read here, it is constructed before the store.
  ~Scrub() override;
  Scrub(const Scrub&) = delete;
  Scrub& operator=(const Scrub&) = delete;

  /// Becomes the guard's background. Its blocks have the size given at construction. Once. The first pass begins now.
  void start(GuardedStore& store, TimePoint now);
  /// From now on. A pass goes on where it was; what rests begins its next pass at the new period. Throws as the constructor.
  void set(const ScrubOptions& options, TimePoint now);
  [[nodiscard]] const ScrubOptions& options() const { return options_; }

  void poll(TimePoint now) override;
  [[nodiscard]] TimePoint next_deadline() const override { return wake_at_; }
  void on_read(const StoreEvent& event) override;

  [[nodiscard]] ScrubHealth health() const;

 private:
  [[nodiscard]] bool is_on() const { return count(options_.bandwidth) > 0; }
  void go_on(TimePoint now);  ///< a step of the pass, whose time has come
  void end_pass(TimePoint now);
  void take(const ScrubOptions& options);

  Bytes block_bytes_;
  AlignedBuffer buffer_;
  IoEngine* engine_;
  ScrubOptions options_;
  Duration block_time_{};  ///< of one block at this bandwidth
  GuardedStore* store_ = nullptr;
  bool in_pass_ = false;
  bool reading_ = false;
  bool held_up_ = true;    ///< when the next step was due it could not be taken, for another reason than the owner's operations
  TimePoint due_{};        ///< of the pass's next step
  TimePoint wake_at_ = never;
  TimePoint pass_began_{};
  TimePoint next_pass_{};
  ScrubHealth counted_;    ///< all but the state
};

}  // namespace terrace
