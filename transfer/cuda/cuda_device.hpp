#pragma once

#include "terrace/device.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"
#include "transfer/cuda/copy/copy_method_table.hpp"
#include "transfer/device/device_geometry.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace terrace {

/// The host memory that is pinned for the devices that share an arena (transfer/cuda/host_pins.hpp).
class HostPins;

struct CudaOptions {
  int ordinal = 0;  ///< the number of the device in this machine
  CopyMethodTable methods;
  /// If set, this method is used for all copies, and the table is ignored.
  std::optional<CopyMethod> only_method;
  /// The number of thread blocks of a copy kernel. While it runs, compute cannot use the same number of multiprocessors.
  unsigned kernel_blocks = 8;
  /// The pinned host memory. All ranks that share an arena must have the same object (CudaDevice::shared_pins), because memory is
  /// pinned once for all devices, and a second device that pins it again is refused. Null: the device has its own.
  std::shared_ptr<HostPins> pins;
};

/// Facts about an open device, which `terrace doctor` prints.
struct CudaFacts {
  std::string device;
  std::string driver;
  int compute_capability_major = 0;
  int compute_capability_minor = 0;
  std::string pci;           ///< address on the PCI bus, as the kernel names it: "0000:17:00.0"
  CopyMethods methods;       ///< the available methods
  std::string no_kernels;    ///< why the copy kernels are not available; empty if they are
  std::uint64_t failed = 0;  ///< driver calls that have failed since the device was opened
  std::string first_failure;
};

/// Blocks in the memory of an NVIDIA GPU. Each direction has a stream.
///
/// *Host memory.* The host arenas are pinned chunk by chunk while the device is open: the chunks that exist when it is opened,
/// and later ones as they are added. If a chunk cannot be pinned, the device refuses it, and the arena does not use it; the
/// chunk's event names the call that failed and the reason. Ranks that share an arena share its pins. A chunk is refused if any
/// rank cannot pin it, so every chunk in use is pinned for all ranks. It stays pinned until the last rank releases it; the order
/// in which ranks are opened and closed does not matter.
///
/// *Order against compute.* A fence is a point on one timeline. The points are computations of the caller, marked by signal(),
/// and launched work, which a thread runs. A copy that names a point waits for it: on the device for computations of the caller
/// (cuStreamWaitEvent), and on the host, before it is put on its stream, for launched work. So a copy stream never waits for work
/// that is not on a stream yet. (cuStreamWaitValue64 could wait for both. But streams share hardware queues: a stream that waits
/// for a word would block the work behind it in the queue, which may be the work that writes this word.)
///
/// *Time.* CopyDone::took is measured on the device, between two events around the command's copies, after its waits. This needs
/// one more event for each command, which costs some microseconds of the issuing thread and of the stream. Only these events have
/// timing. The time is 0 if the driver does not report it.
///
/// *Visibility.* After a CopyDone without an error, the bytes are visible to the host and to all work that the caller puts on a
/// stream afterwards.
///
/// Ownership: arenas, and regions of the engine, must outlive the device. The destructor drops commands that are not on a stream
/// yet, and waits for the commands on streams, which includes the computations for which these wait. After it, the device does
/// not access arenas and regions.
///
/// *Streams of the engine* (signal(), await()) belong to the device's primary context. While a stream is captured into a graph,
/// both calls refuse it. facts() names a driver call that failed.
///
/// Threads: as for Device; facts() from any.
///
/// Errors: if a call fails, its command ends with io_failed after all copies of the command have ended. facts() has the call and
/// the driver's reason. If the failure destroys the context, all later commands end in this way.
class CudaDevice : public Device {
 public:
  [[nodiscard]] virtual CudaFacts facts() const = 0;

  /// Opens a device. Throws CudaUnavailable (driver.hpp) if there is no device; std::runtime_error in a build without CUDA;
  /// std::invalid_argument if the pools are not valid, if regions are not memory of the device, or if only_method is not
  /// available; CudaError if memory cannot be allocated or pinned.
  [[nodiscard]] static std::unique_ptr<CudaDevice> open(std::span<const PoolMemory> pools, CudaOptions options = {});

  /// Makes pins to share among the devices of several ranks over one arena. Returns null in a build without CUDA.
  [[nodiscard]] static std::shared_ptr<HostPins> shared_pins();

  /// Returns a sentence that says why this machine has no device with this ordinal, or nothing if it has one. The call
  /// initialises the driver, so child processes that are forked later cannot use CUDA.
  [[nodiscard]] static std::optional<std::string> unavailable(int ordinal = 0);

  /// Returns the NUMA node next to the device; nothing if there is only one node, or if it is unknown. Throws CudaUnavailable.
  [[nodiscard]] static std::optional<unsigned> numa_node(int ordinal);

  /// Returns the copy methods that were measured on this device. They come from the file if it is for this device and driver.
  /// Otherwise they are measured now, which takes a few seconds and 128 MiB on each side, and saved in the file. Throws as open()
  /// does.
  [[nodiscard]] static CopyMethodTable calibrated(int ordinal, const std::filesystem::path& file);
};

}  // namespace terrace
