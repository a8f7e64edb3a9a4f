#pragma once

#include "base/result.hpp"
#include "base/strong_id.hpp"
#include "transfer/cuda/copy/copy_method_table.hpp"
#include "transfer/cuda/copy/device_geometry.hpp"
#include "transfer/device/device.hpp"
#include "transfer/host/host_arena.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

struct CUstream_st;  // *CUstream, without cuda.h

namespace terrace {

/// What devices that share an arena have pinned of it (transfer/cuda/host_pins.hpp).
class HostPins;

/// A pool's memory on both sides.
struct CudaPool {
  std::uint32_t slots = 0;
  HostArena* host = nullptr;  ///< outlives the device, which is its observer; may be several pools'
  /// The device's part of every host slot, which its blocks fill: all, unless ranks share the arena.
  HostShare share = {};
  /// The engine's own, which outlive the device. None: the device allocates packed, zeroed blocks.
  std::vector<DeviceRegion> regions;
  /// Of blocks that the device allocates, side by side in each; regions say it themselves.
  std::uint32_t layers = 1;
};

/// Where the blocks of a pool lie from now on.
struct RelocatedPool {
  PoolId pool;
  std::vector<DeviceRegion> regions;
};

struct CudaOptions {
  int ordinal = 0;  ///< which device of the machine
  CopyMethodTable methods;
  /// One method for everything, whatever the table says.
  std::optional<CopyMethod> only_method;
  /// Thread blocks of a copy kernel: multiprocessors that it takes from compute while it runs.
  unsigned kernel_blocks = 8;
  /// Of ranks that share an arena, the same for all (CudaDevice::shared_pins): memory is pinned once for all devices, and a
  /// second device that would pin it again is refused. Null: the device's own.
  std::shared_ptr<HostPins> pins;
};

/// What `terrace doctor` would say of an open device.
struct CudaFacts {
  std::string device;
  std::string driver;
  int compute_capability_major = 0;
  int compute_capability_minor = 0;
  CopyMethods methods;       ///< that are to be had
  std::string no_kernels;    ///< why there are none, where there are none
  std::uint64_t failed = 0;  ///< calls of the driver that failed since it was opened
  std::string first_failure;
};

/// Blocks in the memory of an NVIDIA GPU. A stream a direction; the host arenas pinned chunk by chunk while the device is open:
/// what they have then, and what comes and goes later. A chunk that cannot be pinned is refused, and the arena does without it;
/// its event says which call failed, and why. Ranks that share an arena share its pins: a chunk is refused where any of them
/// cannot have it, so that what the arena shows is pinned for all; it is pinned until the last of them lets go, in whichever
/// order they are opened and closed.
///
/// Order against compute. A fence is a point of one timeline, on which there are computations of the caller's, marked by
/// signal(), and work launched here, done by a thread. Copies that name a point wait for it: on the device for the caller's
/// computations (cuStreamWaitEvent), before they are put on their stream for launched work. A copy stream never waits for what
/// is not yet on another stream. (cuStreamWaitValue64 could wait for either; but streams share hardware queues, and a stream
/// that waits for a word would hold up the very work behind it in the queue that is to write the word.)
///
/// CopyDone::took is measured on the device, between two events around the command's copies, behind what it waited for. That is
/// one event more a command than its end needs, some microseconds of the issuing thread and of the stream. Events with timing are
/// used for this alone. 0 where the driver fails to say.
///
/// What has a CopyDone without an error is in its place for the host and for whatever the caller puts on a stream from then on.
///
/// Failures: a call that fails ends its command with io_failed, once nothing of the command moves any more; facts() has the
/// call and the driver's reason. After a failure that the context does not survive every later command ends so.
///
/// Stops when destroyed: what is not yet on a stream is dropped, what is on one ends, which takes as long as the computations
/// that it waits for; afterwards nothing touches arenas and regions.
///
/// Threads: as Device, signal() as launch(); facts() from any.
class CudaDevice : public Device {
 public:
  /// Marks what the stream has been given up to now, and returns the point at which it is done. Costs the record of an event;
  /// the stream waits for nothing. Fails: invalid_argument (the stream is being captured into a graph), io_failed (also where
  /// the stream is of another context than the device's, the primary one; facts() names the call that said so).
  ///
  /// Of several ranks each has its stream marked, in the same order, so that a point is the same on all (RankDevices). Where
  /// one fails, no point has been given out: who goes on puts one there with a launch of nothing, once the stream has been
  /// waited for.
  [[nodiscard]] virtual Result<Fence> signal(CUstream_st* stream) = 0;

  /// The blocks of these pools lie at other addresses from now on, as when an engine has put its GPU memory to sleep and got
  /// another when it woke. All of them at once, in the layout they had: as many regions, each with its size, stride and layer,
  /// in memory of this device, apart from each other's and from those of the pools that stay. Nothing is copied: what was cached
  /// on the device has gone with the old memory, and is forgotten by the caller (Cache::reset) before it is asked for again.
  ///
  /// Between transfers. Fails: in_use (a command has not come back from poll(), or launched work is not done; nothing of either
  /// may be under way, for it has the old addresses), io_failed. Throws std::invalid_argument, with a sentence, where the regions
  /// are not as above, or the pool's memory is the device's own. Nothing has changed then. Threads: submit's, while nobody calls
  /// launch().
  [[nodiscard]] virtual Result<void> relocate(std::span<const RelocatedPool> pools) = 0;
  [[nodiscard]] virtual CudaFacts facts() const = 0;

  /// Throws CudaUnavailable (driver.hpp) or, in a build without CUDA, std::runtime_error with why there is no device;
  /// std::invalid_argument where pools make no sense, are not the device's memory, or the only method is not to be had; CudaError
  /// where memory is not to be had, on the device or to be pinned.
  [[nodiscard]] static std::unique_ptr<CudaDevice> open(std::span<const CudaPool> pools, CudaOptions options = {});

  /// For the devices of several ranks over one arena. Null in a build without CUDA.
  [[nodiscard]] static std::shared_ptr<HostPins> shared_pins();

  /// Why there is no device of this ordinal here, in a sentence; nothing: there is one.
  [[nodiscard]] static std::optional<std::string> unavailable(int ordinal = 0);

  /// The methods measured on this device: from the file, where it holds for this device and driver, else measured now, which
  /// takes a few seconds and 128 MiB on each side, and saved there. Throws as open().
  [[nodiscard]] static CopyMethodTable calibrated(int ordinal, const std::filesystem::path& file);
};

}  // namespace terrace
