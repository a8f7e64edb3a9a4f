#include "transfer/cuda/copy/calibration.hpp"

#include "base/descriptor.hpp"
#include "transfer/cuda/copy/copy_tile.hpp"
#include "transfer/cuda/copy/piece_copier.hpp"
#include "transfer/cuda/driver/handles.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace terrace {
namespace {

/// The size of the pieces with which the smallest class is measured.
constexpr std::uint64_t least_piece = 4096;

class Calibration {
 public:
  Calibration(const CudaDriver& driver, CUdevice device, const Clock& clock, const CalibrationOptions& options)
      : driver_{driver},
        clock_{clock},
        options_{options},
        stream_{make_first_stream(driver)},
        device_{allocate_device(driver, options.bytes, "calibrating")},
        host_{driver, options.bytes, "calibrating"},
        check_{driver, options.bytes, "calibrating"},
        kernels_{CopyKernels::load(driver, device, stream_.get(), no_kernels_)} {
    map_.add(host_.bytes(), host_.device_address());
    copier_.emplace(driver, device, kernels_ ? &*kernels_ : nullptr, map_, options.kernel_blocks);
  }

  /// Waits for the stream, because copies may still be on it if a later call has failed.
  ~Calibration() { static_cast<void>(await_stream(driver_, stream_.get())); }
  Calibration(const Calibration&) = delete;
  Calibration& operator=(const Calibration&) = delete;

  CopyMethodTable::Rates measure(Direction direction, std::uint64_t piece_bytes, std::uint64_t pieces) {
    const std::vector<CopyPiece> scattered = scatter(piece_bytes, pieces);
    CopyMethodTable::Rates rates{};
    for (std::size_t method = 0; method < copy_method_count; ++method) {
      if (copier_->available().test(method)) verify(static_cast<CopyMethod>(method), direction, scattered);
    }
    // Each round measures all methods, so that a change of conditions affects them all.
    for (unsigned round = 0; round < options_.rounds; ++round) {
      for (std::size_t method = 0; method < copy_method_count; ++method) {
        if (!copier_->available().test(method)) continue;
        rates[method] = std::max(rates[method], rate(static_cast<CopyMethod>(method), direction, scattered));
      }
    }
    return rates;
  }

 private:
  /// Makes pieces that are contiguous on neither side: in ascending order on the device, and in descending order on the host.
  /// Makes fewer pieces than requested if there is not enough room.
  std::vector<CopyPiece> scatter(std::uint64_t piece_bytes, std::uint64_t wanted) {
    const std::uint64_t number = std::clamp<std::uint64_t>(count(options_.bytes) / piece_bytes, 1, wanted);
    std::vector<CopyPiece> pieces;
    for (std::uint64_t i = 0; i < number; ++i) {
      pieces.push_back({device_.get() + i * piece_bytes, host_.bytes().data() + (number - 1 - i) * piece_bytes, piece_bytes});
    }
    return pieces;
  }

  /// Copies once, and compares every byte with the result of single copies by the copy engine.
  void verify(CopyMethod method, Direction direction, std::span<const CopyPiece> pieces) {
    const std::uint64_t bytes = shape_of(pieces).bytes;
    const bool out = direction == Direction::swap_out;
    const PinnedBuffer& source = out ? check_ : host_;
    const PinnedBuffer& destination = out ? host_ : check_;
    fill(source.bytes().first(bytes));
    std::ranges::fill(destination.bytes().first(bytes), std::byte{0});
    // `check_` is copied as a whole, to the device or from it.
    if (out) check(driver_.cuMemcpyHtoDAsync(device_.get(), check_.bytes().data(), bytes, stream_.get()), "cuMemcpyHtoDAsync");
    else check(driver_.cuMemsetD8Async(device_.get(), 0, bytes, stream_.get()), "cuMemsetD8Async");
    const CudaOutcome enqueued = copier_->enqueue(method, direction, pieces, stream_.get());
    check(enqueued.result, enqueued.call);
    if (!out) check(driver_.cuMemcpyDtoHAsync(check_.bytes().data(), device_.get(), bytes, stream_.get()), "cuMemcpyDtoHAsync");
    check(driver_.cuStreamSynchronize(stream_.get()), "cuStreamSynchronize");
    for (const CopyPiece& piece : pieces) {
      if (std::memcmp(check_.bytes().data() + (piece.device - device_.get()), piece.host, piece.bytes) == 0) continue;
      throw CudaError{CUDA_ERROR_UNKNOWN,
                      fmt::format("calibrating: copy method {} has copied wrong bytes ({}, pieces of {}: {})", to_string(method),
                                  out ? "swap-out" : "swap-in", to_string(Bytes{piece.bytes}), pieces.size())};
    }
  }

  /// Fills the buffer with bytes that differ from the bytes of every earlier copy.
  void fill(std::span<std::byte> bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(pattern_)) {
      pattern_ = pattern_ * 6364136223846793005U + 1442695040888963407U;  // Knuth's linear congruential generator
      std::memcpy(bytes.data() + at, &pattern_, std::min(sizeof(pattern_), bytes.size() - at));
    }
  }

  void check(CUresult result, std::string_view call) const { driver_.check(result, call, "calibrating"); }

  double rate(CopyMethod method, Direction direction, std::span<const CopyPiece> pieces) {
    const TimePoint begin = clock_.now();
    const CudaOutcome enqueued = copier_->enqueue(method, direction, pieces, stream_.get());
    check(enqueued.result, enqueued.call);
    check(driver_.cuStreamSynchronize(stream_.get()), "cuStreamSynchronize");
    const std::chrono::duration<double> took = clock_.now() - begin;
    return static_cast<double>(shape_of(pieces).bytes) / std::max(took.count(), 1e-9);
  }

  const CudaDriver& driver_;
  const Clock& clock_;
  const CalibrationOptions options_;
  const StreamHandle stream_;
  const DeviceMemory device_;
  const PinnedBuffer host_;
  const PinnedBuffer check_;  ///< the expected content of the device's side
  std::string no_kernels_;
  const std::optional<CopyKernels> kernels_;
  HostMap map_;
  std::optional<PieceCopier> copier_;
  std::uint64_t pattern_ = 0;
};

/// Prevents other processes from measuring at the same time, because they would disturb each other and need only one result. If
/// the lock cannot be taken, because there is no folder or another process holds it for too long, the process measures without
/// it.
Descriptor locked(const std::filesystem::path& file) {
  constexpr std::chrono::milliseconds looks_every{50};
  constexpr std::chrono::seconds waits{30};
  std::filesystem::path beside = file;
  beside += ".lock";
  Descriptor lock{::open(beside.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  if (lock.get() < 0) return lock;
  const auto gives_up = std::chrono::steady_clock::now() + waits;
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && std::chrono::steady_clock::now() < gives_up) {
    std::this_thread::sleep_for(looks_every);
  }
  return lock;
}

}  // namespace

CopyMethodTable calibrate_methods(const CudaDriver& driver, int ordinal, const Clock& clock, CalibrationOptions options) {
  const CUdevice device = cuda_device_at(driver, ordinal);
  const PrimaryContext context{driver, device};
  Calibration calibration{driver, device, clock, options};
  CopyMethodTable table;
  for (const Direction direction : {Direction::swap_out, Direction::swap_in}) {
    for (std::size_t bytes = 0; bytes < CopyMethodTable::piece_bytes.size(); ++bytes) {
      for (std::size_t number = 0; number < CopyMethodTable::piece_counts.size(); ++number) {
        const std::uint64_t piece = std::min(std::max(CopyMethodTable::piece_bytes[bytes], least_piece), count(options.bytes));
        table.measured(direction, bytes, number, calibration.measure(direction, piece, CopyMethodTable::piece_counts[number]));
      }
    }
  }
  return table;
}

CopyMethodTable kept_or_measured(const CudaDriver& driver, int ordinal, const std::filesystem::path& file, const Clock& clock,
                                 CalibrationOptions options) {
  const CopyTableKey key{cuda_device_name(driver, cuda_device_at(driver, ordinal)), cuda_driver_name(driver),
                         fmt::format("revision {}, {} blocks of {} and {} threads", kernel_revision, options.kernel_blocks,
                                     kernel_threads, bulk_threads)};
  if (const Result<CopyMethodTable> kept = CopyMethodTable::load(file, key)) return *kept;
  const Descriptor lock = locked(file);
  if (const Result<CopyMethodTable> kept = CopyMethodTable::load(file, key)) return *kept;  // another process has measured it
  const CopyMethodTable measured = calibrate_methods(driver, ordinal, clock, options);
  // If it cannot be saved, it is measured again next time.
  static_cast<void>(measured.save(file, key));
  return measured;
}

}  // namespace terrace
