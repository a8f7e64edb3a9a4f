#include "transfer/cuda/copy/calibration.hpp"

#include "transfer/cuda/copy/piece_copier.hpp"
#include "transfer/cuda/driver/handles.hpp"

#include <algorithm>
#include <optional>
#include <string>
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
        stream_{make_stream(driver)},
        device_{allocate_device(driver, options.bytes, "calibrating")},
        host_{driver, options.bytes, "calibrating"},
        kernels_{kernels(driver, device, stream_.get())} {
    map_.add(host_.bytes(), host_.device_address());
    copier_.emplace(driver, kernels_ ? &*kernels_ : nullptr, map_, options.kernel_blocks);
  }

  /// Waits for the stream, because copies may be on it if a call after them has failed.
  ~Calibration() { static_cast<void>(await_stream(driver_, stream_.get())); }
  Calibration(const Calibration&) = delete;
  Calibration& operator=(const Calibration&) = delete;

  CopyMethodTable::Rates measure(Direction direction, std::uint64_t piece_bytes, std::uint64_t pieces) {
    const std::vector<CopyPiece> scattered = scatter(piece_bytes, pieces);
    CopyMethodTable::Rates rates{};
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
  static std::optional<CopyKernels> kernels(const CudaDriver& driver, CUdevice device, CUstream stream) {
    try {
      return CopyKernels{driver, device, stream};
    } catch (const CudaError&) {
      return std::nullopt;
    }
  }

  /// Makes pieces that are contiguous on neither side, as many as wanted if there is room: in ascending order on the device, and
  /// in descending order on the host.
  std::vector<CopyPiece> scatter(std::uint64_t piece_bytes, std::uint64_t wanted) {
    const std::uint64_t number = std::clamp<std::uint64_t>(count(options_.bytes) / piece_bytes, 1, wanted);
    std::vector<CopyPiece> pieces;
    for (std::uint64_t i = 0; i < number; ++i) {
      pieces.push_back({device_.get() + i * piece_bytes, host_.bytes().data() + (number - 1 - i) * piece_bytes, piece_bytes});
    }
    return pieces;
  }

  double rate(CopyMethod method, Direction direction, std::span<const CopyPiece> pieces) {
    const TimePoint begin = clock_.now();
    const CudaOutcome enqueued = copier_->enqueue(method, direction, pieces, stream_.get());
    driver_.check(enqueued.result, enqueued.call, "calibrating");
    driver_.check(driver_.cuStreamSynchronize(stream_.get()), "cuStreamSynchronize", "calibrating");
    const std::chrono::duration<double> took = clock_.now() - begin;
    return static_cast<double>(shape_of(pieces).bytes) / std::max(took.count(), 1e-9);
  }

  const CudaDriver& driver_;
  const Clock& clock_;
  const CalibrationOptions options_;
  const StreamHandle stream_;
  const DeviceMemory device_;
  const PinnedBuffer host_;
  const std::optional<CopyKernels> kernels_;
  HostMap map_;
  std::optional<PieceCopier> copier_;
};

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
  const std::string device = cuda_device_name(driver, cuda_device_at(driver, ordinal));
  const std::string version = cuda_driver_name(driver);
  if (const Result<CopyMethodTable> kept = CopyMethodTable::load(file, device, version)) return *kept;
  const CopyMethodTable measured = calibrate_methods(driver, ordinal, clock, options);
  // If it cannot be saved, it is measured again next time.
  static_cast<void>(measured.save(file, device, version));
  return measured;
}

}  // namespace terrace
