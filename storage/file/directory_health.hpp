#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace terrace {

/// Which of several directories that a store is striped over has failed, each being a device of its own. One has when
/// stripes_max operations in a row have failed in it, in so many different stripes, while at least one succeeded elsewhere: a
/// bad piece of a medium lies in one stripe, and what fails everywhere at once is not the directory's doing (it is the breaker's
/// affair, as it is with a single directory). The last one that is left never has. (Apache Traffic Server takes a disk of its
/// cache out of use in the same manner: proxy.config.cache.max_disk_errors.)
///
/// No I/O, no clock. Threads: one.
class DirectoryHealth {
 public:
  /// One less than the failures in a row at which a CircuitBreaker opens by default: a device that is gone is not to close the
  /// tier.
  static constexpr std::uint32_t stripes_max = 4;

  explicit DirectoryHealth(std::uint32_t directories) : directories_(directories), left_{directories} {}

  void succeeded(std::uint32_t directory) {
    ++successes_;
    directories_[directory].stripes = 0;
  }
  /// True where the directory has failed by that.
  [[nodiscard]] bool failed(std::uint32_t directory, std::uint64_t stripe) {
    Directory& d = directories_[directory];
    if (d.lost || left_ == 1) return false;
    if (d.stripes == 0) d.successes_before = successes_;
    const auto end = d.failed.begin() + d.stripes;
    if (d.stripes < stripes_max && std::find(d.failed.begin(), end, stripe) == end) d.failed[d.stripes++] = stripe;
    return d.stripes == stripes_max && successes_ > d.successes_before && lose(directory);
  }
  /// From now on it has. False where it had already, or is the last.
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
    std::uint32_t stripes = 0;                        ///< that have failed since the last success in it
    std::array<std::uint64_t, stripes_max> failed{};  ///< those
    std::uint64_t successes_before = 0;               ///< when the first of them did
  };

  std::vector<Directory> directories_;
  std::uint32_t left_;
  std::uint64_t successes_ = 0;  ///< in all of them
};

}  // namespace terrace
