#pragma once

#include "runtime/admin/history/history.hpp"
#include "runtime/admin/mailbox.hpp"
#include "runtime/cache/measure/reuse_curve.hpp"
#include "runtime/cache/measure/trace_span.hpp"
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

/// The results that the endpoint computes from observations: the reuse curve, the history of the last hour, and the last capture
/// of each kind. Memory: about 4 MiB for the curve, 1.2 MiB for the history, and at most 64 MiB for each capture, or a quarter of
/// the free memory at its begin if that is less (at least 1 MiB). Entries that do not fit are left out, and the capture is marked
/// as truncated. The text of a recording takes the same amount of memory in addition.
///
/// No I/O. Threads: the thread of the endpoint.
class Observations {
 public:
  static constexpr std::size_t capture_bytes_max = std::size_t{64} << 20U;
  static constexpr std::size_t capture_bytes_min = std::size_t{1} << 20U;
  /// Free memory; nothing: not known.
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

  /// The text of a complete capture, shared by all replies. nullptr: the text of an earlier capture is still in use, and a second
  /// one would take too much memory.
  using Text = std::shared_ptr<const std::string>;
  /// The trace as JSON for a viewer (TraceJson).
  [[nodiscard]] Text trace();
  /// The recorded requests in the order of their arrival, as lines of JSON for `terrace replay`: times since the begin of the
  /// capture, lengths in tokens, and the blocks of each prompt. Blocks are numbered in the order of their first use, so that
  /// nothing reveals their contents. Outputs count whole blocks. `block_tokens`: tokens of a block.
  [[nodiscard]] Text recording(std::uint32_t block_tokens);

 private:
  struct Kept {
    Capture capture{};
    std::uint64_t entries = 0;
    std::size_t bytes = 0;
    std::size_t bytes_max = capture_bytes_max;
    bool truncated = false;
    TimePoint seen{};  ///< portions up to this time were added
    Text text{};       ///< nullptr: it was not asked for yet
  };

  [[nodiscard]] Kept& of(CaptureKind kind) { return kept_[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] const Kept& of(CaptureKind kind) const { return kept_[static_cast<std::size_t>(kind)]; }
  void start(CaptureKind kind, const Capture& capture);
  /// Returns true if there is room for an entry of the capture, and counts it.
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

}  // namespace terrace::admin
