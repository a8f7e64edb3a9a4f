#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace terrace {

/// Decides which directories of a striped store have failed. Each directory is on its own device. A directory has failed if
/// stripes_max operations in a row failed in it, each in a different stripe, while at least one operation succeeded in another
/// directory. The reason for the two conditions: a bad area of a medium affects one stripe only; and if all directories fail at
/// the same time, the fault is not in one of them (then the circuit breaker acts, as with a single directory). The last remaining
/// directory never counts as failed. (Apache Traffic Server handles the disks of its cache in a similar way:
/// proxy.config.cache.max_disk_errors.)
///
/// It does no I/O and reads no clock. Threads: one.
class DirectoryHealth {
 public:
  /// One less than the default number of failures in a row at which a CircuitBreaker opens, so that the loss of one device does
  /// not stop the use of the whole tier.
  static constexpr std::uint32_t stripes_max = 4;

  explicit DirectoryHealth(std::uint32_t directories) : directories_(directories), left_{directories} {}

  void succeeded(std::uint32_t directory) {
    ++successes_;
    directories_[directory].stripes = 0;
  }
  /// Records a failed operation. Returns true if the directory has now failed.
  [[nodiscard]] bool failed(std::uint32_t directory, std::uint64_t stripe) {
    Directory& d = directories_[directory];
    if (d.lost || left_ == 1) return false;
    if (d.stripes == 0) d.successes_before = successes_;
    const auto end = d.failed.begin() + d.stripes;
    if (d.stripes < stripes_max && std::find(d.failed.begin(), end, stripe) == end) d.failed[d.stripes++] = stripe;
    return d.stripes == stripes_max && successes_ > d.successes_before && lose(directory);
  }
  /// Marks the directory as failed. Returns false if it was marked before, or is the last remaining directory.
  bool lose(std::uint32_t directory) {
    if (directories_[directory].lost || left_ == 1) return false;
    directories_[directory].lost = true;
    --left_;
    return true;
  }

  [[nodiscard]] bool lost(std::uint32_t directory) const { return directories_[directory].lost; }
  [[nodiscard]] std::uint32_t lost() const { return static_cast<std::uint32_t>(directories_.size()) - left_; }

 private:
  struct Directory {
    bool lost = false;
    std::uint32_t stripes = 0;  ///< number of stripes that have failed since the last success in this directory
    std::array<std::uint64_t, stripes_max> failed{};  ///< the numbers of these stripes
    std::uint64_t successes_before = 0;               ///< the value of successes_ when the first of them failed
  };

  std::vector<Directory> directories_;
  std::uint32_t left_;
  std::uint64_t successes_ = 0;  ///< in all directories
};

}  // namespace terrace
