#pragma once

#include "runtime/admin/observed.hpp"
#include "runtime/measure/reuse_curve.hpp"
#include "runtime/measure/trace_json.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace terrace::admin {

/// The results that the endpoint has worked out from observations: the reuse curve, and the last capture of each kind. Memory:
/// about 4 MiB for the curve, and at most 64 MiB for each capture; what does not fit is left out, and the capture says so.
///
/// No I/O. Threads: one, that of the endpoint.
class Observations {
 public:
  static constexpr std::size_t capture_bytes_max = std::size_t{64} << 20U;

  void add(Observed portion);

  [[nodiscard]] const ReuseCurve& curve() const { return curve_; }

  enum class State : std::uint8_t { none, running, done };
  struct Status {
    State state = State::none;
    double seconds_left = 0;    ///< while it is running
    double seconds = 0;         ///< its length
    std::uint64_t entries = 0;  ///< spans, or requests
    bool truncated = false;     ///< entries are missing, because there were too many
  };
  [[nodiscard]] Status status(CaptureKind kind, TimePoint now) const;

  /// The trace as JSON for a viewer (TraceJson). Call it when it is done.
  [[nodiscard]] std::string trace() const;
  /// The recorded requests in the order of their arrival, as lines of JSON for `terrace replay`: times from the begin of the
  /// capture, lengths in tokens, and the blocks of each prompt, numbered anew in the order of their first use, so that nothing
  /// tells what they contain. Outputs count whole blocks. `block_tokens`: tokens of a block. Call it when it is done.
  [[nodiscard]] std::string recording(std::uint32_t block_tokens) const;

 private:
  struct Kept {
    Capture capture{};
    std::uint64_t entries = 0;
    std::size_t bytes = 0;
    bool truncated = false;
    TimePoint seen{};  ///< portions up to here were added
  };

  [[nodiscard]] Kept& of(CaptureKind kind) { return kept_[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] const Kept& of(CaptureKind kind) const { return kept_[static_cast<std::size_t>(kind)]; }
  /// Makes room for an entry of the capture.
  [[nodiscard]] static bool keeps(Kept& kept, std::size_t bytes);

  ReuseCurve curve_;
  std::array<Kept, capture_kinds> kept_{};
  std::string trace_;
  std::optional<TraceJson> trace_json_;
  std::vector<RecordedRequest> requests_;
};

[[nodiscard]] std::string_view to_string(Observations::State state);

}  // namespace terrace::admin
