#pragma once

#include "base/log.hpp"
#include "runtime/cache/cache.hpp"
#include "storage/file/file_store.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "transfer/engine/ranked_transfers.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace terrace {

/// What a watch looks at; null: there is none of it. All of it outlives the watch's polls.
struct WatchedParts {
  const Cache* cache = nullptr;
  const ResilientStore* guard = nullptr;
  const FileStore* files = nullptr;
  const RankedTransfers* ranks = nullptr;
};

/// Tells the log what changes in the parts of a CacheSystem: storage that is not used in full, or is again; lost directories;
/// growth that stopped; blocks that do not verify; failed flushes; ranks that fall behind. Each change is said once.
///
/// It is polled by the cache, and looks four times a second at most, at numbers only: without a change a look costs
/// no formatting and no allocation. Threads: the cache's.
class CacheSystemWatch final : public CacheWatch {
 public:
  explicit CacheSystemWatch(Log& log) : log_{log} {}

  /// Before the first poll.
  void begin(const WatchedParts& parts);
  void on_polled(TimePoint now) override;
  void on_flushed(ErrorCode error) override;

  /// A look at once.
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
  StoreStat told_;  ///< what has been said of it
  bool durability_told_ = false;
  std::uint64_t host_failures_ = 0;
  ErrorCode flush_error_;
  std::vector<RankHealth::State> ranks_;
};

}  // namespace terrace
