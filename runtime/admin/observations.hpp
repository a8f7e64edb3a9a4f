#pragma once

#include "runtime/admin/history/history.hpp"
#include "runtime/admin/observed.hpp"
#include "runtime/measure/reuse_curve.hpp"
#include "runtime/measure/trace_json.hpp"
#include "terrace/types.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace terrace::admin {

/// The results that the endpoint has worked out from observations: the reuse curve, the history of the last hour, and the last
/// capture of each kind. Memory: about 4 MiB for the curve, 1.2 MiB for the history, and at most 64 MiB for each capture, or a
/// quarter of what is left when it begins if that is less (at least 1 MiB); what does not fit is left out, and the capture says
/// so. The text of a recording takes as much again.
///
/// No I/O. Threads: one, that of the endpoint.
class Observations {
 public:
  static constexpr std::size_t capture_bytes_max = std::size_t{64} << 20U;
  static constexpr std::size_t capture_bytes_min = std::size_t{1} << 20U;
  /// How much memory is left; nothing: not known.
  using MemoryLeft = std::function<std::optional<Bytes>()>;

  explicit Observations(MemoryLeft left = {}) : left_{std::move(left)} {}

  void add(Observed portion);

  [[nodiscard]] const ReuseCurve& curve() const { return curve_; }
  [[nodiscard]] History& history() { return history_; }

  enum class State : std::uint8_t { none, running, done };
  struct Status {
    State state = State::none;
    double seconds_left = 0;    ///< while it is running
    double seconds = 0;         ///< its length
    std::uint64_t entries = 0;  ///< spans, or requests
    bool truncated = false;     ///< entries are missing, because there were too many
  };
  [[nodiscard]] Status status(CaptureKind kind, TimePoint now) const;

  /// The text of a capture that is done, the same for all who ask. Null: the text of an earlier one is still in use, and two are
  /// too much.
  using Text = std::shared_ptr<const std::string>;
  /// The trace as JSON for a viewer (TraceJson).
  [[nodiscard]] Text trace();
  /// The recorded requests in the order of their arrival, as lines of JSON for `terrace replay`: times from the begin of the
  /// capture, lengths in tokens, and the blocks of each prompt, numbered anew in the order of their first use, so that nothing
  /// tells what they contain. Outputs count whole blocks. `block_tokens`: tokens of a block.
  [[nodiscard]] Text recording(std::uint32_t block_tokens);

 private:
  struct Kept {
    Capture capture{};
    std::uint64_t entries = 0;
    std::size_t bytes = 0;
    std::size_t bytes_max = capture_bytes_max;
    bool truncated = false;
    TimePoint seen{};  ///< portions up to here were added
    Text text{};       ///< null: nobody has asked for it
  };

  [[nodiscard]] Kept& of(CaptureKind kind) { return kept_[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] const Kept& of(CaptureKind kind) const { return kept_[static_cast<std::size_t>(kind)]; }
  void start(CaptureKind kind, const Capture& capture);
  /// Makes room for an entry of the capture.
  [[nodiscard]] static bool keeps(Kept& kept, std::size_t bytes);
  template <class Make>
  [[nodiscard]] Text text_of(CaptureKind kind, Make make);
  [[nodiscard]] std::string made_recording(std::uint32_t block_tokens) const;

  MemoryLeft left_;
  ReuseCurve curve_;
  History history_;
  std::array<Kept, capture_kinds> kept_{};
  std::array<std::weak_ptr<const std::string>, capture_kinds> last_texts_;
  std::string trace_;
  std::optional<TraceJson> trace_json_;
  std::vector<RecordedRequest> requests_;
};

[[nodiscard]] std::string_view to_string(Observations::State state);

}  // namespace terrace::admin
