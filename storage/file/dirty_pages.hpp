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
  DirtyPages(std::uint32_t pages, std::uint32_t writes_max) : pages_(pages), writes_max_{writes_max} {}

  /// Pages are numbered below `pages` from now on; those that join are clean.
  void grow(std::uint32_t pages) { pages_.resize(pages); }
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

  /// Begins a flush, which waits until owed() is 0. owed() counts the pages that wait for a write or are being written now, until
  /// their content of now, or a newer one, has been written or its write has failed. Call it only while owed() is 0.
  void begin_owing();
  [[nodiscard]] std::uint32_t owed() const { return owed_; }
  /// Whether the write of an owed page has failed; it is owed no more.
  [[nodiscard]] bool owed_failed() const { return owed_failed_; }

  [[nodiscard]] std::uint32_t under_way() const { return static_cast<std::uint32_t>(writing_.size()); }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] std::uint32_t failed() const { return failed_; }

 private:
  ///   clean --mark--> waiting --take--> writing --written--> clean
  ///                      ^                 | \--failed--> failed --mark, retry--> waiting
  ///                      |                mark
  ///                      |                 v
  ///                      \--ended-- writing_old
  enum class State : unsigned char { clean, waiting, writing, writing_old, failed };

  struct Page {
    State state = State::clean;
    unsigned char writes_owed = 0;  ///< that must end before the page is owed no more, of an older image included
  };

  void queue(std::uint32_t page);
  void owe(std::uint32_t page, unsigned char writes);

  std::vector<Page> pages_;
  std::deque<std::uint32_t> waiting_;
  std::uint32_t writes_max_;
  std::uint32_t failed_ = 0;
  std::vector<std::uint32_t> writing_;
  std::uint32_t owed_ = 0;
  bool owed_failed_ = false;
};

}  // namespace terrace
