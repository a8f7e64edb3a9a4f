#pragma once

#include "base/waker.hpp"
#include "runtime/cache/types/config.hpp"
#include "storage/file/file_store.hpp"
#include "terrace/async_cache.hpp"
#include "terrace/cache.hpp"
#include "terrace/clock.hpp"
#include "tests/simulated/simulated_device.hpp"
#include "tests/simulated/simulated_io.hpp"
#include "tools/replay/engine/scheduler.hpp"
#include "tools/replay/engine/tokens.hpp"
#include "tools/replay/options/options.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/host/host_arena.hpp"

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace terrace::test {

/// A prompt, and the keys of all blocks that will be full, including those of the output.
struct VirtualRequest {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::vector<BlockKey> keys;
};

struct VirtualOptions {
  ManagerConfig manager;
  tools::Mode mode = tools::Mode::confined;
  /// Time of a disk operation; none: the disk hangs.
  std::optional<Duration> disk_operation;
  /// The disk hangs from then on; none: never.
  std::optional<Duration> disk_stops_after;
  Source farthest_source = all_sources.back();  ///< the farthest source that serves requests
  std::uint32_t stored_blocks = 600;
};

struct VirtualResult {
  tools::EngineCounts counts;
  Duration took{};                     ///< virtual time
  std::vector<Duration> first_tokens;  ///< by request
  ManagerStats stats;
  StoreStat store;
};

/// A continuous-batching engine in virtual time, with the real cache and a file store on a simulated disk. A step takes 5 ms plus
/// 50 microseconds per token. The link takes no time, but its copies wait for compute as usual. The disk works while steps are
/// computed. So differences between two runs come from the disk. Threads: one.
class VirtualEngine {
 public:
  static constexpr std::uint32_t block_tokens = 16;
  static constexpr Bytes block_bytes = KiB * 4;

  explicit VirtualEngine(const VirtualOptions& options);
  ~VirtualEngine();

  /// Serves all requests to their end, eight at a time.
  [[nodiscard]] VirtualResult run(std::span<const VirtualRequest> requests);

 private:
  struct Flight {
    const VirtualRequest* request = nullptr;
    TimePoint came;
    Lease lease;
    Fence computed;
    std::uint64_t launched_tokens = 0;
    std::size_t committed = 0;
    std::size_t hits = 0;
    bool prompted = false;
    bool pending = false;       ///< the cache has not answered yet
    bool told_pending = false;  ///< the scheduler has been told to wait
    bool failed = false;
    std::unique_ptr<asio::cancellation_signal> cancel;
  };
  struct Member {
    tools::RequestNumber request = 0;
    std::uint64_t tokens_end = 0;
    bool last = false;
  };

  void step(VirtualResult& result);
  [[nodiscard]] tools::Answer carry_out(const tools::Action& action);
  [[nodiscard]] tools::Answer acquire(const tools::Action& action);
  [[nodiscard]] bool extend(Flight& flight, std::uint32_t blocks);
  void granted(tools::RequestNumber number, ErrorCode error);
  void launch();
  void share(Flight& flight);
  void end_lease(Flight& flight);
  void tell_scheduler();
  /// Lets the link move everything that it can, and tells the cache.
  void link();
  void collect();
  /// Advances the time, in which the disk works.
  void pass(Duration time);

  VirtualOptions options_;
  ManualClock clock_;
  EventFdWaker waker_;
  HostArena arena_;
  SimulatedDevice device_;
  TransferEngine transfers_;
  SimulatedIo disk_;
  std::unique_ptr<FileStore> store_;
  std::unique_ptr<Cache> cache_;
  asio::io_context loop_;
  std::unique_ptr<AsyncCache> runtime_;  ///< in loop mode

  tools::EngineCounts counts_;
  tools::Scheduler scheduler_;
  std::map<tools::RequestNumber, Flight> flights_;
  std::vector<Member> members_;
  std::vector<tools::RequestNumber> prompted_;
  std::vector<tools::RequestNumber> ended_;
  std::uint64_t tokens_ = 0;  ///< of this step
  TimePoint disk_began_{};    ///< start of the present disk operation
  TimePoint disk_stops_ = never;
  bool disk_is_idle_ = true;
};

}  // namespace terrace::test
