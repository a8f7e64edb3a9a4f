#include "storage/offline/store_verification.hpp"

#include "base/check.hpp"
#include "storage/io/aligned_buffer.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace terrace {
namespace {

using Steady = std::chrono::steady_clock;
using Verdict = StoreReader::Verdict;

constexpr std::chrono::milliseconds tick{100};

/// The state that the threads share.
class Work {
 public:
  Work(const StoreReader& reader, const VerificationOptions& options) : reader_{reader}, options_{options} {
    for (const CatalogRecord& record : reader.catalog().blocks()) blocks_.push_back(&record);
    std::sort(blocks_.begin(), blocks_.end(), [](const auto* a, const auto* b) { return a->slot < b->slot; });
    found_.blocks = blocks_.size();
    running_ = options.threads;
  }

  /// The body of each thread. Returns when no block is left, or after stop().
  void run() {
    const AlignedBuffer scratch = reader_.make_scratch();
    while (!stop_) {
      const std::uint64_t next = next_.fetch_add(1);
      if (next >= blocks_.size() || !pace()) break;
      note(*blocks_[next], reader_.verify(*blocks_[next], scratch.span()), Steady::now());
    }
    const std::lock_guard guard{mutex_};
    --running_;
    ended_.notify_all();
  }

  /// Waits for one tick. Returns true once all threads have ended.
  bool wait() {
    std::unique_lock guard{mutex_};
    return ended_.wait_for(guard, tick, [&] { return running_ == 0; });
  }

  /// Verifies doubtful blocks again. Returns true once there are none.
  bool look_again() {
    std::vector<Doubt> doubts;
    {
      const std::lock_guard guard{mutex_};
      doubts.swap(doubts_);
    }
    const AlignedBuffer scratch = reader_.make_scratch();
    for (const Doubt& doubt : doubts) {
      StoreReader::Verified verified = reader_.verify(*doubt.block, scratch.span());
      const bool spent = Steady::now() >= doubt.since + options_.patience;
      if (verified.verdict == Verdict::doubtful && spent) verified = {Verdict::corrupt};
      note(*doubt.block, verified, doubt.since);
    }
    const std::lock_guard guard{mutex_};
    return doubts_.empty();
  }

  void stop() { stop_ = true; }
  [[nodiscard]] bool stopped() const { return stop_; }

  [[nodiscard]] Verification found() {
    const std::lock_guard guard{mutex_};
    return found_;
  }

 private:
  struct Doubt {
    const CatalogRecord* block;
    Steady::time_point since;
  };

  void note(const CatalogRecord& block, const StoreReader::Verified& verified, Steady::time_point since) {
    const std::lock_guard guard{mutex_};
    if (verified.verdict != Verdict::missing) found_.read += Bytes{reader_.layout().block_bytes};
    switch (verified.verdict) {
      case Verdict::verified: ++found_.verified; break;
      case Verdict::changed: ++found_.changed; break;
      case Verdict::missing: ++found_.missing; break;
      case Verdict::doubtful: doubts_.push_back({&block, since}); break;
      case Verdict::corrupt:
      case Verdict::unreadable: found_.wrong.push_back({block, verified}); break;
    }
  }

  /// Waits until the bandwidth limit allows one more block. Returns false after stop().
  bool pace() {
    if (count(options_.bandwidth) == 0) return !stop_;
    const std::chrono::duration<double> cost{static_cast<double>(reader_.layout().block_bytes) /
                                             static_cast<double>(count(options_.bandwidth))};
    Steady::time_point begin;
    {
      const std::lock_guard guard{mutex_};
      begin = std::max(free_at_, Steady::now());
      free_at_ = begin + std::chrono::duration_cast<Steady::duration>(cost);
    }
    while (!stop_ && Steady::now() < begin) {
      std::this_thread::sleep_for(std::min<Steady::duration>(begin - Steady::now(), tick / 4));
    }
    return !stop_;
  }

  const StoreReader& reader_;
  const VerificationOptions options_;
  std::vector<const CatalogRecord*> blocks_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<bool> stop_{false};

  std::mutex mutex_;  ///< guards the members below
  std::condition_variable ended_;
  unsigned running_ = 0;
  Verification found_;
  std::vector<Doubt> doubts_;
  Steady::time_point free_at_ = Steady::now();
};

}  // namespace

Verification verify_all(const StoreReader& reader, const VerificationOptions& options,
                        const std::function<bool(std::uint64_t, Bytes)>& go_on) {
  TERRACE_CHECK(options.threads > 0);
  const Steady::time_point begin = Steady::now();
  Work work{reader, options};
  {
    std::vector<std::jthread> threads;
    const auto ask = [&] {
      const Verification found = work.found();
      if (!go_on(found.done(), found.read)) work.stop();
    };
    try {
      for (unsigned n = 0; n < options.threads; ++n) threads.emplace_back([&work] { work.run(); });
    } catch (...) {
      work.stop();
      throw;
    }
    ask();
    while (!work.wait()) ask();
    while (!work.stopped() && !work.look_again()) {
      ask();
      std::this_thread::sleep_for(tick);
    }
  }
  Verification found = work.found();
  std::sort(found.wrong.begin(), found.wrong.end(), [](const auto& a, const auto& b) { return a.block.slot < b.block.slot; });
  found.seconds = std::chrono::duration<double>(Steady::now() - begin).count();
  found.stopped = found.done() < found.blocks;
  return found;
}

}  // namespace terrace
