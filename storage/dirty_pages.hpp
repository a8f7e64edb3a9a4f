#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace terrace {

/// Which catalog pages have to be written, and which are being written. First marked, first written; a page that is marked
/// while its write is under way is written again afterwards, never twice at once, so that an older image cannot land on a
/// newer one. No I/O, no page's bytes. Threads: one.
class DirtyPages {
 public:
  /// `writes_max`: how many pages may be under way. Few: pages that wait collect more changes, and the blocks' own writes
  /// are what the device is for.
  DirtyPages(std::uint32_t pages, std::uint32_t writes_max) : states_(pages, State::clean), writes_max_{writes_max} {}

  /// The page's content has changed.
  void mark(std::uint32_t page);
  /// A page to write, now under way; its content as of now is what must be written. Nothing where none waits, or where as
  /// many as may be are under way.
  [[nodiscard]] std::optional<std::uint32_t> take();
  enum class Outcome : unsigned char { written, failed };
  /// A failed page is not tried again before it is marked again, or retry_failed() is called: a broken device must not keep
  /// the processor busy.
  void ended(std::uint32_t page, Outcome outcome);
  void retry_failed();

  [[nodiscard]] std::uint32_t under_way() const { return under_way_; }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] std::uint32_t failed() const { return failed_; }

 private:
  ///   clean --mark--> waiting --take--> writing --written--> clean
  ///                      ^                 | \--failed--> failed --mark, retry--> waiting
  ///                      |                mark
  ///                      |                 v
  ///                      \--ended-- writing_old
  enum class State : unsigned char { clean, waiting, writing, writing_old, failed };

  void queue(std::uint32_t page);

  std::vector<State> states_;
  std::deque<std::uint32_t> waiting_;
  std::uint32_t writes_max_;
  std::uint32_t under_way_ = 0;
  std::uint32_t failed_ = 0;
};

}  // namespace terrace
