#pragma once

#include "base/log.hpp"
#include "runtime/cache/cache_parts.hpp"
#include "storage/file/file_store.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "terrace/cache.hpp"
#include "transfer/engine/ranked_transfers.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace terrace {

/// The parts that a watch observes. Null: there is no such part. All of them outlive the last poll.
struct WatchedParts {
  const Cache* cache = nullptr;
  const ResilientStore* guard = nullptr;
  const FileStore* files = nullptr;
  const RankedTransfers* ranks = nullptr;
};

/// Logs changes in the parts of a CacheSystem: storage that is not used in full, or is used again; lost directories; growth that
/// stopped; blocks that do not verify; failed flushes; ranks that fall behind. Each change is logged once.
///
/// The cache calls it in every poll. It looks at most four times per second, and only compares numbers: if nothing has changed,
/// it formats nothing and allocates nothing. Threads: the thread of the cache.
class CacheSystemWatch final : public CacheWatch {
 public:
  explicit CacheSystemWatch(Log& log) : log_{log} {}

  /// Call it before the first poll.
  void begin(const WatchedParts& parts);
  void on_polled(TimePoint now) override;
  void on_flushed(ErrorCode error) override;

  /// Looks at all parts now.
  void look();

 private:
  void look_at_guard();
  void look_at_files();
  void look_at_host();
  void look_at_ranks();

  Log& log_;
  WatchedParts parts_;
  TimePoint next_look_{};
  bool in_use_ = true;
  std::uint64_t opened_ = 0;
  StoreStat told_;  ///< the values that were logged last
  bool durability_told_ = false;
  std::uint64_t host_failures_ = 0;
  ErrorCode flush_error_;
  std::vector<RankHealth::State> ranks_;
};

}  // namespace terrace
