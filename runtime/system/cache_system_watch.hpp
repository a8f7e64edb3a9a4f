#pragma once

#include "base/log.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "storage/file/file_store.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "terrace/cache.hpp"
#include "transfer/engine/ranked_transfers.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace terrace {

/// The storage of one pool. A null pointer means that there is no such part.
struct WatchedPool {
  const ResilientStore* guard = nullptr;
  const FileStore* files = nullptr;
};

/// The parts that a watch observes. A null pointer means that there is no such part. All of them outlive the last poll.
struct WatchedParts {
  const Cache* cache = nullptr;
  std::vector<WatchedPool> pools;  ///< by PoolId
  const RankedTransfers* ranks = nullptr;
};

/// Logs changes in the parts of a CacheSystem: storage that is not used in full, or is used again; lost directories; growth that
/// stopped; blocks that do not verify; failed flushes; copies between device and host that fail; ranks that fall behind. Each
/// change is logged once; blocks that do not verify, once in a minute.
///
/// The cache calls it in every poll that has something to do. It looks at most four times per second; if a poll came too soon, it
/// asks for another one. It only compares numbers: if nothing has changed, it formats nothing and allocates nothing. Threads: the
/// thread of the cache.
class CacheSystemWatch final : public CacheWatch {
 public:
  explicit CacheSystemWatch(Log& log) : log_{log} {}

  /// Call it before the first poll.
  void begin(WatchedParts parts);
  void on_polled(TimePoint now) override;
  [[nodiscard]] TimePoint next_deadline() const override { return looks_later_ ? next_look_ : never; }
  void on_flushed(ErrorCode error, PoolId pool) override;

  /// Looks at all parts. With `never`, messages are logged without the rate limit.
  void look(TimePoint now = never);

 private:
  /// The state of a pool that was logged last.
  struct Pool {
    bool in_use = true;
    std::uint64_t opened = 0;
    StoreStat told;  ///< the values that were logged last
    bool durability_told = false;
    std::uint64_t host_failures = 0;
    ErrorCode flush_error;
    DamageNotice damage;
  };

  void look_at_guard(std::size_t pool);
  void look_at_files(std::size_t pool, TimePoint at);
  void look_at_host(std::size_t pool);
  void look_at_link();
  void look_at_ranks();
  /// Names the pool in the sentence, if there are several.
  [[nodiscard]] std::string of_pool(std::size_t pool, std::string sentence) const;

  Log& log_;
  WatchedParts parts_;
  TimePoint next_look_{};
  bool looks_later_ = false;        ///< a poll came before next_look_
  std::uint64_t link_stopped_ = 0;  ///< LinkHealth::stopped in the last message
  bool link_in_use_ = true;         ///< LinkHealth::in_use in the last message
  std::vector<Pool> pools_;         ///< by PoolId
  std::vector<RankHealth::State> ranks_;
};

}  // namespace terrace
