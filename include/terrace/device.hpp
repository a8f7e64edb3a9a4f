#pragma once

#include "terrace/clock.hpp"
#include "terrace/export.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"
#include "terrace/waker.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace terrace {

/// The direction in which bytes cross the link between device and host.
enum class Direction : unsigned char { swap_out, swap_in };
inline constexpr std::size_t direction_count = 2;

/// How urgent a transfer is, most urgent first. The transfers of one direction and one urgency form a lane.
enum class Urgency : unsigned char {
  request,    ///< a request waits for it: a swap-in, or a swap-out that frees slots for a request
  make_room,  ///< frees slots before a request needs them
  store,      ///< its blocks go to storage; no request waits for it
};
inline constexpr std::size_t urgency_count = 3;
/// Rate limits by urgency; 0: no limit.
using LaneRates = std::array<BytesPerSecond, urgency_count>;

/// How transfers are cut into pieces, and how much of them is under way on a link at once, in each direction.
struct TransferPieces {
  /// Maximum size of a piece, in bytes. A piece is never smaller than one block (in a transfer by layer: one layer of one block).
  Bytes bytes = MiB * 2;
  /// Transfers of Urgency::request have at most this many bytes and pieces under way at once, or two larger pieces. All other
  /// transfers together also have at most this many bytes and pieces under way, or one larger piece. They start no piece while a
  /// transfer of a request has a piece to start. So the link stays busy while the end of a piece is being noticed, and a request
  /// waits for at most this many bytes of other transfers. Each number is at least 1.
  Bytes bytes_in_flight = MiB * 8;
  std::uint32_t in_flight = 32;
};

/// Transfers of one direction and urgency that have been ordered and have not ended.
struct TransferQueue {
  Direction direction = Direction::swap_out;
  Urgency urgency = Urgency::request;
  std::uint64_t transfers = 0;
  std::uint64_t blocks = 0;
  double oldest_seconds = 0;  ///< time since the oldest transfer was ordered; 0: there is none
};

/// `count` blocks at adjacent slots on both sides. For swap_out, the source is on the device and the destination in the host
/// arena; for swap_in, it is the other way round.
struct SlotRun {
  SlotId source{};
  SlotId destination{};
  std::uint32_t count = 1;

  friend bool operator==(const SlotRun&, const SlotRun&) = default;
};

/// Adjacent layers of a block. All blocks of a pool have the same number of layers (DevicePool::layers), and all layers have the
/// same size. Only the device knows where the bytes of a layer are within a block.
struct LayerRange {
  std::uint32_t first = 0;
  std::uint32_t count = 1;

  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

class HostSlots;  // terrace/host_memory.hpp

/// The bytes of every host slot that belong to one device. If ranks share an arena, each rank has a part
/// of its own (RankPayload::sharded), or all have the same part (replicated).
struct HostShare {
  Bytes offset{};
  Bytes bytes{};  ///< 0: all bytes from the offset on
};

/// Returns the size of the share. Throws std::invalid_argument if the share is empty or not within a host slot.
[[nodiscard]] TERRACE_API Bytes checked_size(const HostShare& share, const HostSlots& host);

/// The blocks of one size on a device.
struct DevicePool {
  std::uint32_t slots = 0;
  /// The size of one block, all its regions together. The device's share of one host slot has the same size.
  Bytes block_bytes{};
  /// The number of layers in one block, all of the same size. A transfer by layer moves them one after another. 1: blocks are
  /// moved as a whole.
  std::uint32_t layers = 1;
};

struct TERRACE_API DeviceInfo {
  std::string name{};
  std::vector<DevicePool> pools{};  ///< by PoolId; at least one

  [[nodiscard]] const DevicePool& pool(PoolId id = {}) const { return pools.at(id.value()); }
};

/// One part of every block of a pool. The part of block b begins at base + b * stride and has `bytes` bytes. Engines have one
/// region for each layer and for K and V. A pool of packed blocks has one region for each layer, and the stride is the size of a
/// block. The parts of a block, in the order of the regions, make up one contiguous host slot.
///
/// The memory is the caller's, and must outlive the device or its relocate(). Example: two layers, each an array of `n` blocks of
/// K and, behind it, `n` blocks of V, with `half` bytes of each block in each:
///
///     {{k0, half, half, 0}, {k0 + n * half, half, half, 0}, {k1, half, half, 1}, {k1 + n * half, half, half, 1}}
struct DeviceRegion {
  /// An address in the device's memory; for a device in ordinary memory, an address in this process.
  std::uint64_t base = 0;
  std::uint64_t stride = 0;
  std::uint64_t bytes = 0;
  std::uint32_t layer = 0;  ///< the layer to which the bytes belong; used by commands that name layers

  friend bool operator==(const DeviceRegion&, const DeviceRegion&) = default;
};

/// The memory of one pool on both sides, between which a device copies blocks.
struct PoolMemory {
  std::uint32_t slots = 0;
  /// Must outlive the device, which may observe it. Several pools may have the same.
  HostSlots* host = nullptr;
  /// The part of every host slot that belongs to the device: one block. It is the whole slot, unless ranks share the host slots.
  HostShare share{};
  /// The number of layers in a block that the device allocates; the layers are adjacent. Regions name their layer.
  std::uint32_t layers = 1;
  /// Memory of the engine, which must outlive the device or its relocate(). Empty: the device allocates packed, zeroed blocks.
  std::vector<DeviceRegion> regions{};
};

/// The new addresses of the blocks of one pool.
struct RelocatedPool {
  PoolId pool{};
  std::vector<DeviceRegion> regions{};
};

/// Names a stream of the caller, on which the caller's compute runs in order. The handle is a CUstream (or cudaStream_t) for a
/// CUDA device, and an EmulatedStream* for an emulated device. A device that does all work at once ignores the handle. Null is
/// the legacy default stream of a CUDA device.
///
/// Ownership: none. The stream must exist during the call to which it is passed.
struct StreamRef {
  void* handle = nullptr;

  constexpr StreamRef() = default;
  // NOLINTNEXTLINE(google-explicit-constructor,hicpp-explicit-conversions): a cudaStream_t can be passed as it is
  constexpr StreamRef(void* stream) : handle{stream} {}

  friend bool operator==(const StreamRef&, const StreamRef&) = default;
};

/// An order to a device to make a copy. It is a part of a transfer, and so small that an urgent transfer does not wait long for
/// it. The commands of one direction run in the order of submission. The two directions run at the same time.
struct CopyCommand {
  std::uint64_t token = 0;  ///< is returned in CopyDone
  Direction direction = Direction::swap_out;
  /// No device slot is read or written before the device's compute has reached this point.
  Fence after{};
  std::vector<SlotRun> runs{};
  PoolId pool = {};  ///< the pool of the slots in `runs`
  /// Copies only these layers of each block. Empty: whole blocks.
  std::optional<LayerRange> layers = {};
};

/// Checks by TERRACE_CHECK that all slots and layers of the command exist, because only Terrace's own runtime chooses them.
TERRACE_API void check_slots(const CopyCommand& command, const DevicePool& pool, const HostSlots& host);

/// Reports the end of a command. The device does not access the command's slots any more.
struct CopyDone {
  std::uint64_t token = 0;
  ErrorCode error{};  ///< if set, any part of the destinations may have been written
  /// How long the command has used its stream, not including its wait for compute. 0: unknown.
  Duration took{};
};

/// Gives access to a device's blocks to work that runs on the compute timeline.
class TERRACE_API BlockAccess {
 public:
  virtual ~BlockAccess() = default;
  /// Returns the bytes of a block: in place if the host can address them, otherwise copied to `scratch`, which must be as large
  /// as a block.
  [[nodiscard]] virtual std::span<const std::byte> read(PoolId pool, SlotId slot, std::span<std::byte> scratch) = 0;
  /// Returns where to write the bytes of a block: in place, or in `scratch`. The block has these bytes only after a call of
  /// written() with the same arguments.
  [[nodiscard]] virtual std::span<std::byte> write_target(PoolId pool, SlotId slot, std::span<std::byte> scratch) = 0;
  virtual void written(PoolId pool, SlotId slot, std::span<std::byte> scratch) = 0;

  /// The same for the first pool.
  [[nodiscard]] std::span<const std::byte> read(SlotId slot, std::span<std::byte> scratch) { return read({}, slot, scratch); }
  [[nodiscard]] std::span<std::byte> write_target(SlotId slot, std::span<std::byte> scratch) {
    return write_target({}, slot, scratch);
  }
  void written(SlotId slot, std::span<std::byte> scratch) { written({}, slot, scratch); }
};

using ComputeWork = std::function<void(BlockAccess&)>;

/// A device that holds blocks, and its link to host arenas: one arena for each pool, or shared arenas. It executes copy commands,
/// and makes no decisions. This interface is experimental.
///
/// *Streams of the caller.* An engine that computes on its own streams can order them with the copies on the device, without a
/// wait on the host. signal() marks the work that is on a stream now; a command that names this point starts after that work.
/// await() is the opposite: a stream waits for copies.
///
///     const Fence written = *device.signal(stream);           // the kernels that write the block are on the stream
///     device.submit({.token = 7, .direction = Direction::swap_out, .after = written, .runs = runs});
///     …
///     const std::uint64_t copy[] = {7};
///     if (const Result<void> ordered = device.await(stream, copy); !ordered) …  // not_ready: again after the next poll
///     …launch the kernels that write the block again…
///
/// Ownership: the arenas must outlive the device. Threads: submit(), poll() and set_waker() from one thread, the transfer
/// engine's; launch() and signal() from one thread, the caller's compute side, which may be another; relocate() from
/// any, while nothing is submitted, launched or awaited; await(), reached() and after_all_work() from any.
class TERRACE_API Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const DeviceInfo& info() const = 0;

  /// Sets the waker that is woken when poll() has something. Must be called before the first submit(). When this call returns,
  /// the device does not use the former waker any more. So a device may outlive a waker if the waker is replaced in time.
  virtual void set_waker(Waker& waker) = 0;
  /// Queues the command. Exactly one CopyDone follows. Does not wait (an instant device copies in the call). Throws
  /// std::bad_alloc if there is no memory to queue it; then no CopyDone follows.
  virtual void submit(CopyCommand command) = 0;
  /// Appends the commands that have ended to `done`, and returns their number.
  virtual std::size_t poll(std::vector<CopyDone>& done) = 0;

  /// Puts work on the compute timeline, after all work that was launched before, and returns the point at which it is done.
  /// Callers without a GPU program of their own compute in this way (replay, tests, the poison mode). Does not wait
  /// (an instant device does the work in the call).
  virtual Fence launch(ComputeWork work) = 0;
  /// Returns the point that compute has reached: all work that was launched up to this point is done.
  [[nodiscard]] virtual Fence reached() const = 0;
  /// Returns the first point that certainly comes after all compute work up to now. If the caller computes on its own streams,
  /// the device does not see that work. Then this is the next point that will be given out.
  [[nodiscard]] virtual Fence after_all_work() const = 0;
  /// Returns true if launch() or signal() has returned this point. A device that does not support streams of the caller need not
  /// override it.
  [[nodiscard]] virtual bool given_out(Fence point) const { return point <= after_all_work(); }

  /// Marks all work that is on the stream now, and returns the point at which all of that work is done. The stream does not wait.
  /// Fails: invalid_argument (the stream is being captured into a graph, or the device does not support streams of the caller),
  /// io_failed (also if the stream belongs to another device or context).
  ///
  /// With several ranks, call it for a stream of each rank, in the same order on all, so that a point is the same on every rank
  /// (RankDevices). If it fails on a rank, that rank has not given out a point. To continue, wait for the stream and then launch
  /// empty work there, which gives out a point.
  [[nodiscard]] virtual Result<Fence> signal(StreamRef stream);

  /// Makes the stream wait, on the device, until the copies of these commands have ended: work that is put on the stream
  /// afterwards starts after them. The call does not wait. A command can be named from its submit() until poll() has reported it.
  ///
  /// The stream continues when a copy has ended, even if the copy has failed. So check the outcome of the copy before you use
  /// results that the stream has computed from its bytes.
  ///
  /// Fails: not_ready (a command is not on a copy stream yet, because it waits for launched work or for a command before it. A
  /// stream must not wait for work that is not on a stream: streams share hardware queues, so a waiting stream could block the
  /// work that it waits for. Try again after the next poll(), or wait for the CopyDone on the host), io_failed (one of the copies
  /// could not be put on its stream, or the stream cannot wait), not_found (a token is unknown, or poll() has reported it),
  /// invalid_argument (the stream is being captured into a graph, or does not belong to this device). After a failure the stream
  /// may wait for some of the copies, which does no harm.
  [[nodiscard]] virtual Result<void> await(StreamRef stream, std::span<const std::uint64_t> tokens);

  /// Makes the stream wait, on the device, until compute has reached this point, for example because another stream writes what
  /// this one will read. Fails: not_ready (launched work up to the point is not done), invalid_argument (as above, or the point
  /// was not given out), io_failed.
  [[nodiscard]] virtual Result<void> await(StreamRef stream, Fence point);

  /// Moves the blocks of these pools to other addresses. An engine needs this if it releases its GPU memory while it sleeps, and
  /// gets other memory when it wakes. All regions of a pool are replaced and keep their layout: their number, and the size,
  /// stride and layer of each. They must be memory of this device, and must not overlap each other or the regions of other pools.
  /// Nothing is copied. The cached blocks on the device are lost with the old memory, so the caller must drop them (Cache::reset)
  /// before they are requested again.
  ///
  /// Call it between transfers. Fails: in_use (a command has not come back from poll(), or launched work is not done; both use
  /// the old addresses), io_failed. Throws std::invalid_argument, with a sentence, if the regions are not as described or if the
  /// device has allocated the memory of the pool itself. After a failure, nothing has changed.
  [[nodiscard]] virtual Result<void> relocate(std::span<const RelocatedPool> pools);
  /// Checks whether relocate() would accept these pools now, and changes nothing. Fails and throws as relocate() does. The
  /// default accepts all pools.
  [[nodiscard]] virtual Result<void> check_relocation(std::span<const RelocatedPool> pools);
};

/// The behaviour of one direction of an emulated link. "Every n-th" counts commands from 1; 0 means never.
struct LinkDirection {
  BytesPerSecond bytes_per_second{};  ///< 0: no limit
  /// The delay of every command before its bytes move.
  Duration latency{};
  /// Each command takes longer by a random time up to this. The time is uniformly distributed, by the seed of the link.
  Duration jitter_max{};
  /// The stream stalls for the time `stall` before the bytes of every n-th command.
  std::uint64_t stall_every = 0;
  Duration stall{};
  /// Every n-th command ends with io_failed, after half of its first block was written.
  std::uint64_t fail_every = 0;
};

struct LinkModel {
  std::array<LinkDirection, direction_count> directions{};  ///< by Direction
  std::uint64_t seed = 1;

  [[nodiscard]] LinkDirection& operator[](Direction direction) { return directions[static_cast<std::size_t>(direction)]; }
  [[nodiscard]] const LinkDirection& operator[](Direction direction) const {
    return directions[static_cast<std::size_t>(direction)];
  }
};

/// Faults that a verification must detect; 0 switches a fault off. Commands and blocks are counted per direction, so that runs
/// repeat.
struct EmulatedFaults {
  /// Flips one bit of every n-th block that is swapped out, in the host slot. If a command copies only some layers, the bit is in
  /// these.
  std::uint64_t flip_every = 0;
  /// Reports every n-th swap-in as done first, and moves its bytes `late_by` later, as a late DMA would.
  std::uint64_t late_every = 0;
  Duration late_by = std::chrono::milliseconds{5};
  /// Copies do not wait for compute, and compute begins each work `compute_lag` late, so that a missing fence becomes visible.
  bool ignore_fences = false;
  Duration compute_lag = std::chrono::milliseconds{2};
};

/// How ranks use a host slot.
enum class RankPayload : unsigned char {
  sharded,     ///< each rank has its own share; a block is on the host when every rank has copied its part
  replicated,  ///< all ranks have the same bytes, as with one latent head (MLA); one rank swaps out, all swap in
};

[[nodiscard]] TERRACE_API std::string_view to_string(RankPayload payload);

/// The most ranks of one cache.
inline constexpr std::size_t ranks_max = 64;

/// The health of one rank, for monitoring. health() visits every transfer under way, so do not call it often.
struct RankHealth {
  enum class State : unsigned char {
    well,
    slow,     ///< it has not ended a transfer that a rank finished at least RankedTransfersOptions::slow_after ago
    lost,     ///< lose() was called, because its process has ended
    failing,  ///< its last transfers failed, RankedTransfersOptions::failures_max of them or more in a row
  };
  std::string_view name{};
  State state = State::well;
  std::uint32_t transfers = 0;        ///< transfers for which this rank has not reported `finished` or `confirmed` yet
  Duration oldest{};                  ///< time since the oldest of these transfers was submitted
  Duration behind{};                  ///< longest time since the first rank finished one of these transfers
  std::uint32_t failures_in_row = 0;  ///< number of its last transfers, in a row, in which no block arrived because copies failed
};

/// Work that runs once for each rank, on the compute timeline of that rank. It may run for several ranks at the same time.
using RankWork = std::function<void(std::uint32_t rank, BlockAccess& access)>;

/// The devices of one cache, one for each rank, as the compute side uses them. Every rank launches only the same steps, in the
/// same order. So one fence names the same point on all ranks, and a transfer to all ranks needs only one fence.
///
/// Threads: the compute side of Device.
class TERRACE_API RankDevices {
 public:
  /// There must be at least one device. The devices must outlive this object.
  explicit RankDevices(std::vector<Device*> devices);

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(devices_.size()); }
  [[nodiscard]] Device& at(std::uint32_t rank) const { return *devices_.at(rank); }

  /// Launches the work on every rank. All ranks share `work`. Returns the point, which is the same on every rank.
  Fence launch(RankWork work);
  /// Returns the point that all ranks have reached.
  [[nodiscard]] Fence reached() const;

 private:
  std::vector<Device*> devices_;
};

}  // namespace terrace
