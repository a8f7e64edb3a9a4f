#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace terrace {

/// Records which catalog pages must be written and which are being written. The page that was marked first is written first. A
/// page that is marked during its write is written again afterwards. A page is never written twice at the same time, so that an
/// old image cannot overwrite a newer one. It does no I/O and holds no page contents. Threads: one.
class DirtyPages {
 public:
  /// `writes_max` limits the pages under way. It should be small: a waiting page collects more changes, and the device should
  /// mainly write blocks.
  DirtyPages(std::uint32_t pages, std::uint32_t writes_max) : pages_(pages), writes_max_{writes_max} {}

  /// Sets the number of pages. New pages are clean.
  void grow(std::uint32_t pages) { pages_.resize(pages); }
  /// Records that the content of the page has changed.
  void mark(std::uint32_t page);
  /// Returns a page that must be written now, with its current content, and counts it as under way. Returns nothing if no page
  /// waits, or if `writes_max` pages are under way.
  [[nodiscard]] std::optional<std::uint32_t> take();
  enum class Outcome : unsigned char { written, failed };
  /// Reports the end of a write. A failed page is not retried until it is marked again or retry_failed() is called, because
  /// retries on a broken device would keep the processor busy.
  void ended(std::uint32_t page, Outcome outcome);
  void retry_failed();

  /// Begins a flush, which waits until owed() is 0. The pages that wait for a write or are being written now are owed until their
  /// current content, or newer content, has been written or the write has failed. Call it only while owed() is 0.
  void begin_owing();
  [[nodiscard]] std::uint32_t owed() const { return owed_; }
  /// Returns true if the write of an owed page has failed. Such a page is no longer owed.
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
    /// number of writes that must end before the page is no longer owed; a write of an older image counts too
    unsigned char writes_owed = 0;
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
