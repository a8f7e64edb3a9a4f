#pragma once

#include "base/bytes.hpp"
#include "base/completion_queue.hpp"
#include "base/strong_id.hpp"
#include "base/waker.hpp"
#include "transfer/host/arena_chunks.hpp"
#include "transfer/host/arena_worker.hpp"
#include "transfer/host/first_touch.hpp"
#include "transfer/host/mapping.hpp"
#include "transfer/host/memory_limits.hpp"
#include "transfer/host/page_choice.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace {

struct HostArenaOptions {
  /// To begin with; grow() adds more.
  std::uint32_t slots = 0;
  /// Of these so many, rounded up to whole chunks, are warm when the constructor returns; the worker sees to the rest.
  std::uint32_t ready_slots = 0;
  Bytes block_bytes{};
  /// Of one chunk, at most.
  Bytes chunk_bytes = GiB;
  TouchOptions touch;
  /// Asked before memory is taken, by whoever takes it. Null: nobody asks.
  std::function<MemoryLimits()> limits;
  /// What the rest of the process is to be left when `limits` is asked.
  Bytes spare = MiB * 64;
  /// Woken when poll() has something. Null: nobody. Outlives the arena.
  Waker* waker = nullptr;
  /// Null: a thread, made when it is first needed.
  std::unique_ptr<ArenaWorker> worker;
};

/// Where a chunk is in its life.
///
///     absent --grow--> reserved --the worker takes it up--> touching --all pages there, observers told--> warm
///        ▲                 |                                    |                                          |
///        |                 +-- cancelled, refused --+-- failed -+                              give_back   |
///        +------------------------------------------+---------------- unmapping <--------------------------+
enum class ChunkState : std::uint8_t { absent, reserved, touching, warm, unmapping };

/// What became of a chunk that was ordered or given back.
struct ArenaEvent {
  enum class Kind : std::uint8_t { warm, failed, gone };
  Kind kind = Kind::gone;
  std::uint32_t chunk = 0;
  SlotSpan slots;
  std::string why;  ///< failed: one sentence; empty where it was cancelled
};

/// The host tier's memory: slots of one block each, in chunks that are mapped one by one, and come and go while others serve.
/// Chunk n has the slots from n * slots_per_chunk() on; all chunks but those that were asked for with less are full, so that
/// slot numbers may have gaps. Slots start at page boundaries where the block size is a multiple of the page, so that
/// they serve as direct I/O buffers, and never straddle two chunks, so that no copy descriptor crosses two registrations.
///
/// What a slot is for is its owner's affair: the host tier's copies, and the staging slots through which device and storage meet,
/// share the arena.
///
/// Ready and warm: the arena can be used for the chunks that are warm, from the constructor on; it is_warm() when there are no
/// others. Memory is mapped, touched, shown to observers and unmapped by the worker, one chunk after the other, each
/// touched by several threads (transfer/host/first_touch.hpp); no other call but the constructor, observe() and unobserve() waits
/// for that.
///
/// Threads: grow, cancel, give_back, poll, observe and what they change (state, counts) are for one thread, the control plane's.
/// block() and the like are for any, for slots of chunks that were warm when whoever names the slot was told of it.
class HostArena {
 public:
  /// All slots warm when it returns; 0 is an arena without any. Throws std::system_error where the memory is not to be had
  /// (what, how much), and std::invalid_argument where block_bytes is 0 or over a chunk.
  HostArena(std::uint32_t slots, Bytes block_bytes, Bytes chunk_bytes = GiB);
  /// The same for ready_slots. Throws also std::runtime_error, with the largest size that fits, where `limits` refuse.
  explicit HostArena(HostArenaOptions options);
  /// Ends the touching under way. Observers are told of every chunk's end before.
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  [[nodiscard]] Bytes block_bytes() const { return block_bytes_; }
  [[nodiscard]] std::uint32_t slots_per_chunk() const { return slots_per_chunk_; }
  [[nodiscard]] std::span<std::byte> block(SlotId slot) const;
  /// How many slots from this one on lie in one piece of memory, itself included.
  [[nodiscard]] std::uint32_t contiguous_from(SlotId slot) const;
  /// Whether all these slots are there.
  [[nodiscard]] bool holds(SlotSpan slots) const;

  // ---- coming and going

  /// Orders chunks for so many more slots, none of them larger than a chunk, the last as large as needed. Each ends in one
  /// event: warm, or failed. Fails, and orders none: never_fits (more slots than can be numbered).
  [[nodiscard]] Result<void> grow(std::uint32_t slots);
  /// Slot numbers are below this after growing by so many.
  [[nodiscard]] std::uint64_t numbers_after(std::uint32_t slots) const;
  /// A chunk that is reserved or touching is not wanted any more: it ends in `failed`, or in `warm` where that came first.
  void cancel(std::uint32_t chunk);
  /// A warm chunk, whose slots nobody names any more: it ends in `gone`.
  void give_back(std::uint32_t chunk);
  /// Appends what has ended since the last call. Costs a comparison where nothing is under way.
  void poll(std::vector<ArenaEvent>& events);
  /// From now on `observer` is told of chunks, beside those who are already; first of all that are warm now. Fails as it does:
  /// then it observes nothing. Both wait for the chunk that is just being made.
  [[nodiscard]] Result<void> observe(ArenaChunks& observer);
  /// It is told that all go, and of no more. Does nothing where it does not observe.
  void unobserve(ArenaChunks& observer);

  // ---- what there is

  /// Chunks by number: those below it are, or have been.
  [[nodiscard]] std::uint32_t chunks_end() const { return chunks_end_; }
  [[nodiscard]] ChunkState state(std::uint32_t chunk) const { return place(chunk).state.load(std::memory_order_acquire); }
  /// None where it is absent.
  [[nodiscard]] SlotSpan slots_of(std::uint32_t chunk) const;
  /// Warm ones.
  [[nodiscard]] std::uint32_t slots() const { return warm_slots_; }
  /// Those that are reserved or being touched.
  [[nodiscard]] std::uint32_t slots_coming() const { return coming_slots_; }
  [[nodiscard]] bool is_warm() const { return coming_slots_ == 0; }
  /// Of all chunks that are not absent.
  [[nodiscard]] Bytes mapped() const { return mapped_; }
  /// What a warm chunk got of what was wished for.
  [[nodiscard]] const FirstTouch& got(std::uint32_t chunk) const { return place(chunk).got; }

 private:
  struct Place {
    std::atomic<std::byte*> begin{nullptr};
    std::atomic<std::uint32_t> slots{0};  ///< that block() may give
    std::atomic<ChunkState> state{ChunkState::absent};
    std::atomic<bool> cancelled{false};
    std::uint32_t size = 0;  ///< slots; the control plane's
    // The worker's between an order and its event, else the control plane's.
    Mapping mapping;
    FirstTouch got;
    bool shown = false;  ///< mapped, and the observers know; under observing_
  };
  static constexpr std::uint32_t places_per_segment = 256;
  static constexpr std::uint32_t segments_max = 1024;
  static constexpr std::uint32_t chunks_max = places_per_segment * segments_max;
  using Segment = std::array<Place, places_per_segment>;

  [[nodiscard]] Place& place(std::uint32_t chunk) const;
  [[nodiscard]] Place* place_of(SlotId slot) const;
  [[nodiscard]] ArenaChunk chunk_at(std::uint32_t chunk) const;
  [[nodiscard]] std::uint32_t new_chunk(std::uint32_t slots);
  [[nodiscard]] FirstTouch touch(Place& p);
  [[nodiscard]] std::optional<std::string> make(std::uint32_t chunk, Bytes with_those_after);
  void unmake(std::uint32_t chunk);
  [[nodiscard]] std::optional<std::string> tell_added(std::uint32_t chunk);
  [[nodiscard]] std::vector<std::uint32_t> shown_chunks() const;
  void show(std::uint32_t chunk);
  void do_later(ArenaWorker::Task task);

  const Bytes block_bytes_;
  const std::uint32_t slots_per_chunk_;
  HostArenaOptions options_;  ///< constant, but that its worker was taken
  PageChoice pages_;          ///< the constructor's, then the worker's

  // The control plane's.
  std::uint32_t chunks_end_ = 0;
  std::uint32_t warm_slots_ = 0;
  std::uint32_t coming_slots_ = 0;
  std::uint32_t under_way_ = 0;  ///< orders without an event
  Bytes mapped_{};
  std::vector<std::uint32_t> absent_;  ///< chunks below chunks_end_ that are to be had, highest first

  std::mutex observing_;
  std::vector<ArenaChunks*> observers_;  ///< under observing_, as are calls to them

  /// Places keep where they are: others read them meanwhile.
  std::array<std::atomic<Segment*>, segments_max> segments_{};
  std::vector<std::unique_ptr<Segment>> owned_segments_;
  NullWaker nobody_;
  CompletionQueue<ArenaEvent> done_;
  CompletionQueue<ArenaEvent>::Producer ended_;  ///< the worker's
  std::unique_ptr<ArenaWorker> worker_;          ///< ends first
};

}  // namespace terrace
