#pragma once

#include "base/completion_queue.hpp"
#include "base/waker.hpp"
#include "terrace/host_memory.hpp"
#include "terrace/types.hpp"
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
  /// The number of slots at the start; grow() adds more.
  std::uint32_t slots = 0;
  /// How many of these slots, rounded up to whole chunks, are warm when the constructor returns. The worker prepares the others.
  std::uint32_t ready_slots = 0;
  Bytes block_bytes{};
  /// The largest size of one chunk.
  Bytes chunk_bytes = GiB;
  TouchOptions touch;
  /// Reads the memory limits, before memory is taken and on the thread that takes it. Null: limits are not checked.
  std::function<MemoryLimits()> limits;
  /// How much memory must be left for the rest of the process. Applies if `limits` is set.
  Bytes spare = MiB * 64;
  /// Memory of another owner in which all slots lie, for example of a SharedRegion: slot n is row n. The arena neither touches
  /// this memory nor checks limits for it, and cannot grow beyond its rows. Empty: the arena takes memory from the kernel.
  std::optional<HostRows> rows;
  /// An object that the arena holds until its end, for example the owner of `rows`. May be null.
  std::shared_ptr<const void> rows_owner;
  /// Is woken when poll() has events. May be null. Must outlive the arena.
  Waker* waker = nullptr;
  /// The worker. Null: a ThreadArenaWorker, which is made when it is first needed.
  std::unique_ptr<ArenaWorker> worker;
};

/// The state of a chunk.
///
///     absent --grow--> reserved --- the worker starts ----> touching --all pages there, observers told--> warm
///        ▲                 |                                    |                                          |
///        |                 +-- cancelled, refused --+-- failed -+                              give_back   |
///        +------------------------------------------+---------------- unmapping <--------------------------+
enum class ChunkState : std::uint8_t { absent, reserved, touching, warm, unmapping };

/// The result of an order to add or remove a chunk.
struct ArenaEvent {
  enum class Kind : std::uint8_t { warm, failed, gone };
  Kind kind = Kind::gone;
  std::uint32_t chunk = 0;
  SlotSpan slots;
  std::string why;  ///< for `failed`: the reason, in one sentence; empty if the chunk was cancelled
};

/// The memory of the host tier: slots of one block each. The memory consists of chunks that are mapped one by one. Chunks can be
/// added and removed while others are in use.
///
/// Chunk n has the slots from n * slots_per_chunk() on. A chunk may have fewer slots than slots_per_chunk(), so slot numbers may
/// have gaps. If the block size is a multiple of the page size, slots begin at page boundaries and can be used for direct I/O. No
/// slot lies in two chunks, so no copy descriptor crosses two registrations. The memory belongs to the arena, or consists of rows
/// of another owner (HostArenaOptions::rows), which may have gaps between slots. The arena does not distinguish the uses of
/// slots: the host tier and the staging slots between device and storage share it.
///
/// A chunk is warm when its slots can be used. The warm chunks of the arena can be used from construction on; is_warm() is true
/// when no other chunks are being added. The worker maps and touches memory, reports it to observers and unmaps it, one chunk
/// after another. Several threads touch a chunk (transfer/host/first_touch.hpp). Only the constructor, observe() and unobserve()
/// wait for such work.
///
/// Ownership: observers must outlive their registration. Threads: grow(), cancel(), give_back(), poll(), observe(), unobserve()
/// and the data that they change (state, counts) belong to one thread, the control plane's. block(), contiguous_from() and
/// holds() may be called from any thread, for slots of a chunk that was warm when the caller got the slot.
class HostArena final : public HostSlots {
 public:
  /// Makes an arena whose slots are all warm. It may have 0 slots. Throws std::system_error if there is not enough memory (with
  /// purpose and size in its text), and std::invalid_argument if block_bytes is 0 or larger than a chunk.
  HostArena(std::uint32_t slots, Bytes block_bytes, Bytes chunk_bytes = GiB);
  /// Makes an arena of which `ready_slots` slots are warm. Throws the same, and std::runtime_error, with the largest size that
  /// fits in its text, if `limits` do not allow the memory, and std::invalid_argument if `rows` are not valid, are too few, or
  /// have another size than blocks.
  explicit HostArena(HostArenaOptions options);
  /// Cancels the chunks that are being made. The removal of every chunk is reported to observers before the chunk is unmapped.
  ~HostArena() override;
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  [[nodiscard]] Bytes block_bytes() const override { return block_bytes_; }
  [[nodiscard]] std::uint32_t slots_per_chunk() const { return slots_per_chunk_; }
  [[nodiscard]] std::span<std::byte> block(SlotId slot) const override;
  [[nodiscard]] std::uint32_t contiguous_from(SlotId slot) const override;
  /// Returns true if all these slots are in warm chunks.
  [[nodiscard]] bool holds(SlotSpan slots) const override;

  // ---- adding and removing chunks

  /// Orders chunks for `slots` more slots. All chunks are full, except that the last may be smaller. Each chunk ends in one
  /// event, `warm` or `failed`. Fails: never_fits (more slots than can be numbered, or than rows_left()); then nothing is
  /// ordered.
  [[nodiscard]] Result<void> grow(std::uint32_t slots);
  /// Returns true if grow(slots) would not fail.
  [[nodiscard]] bool can_grow(std::uint32_t slots) const;
  /// Returns the memory that the arena may still take (HostArenaOptions::limits and spare), or nothing if that is not limited.
  /// Reads the limits.
  [[nodiscard]] std::optional<Bytes> memory_left() const;
  /// Returns the number of slots that the rows of another owner have for grow(); no limit without such rows.
  [[nodiscard]] std::uint64_t rows_left() const;
  /// Returns a number that is larger than all slot numbers after grow(slots).
  [[nodiscard]] std::uint64_t numbers_after(std::uint32_t slots) const;
  /// Cancels a chunk that is reserved or touching. It ends in `failed`, or in `warm` if it was complete first.
  void cancel(std::uint32_t chunk);
  /// Removes a warm chunk, whose slots must not be in use any more. It ends in `gone`.
  void give_back(std::uint32_t chunk);
  /// Appends the events since the last call. Costs one comparison if no order is under way.
  void poll(std::vector<ArenaEvent>& events);
  /// Observers are called on the worker's thread, or during these two calls.
  [[nodiscard]] Result<void> observe(HostChunkObserver& observer) override;
  void unobserve(HostChunkObserver& observer) override;

  // ---- state

  /// Returns one more than the highest number that a chunk has had. Chunks below it may be absent.
  [[nodiscard]] std::uint32_t chunks_end() const { return chunks_end_; }
  [[nodiscard]] ChunkState state(std::uint32_t chunk) const { return place(chunk).state.load(std::memory_order_acquire); }
  /// Returns the slots of a chunk, or no slots if it is absent.
  [[nodiscard]] SlotSpan slots_of(std::uint32_t chunk) const;
  /// Returns the number of slots in warm chunks.
  [[nodiscard]] std::uint32_t slots() const override { return warm_slots_; }
  /// Returns the number of slots in chunks that are reserved or being touched.
  [[nodiscard]] std::uint32_t slots_coming() const { return coming_slots_; }
  /// Returns true if poll() has events, or will have some without a further call.
  [[nodiscard]] bool expects_events() const { return under_way_ > 0; }
  [[nodiscard]] bool is_warm() const { return coming_slots_ == 0; }
  /// Returns the size of all chunks that are not absent.
  [[nodiscard]] Bytes mapped() const { return mapped_; }
  /// Returns the result of the first touch of a warm chunk.
  [[nodiscard]] const FirstTouch& got(std::uint32_t chunk) const { return place(chunk).got; }

 private:
  struct Place {
    std::atomic<std::byte*> begin{nullptr};
    std::atomic<std::uint32_t> slots{0};  ///< the number of slots that block() accepts
    std::atomic<ChunkState> state{ChunkState::absent};
    std::atomic<bool> cancelled{false};
    std::uint32_t size = 0;  ///< the number of slots; used by the control plane
    // Between an order and its event these belong to the worker, otherwise to the control plane.
    Mapping mapping;
    FirstTouch got;
    bool shown = false;  ///< the chunk is mapped and was reported to the observers; protected by observing_
  };
  static constexpr std::uint32_t places_per_segment = 256;
  static constexpr std::uint32_t segments_max = 1024;
  static constexpr std::uint32_t chunks_max = places_per_segment * segments_max;
  using Segment = std::array<Place, places_per_segment>;

  [[nodiscard]] Place& place(std::uint32_t chunk) const;
  [[nodiscard]] Place* place_of(SlotId slot) const;
  [[nodiscard]] HostChunk chunk_at(std::uint32_t chunk) const;
  [[nodiscard]] std::uint32_t slots_max(std::uint32_t chunk) const;
  [[nodiscard]] std::uint32_t new_chunk(std::uint32_t slots);
  /// Gives the chunk its memory: new addresses, or its rows.
  void map(std::uint32_t chunk, const std::string& what);
  [[nodiscard]] FirstTouch touch(Place& p);
  [[nodiscard]] std::optional<std::string> make(std::uint32_t chunk, Bytes with_those_after);
  void unmake(std::uint32_t chunk);
  [[nodiscard]] std::optional<std::string> report_added(std::uint32_t chunk);
  [[nodiscard]] std::vector<std::uint32_t> shown_chunks() const;
  void show(std::uint32_t chunk);
  void do_later(ArenaWorker::Task task);

  const Bytes block_bytes_;
  const Bytes stride_;  ///< from slot to slot of a chunk
  const std::uint32_t slots_per_chunk_;
  HostArenaOptions options_;  ///< constant, except that the worker is moved out
  PageChoice pages_;          ///< used by the constructor, then by the worker

  // These belong to the control plane.
  std::uint32_t chunks_end_ = 0;
  std::uint32_t warm_slots_ = 0;
  std::uint32_t coming_slots_ = 0;
  std::uint32_t under_way_ = 0;  ///< orders that have no event yet
  Bytes mapped_{};
  std::vector<std::uint32_t> absent_;  ///< absent chunks below chunks_end_, in any order

  std::mutex observing_;
  std::vector<HostChunkObserver*> observers_;  ///< protected by observing_, as are the calls to them

  /// Segments never move, because other threads read them.
  std::array<std::atomic<Segment*>, segments_max> segments_{};
  std::vector<std::unique_ptr<Segment>> owned_segments_;
  NullWaker null_waker_;
  CompletionQueue<ArenaEvent> done_;
  CompletionQueue<ArenaEvent>::Producer ended_;  ///< used by the worker
  std::unique_ptr<ArenaWorker> worker_;          ///< destroyed first
};

}  // namespace terrace
