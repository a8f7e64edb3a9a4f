// Batches of a TierStore over a file store on a disk that errs, rots, fills, stalls and loses power, beside a model. The parts
// are those that a TierStore puts together (TierBatches, ResilientStore, FileStore), on a disk and a clock of the test's.

#include "base/random.hpp"
#include "runtime/store/tier_batches.hpp"
#include "storage/file/file_store.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "tests/seed.hpp"
#include "tests/simulated/simulated_io.hpp"
#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t keys_max = 40;
constexpr std::uint32_t rows_max = 40;
constexpr std::byte nobodys{0xAB};  ///< the content of a row that no batch uses
constexpr int steps = 500;

struct Faults {
  bool errors = false;     ///< operations fail, move too little, or find no room
  bool rot = false;        ///< stored bytes change
  bool flips = false;      ///< bits flip on their way, in data and in the catalog
  bool slow = false;       ///< operations stall beyond the deadlines
  bool fills = false;      ///< others fill the disk, whose files cannot take their room in advance
  bool limited = false;    ///< the size of files becomes limited while the store serves
  bool crashes = false;    ///< the process is killed, or the power fails
  bool resilient = false;  ///< a ResilientStore is in front
  bool striped = false;    ///< over two directories, of which one may fail
};

Faults random_faults(std::uint64_t seed) {
  Random random{seed * 7919 + 3};
  Faults faults;
  faults.resilient = random.chance(0.5);
  faults.striped = random.chance(0.25);
  faults.crashes = random.chance(0.7);
  if (random.chance(0.15)) return faults;  // apart from that, nothing goes wrong
  faults.errors = random.chance(0.4);
  faults.rot = random.chance(0.3);
  faults.flips = random.chance(0.2);
  faults.slow = random.chance(0.4);
  faults.fills = random.chance(0.3);
  faults.limited = random.chance(0.2);
  return faults;
}

struct Seen {
  std::uint64_t hits = 0;  ///< each compared
  std::uint64_t stored = 0;
  std::uint64_t corrupt = 0;
  std::uint64_t io_failed = 0;
  std::uint64_t full = 0;
  std::uint64_t late = 0;
  std::uint64_t abandoned = 0;  ///< batches that ended while the disk had their rows
  std::uint64_t evicted = 0;
  std::uint64_t below = 0;  ///< blocks with a parent
  std::uint64_t power_failures = 0;
  std::uint64_t kills = 0;
  std::uint64_t durable = 0;  ///< blocks that had to survive an end, and did
  std::uint64_t away = 0;     ///< blocks that had to stay away after an end, and did
  std::uint64_t erased = 0;   ///< keys of which an erasure has ended
  std::uint64_t flush_failures = 0;
  std::uint64_t starts_refused = 0;
  std::uint64_t declined = 0;  ///< steps in which a breaker was open
};

class World {
 public:
  World(std::uint64_t seed, Seen& seen)
      : faults_{random_faults(seed)},
        random_{seed},
        seen_{seen},
        blocks_{static_cast<std::uint32_t>(random_.between(4, 24))},
        shift_{random_.chance(0.3) ? 8U : 0U},
        memory_{rows_max * stride + io_alignment} {
    limits_ = {.blocks_max = 48, .gets_under_way_max = 6, .puts_under_way_max = 5};
    if (random_.chance(0.5)) limits_.flush_interval = milliseconds{random_.between(1, 60)};
    rows_ = {memory_.data() + shift_, rows_max, Bytes{block_size}, Bytes{stride}};
    std::ranges::fill(memory_.span(), nobodys);
    disk_->files().set_preallocates(!faults_.fills);
    open();
  }

  ~World() {
    // (After a failure the disk may still use memory of the batches.)
    if (store_) static_cast<void>(store_->close());
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void run() {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      step();
      batches_->check_invariants();
      if (guard_ && guard_->read_breaker().state() != BreakerState::closed) ++seen_.declined;
    }
    if (::testing::Test::HasFailure()) return;
    settle();
    if (faults_.crashes) end_and_start_again();
  }

 private:
  static constexpr std::size_t stride = block_size + io_alignment;

  struct Expected {
    BatchKind kind = BatchKind::put;
    std::vector<BlockKey> keys;
    std::vector<std::uint32_t> rows;
    std::set<BlockKey> there;  ///< of a flush: what it makes durable
    std::set<BlockKey> away;
  };
  using Batches = std::map<std::uint64_t, Expected>;

  [[nodiscard]] FileStoreConfig config() const {
    FileStoreConfig config = faults_.striped ? striped_config_for("/store", blocks_, 2, 2) : config_for("/store", blocks_);
    config.id = 9;
    return config;
  }

  void open() {
    store_ = std::make_unique<FileStore>(config(), *disk_);
    BlockStore* front = store_.get();
    if (faults_.resilient) {
      ResilienceOptions options;
      options.back_off_first = milliseconds{5};
      options.back_off_max = milliseconds{20};
      options.breaker.failures_max = 3;
      options.breaker.probe_first = milliseconds{10};
      options.breaker.probe_max = milliseconds{40};
      guard_.emplace(*store_, clock_, options);
      front = &*guard_;
    }
    batches_.emplace(*front, guard_ ? &*guard_ : nullptr, disk_.get(), clock_, nobody_, limits_);
    region_ = batches_->regions().add(rows_, Bytes{block_size}, nullptr).value();
    there_.clear();
    store_->for_each([this](const StoredBlock& block) { there_.insert(block.key); });
  }

  // ---- what the engine does

  void step() {
    clock_.advance(milliseconds{random_.below(8)});
    const std::uint64_t dice = random_.below(100);
    if (dice < 14) put();
    else if (dice < 28) get(random_keys(), random_deadline());
    else if (dice < 44) poll();
    else if (dice < 78) disk_step();
    else if (dice < 82) flush();
    else if (dice < 90) operate();
    else if (dice < 98) plant();
    else if (dice == 98) settle();
    else if (faults_.crashes && random_.chance(0.5)) end_and_start_again();
  }

  [[nodiscard]] std::vector<BlockKey> random_keys() {
    std::vector<BlockKey> keys;
    for (std::uint64_t n = random_.between(1, 7); n > 0; --n) keys.push_back(key_of(random_.below(keys_max)));
    return keys;
  }

  [[nodiscard]] TimePoint random_deadline() {
    return random_.chance(faults_.slow ? 0.5 : 0.1) ? clock_.now() + milliseconds{random_.below(60)} : never;
  }

  /// Takes free rows, which nobody may have changed since they became free. Fewer keys are left if there are too few rows.
  [[nodiscard]] std::vector<std::uint32_t> take_rows(std::vector<BlockKey>& keys) {
    std::vector<std::uint32_t> rows;
    for (std::uint32_t row = 0; row < rows_max && rows.size() < keys.size(); ++row) {
      if (!busy_.contains(row)) rows.push_back(row);
    }
    keys.resize(rows.size());
    for (const std::uint32_t row : rows) {
      EXPECT_EQ(std::ranges::count(rows_.row(row), nobodys), static_cast<std::ptrdiff_t>(block_size)) << "a late write";
    }
    return rows;
  }

  void put() {
    Expected put{BatchKind::put, random_keys(), {}, {}, {}};
    put.rows = take_rows(put.keys);
    std::vector<BlockKey> parents;
    for (std::size_t i = 0; i < put.keys.size(); ++i) {
      test::fill(rows_.row(put.rows[i]), put.keys[i]);
      // (A parent has a lower number, so that there is no circle.)
      const std::uint64_t lower = random_.below(keys_max / 2);
      const bool is_lower = random_.chance(0.4) && number_of(put.keys[i]) > lower;
      parents.push_back(is_lower ? key_of(lower) : BlockKey{});
    }
    const TimePoint deadline = random_deadline();
    if (!batches_->submit_put({BatchId{next_id_}, put.keys, region_, put.rows, parents, deadline})) {
      for (const std::uint32_t row : put.rows) std::ranges::fill(rows_.row(row), nobodys);
      return;
    }
    for (const BlockKey& key : put.keys) comes_back(key);
    begin(std::move(put));
  }

  void get(std::vector<BlockKey> keys, TimePoint deadline) {
    Expected get{BatchKind::get, std::move(keys), {}, {}, {}};
    get.rows = take_rows(get.keys);
    if (batches_->submit_get({BatchId{next_id_}, get.keys, region_, get.rows, deadline})) begin(std::move(get));
  }

  void begin(Expected batch) {
    busy_.insert(batch.rows.begin(), batch.rows.end());
    expected_.emplace(next_id_++, std::move(batch));
  }

  /// A flush covers what poll() has told of, and nothing that puts may still bring or change.
  void flush() {
    Expected flush{BatchKind::flush, {}, {}, there_, {}};
    for (std::uint64_t n = 0; n < keys_max; ++n) {
      if (!store_->contains(key_of(n)) && !there_.contains(key_of(n))) flush.away.insert(key_of(n));
    }
    for (const Batches* batches : {&expected_, &abandoned_}) {
      for (const auto& [id, batch] : *batches) {
        if (batch.kind != BatchKind::put) continue;
        for (const BlockKey& key : batch.keys) flush.away.erase(key);
      }
    }
    if (batches_->submit_flush(BatchId{next_id_})) begin(std::move(flush));
  }

  void operate() {
    switch (random_.below(6)) {
      case 0:
      case 1:
        if (!expected_.empty()) static_cast<void>(batches_->cancel(BatchId{expected_.rbegin()->first}));
        return;
      case 2:
      case 3: {
        const std::vector<BlockKey> keys = random_keys();
        EXPECT_TRUE(batches_->remove(keys));
        erasing_.insert(keys.begin(), keys.end());
        return;
      }
      case 4:
        if (!random_.chance(0.2)) return;
        EXPECT_TRUE(batches_->clear());
        for (std::uint64_t n = 0; n < keys_max; ++n) erasing_.insert(key_of(n));
        return;
      default: batches_->touch(random_keys());
    }
  }

  void poll() {
    std::vector<BatchResult> results;
    std::vector<TierEvent> events;
    batches_->poll(results);
    batches_->poll_events(events);
    for (const TierEvent& event : events) {
      switch (event.kind) {
        case TierEvent::Kind::stored: EXPECT_TRUE(there_.insert(event.key).second) << "stored twice"; break;
        case TierEvent::Kind::evicted:
          ++seen_.evicted;
          goes(event.key);
          break;
        case TierEvent::Kind::removed: goes(event.key); break;
        case TierEvent::Kind::memory_free: {
          auto batch = abandoned_.extract(event.batch.value());
          ASSERT_FALSE(batch.empty()) << "no batch had kept memory";
          release(batch.mapped().rows);
        }
      }
    }
    for (const BatchResult& result : results) check(result);
    if (!erasing_.empty() && !batches_->is_erasing()) {
      seen_.erased += erasing_.size();
      if (!batches_->erase_error()) away_.merge(erasing_);
      erasing_.clear();
    }
    store_->for_each([this](const StoredBlock& block) { seen_.below += block.depth > 0; });
  }

  void goes(const BlockKey& key) {
    there_.erase(key);
    rotten_.erase(key);
    durable_.erase(key);
    for (auto& [id, batch] : expected_) batch.there.erase(key);
  }

  void comes_back(const BlockKey& key) {
    away_.erase(key);
    erasing_.erase(key);
    for (auto& [id, batch] : expected_) batch.away.erase(key);
  }

  void check(const BatchResult& result) {
    auto found = expected_.extract(result.id.value());
    ASSERT_FALSE(found.empty()) << "a second result";
    Expected& batch = found.mapped();
    ASSERT_EQ(result.kind, batch.kind);
    if (batch.kind == BatchKind::flush) return check_flush(result, batch);
    ASSERT_EQ(result.errors.size(), batch.keys.size());
    for (std::size_t i = 0; i < batch.keys.size(); ++i) {
      const ErrorCode error = result.errors[i];
      const bool is_get = batch.kind == BatchKind::get;
      if (!error) {
        (is_get ? seen_.hits : seen_.stored) += 1;
        EXPECT_TRUE(holds(rows_.row(batch.rows[i]), batch.keys[i])) << "wrong bytes";
        if (is_get) read_.insert(batch.keys[i]);
      } else if (error == Errc::deadline_exceeded) {
        ++seen_.late;
      } else if (error == Errc::corrupt) {
        ++seen_.corrupt;
        EXPECT_TRUE(is_get && (faults_.rot || faults_.flips || may_have_old_records_));
      } else if (error == Errc::io_failed) {
        ++seen_.io_failed;
        EXPECT_TRUE(faults_.errors || faults_.limited || faults_.striped);
      } else if (error == Errc::full) {
        ++seen_.full;
        EXPECT_FALSE(is_get);
      } else {
        EXPECT_TRUE(error == Errc::cancelled || error == (is_get ? Errc::not_found : Errc::refused)) << error.message();
      }
    }
    if (!result.memory_in_use) return release(batch.rows);
    ++seen_.abandoned;
    abandoned_.insert(std::move(found));
  }

  void check_flush(const BatchResult& result, Expected& batch) {
    if (result.errors.at(0)) {
      ++seen_.flush_failures;
      EXPECT_TRUE(faults_.errors || faults_.flips || faults_.fills || faults_.limited || lost_directory_)
          << result.errors[0].message();
      return;
    }
    durable_.merge(batch.there);
    away_.merge(batch.away);
  }

  void release(const std::vector<std::uint32_t>& rows) {
    for (const std::uint32_t row : rows) {
      EXPECT_EQ(busy_.erase(row), 1U);
      std::ranges::fill(rows_.row(row), nobodys);
    }
  }

  // ---- what the disk does

  void disk_step() {
    if (disk_->stalled() > 0 && random_.chance(0.1)) disk_->release_stalled();
    for (std::uint64_t n = random_.between(1, 4); n > 0 && disk_->queued() > 0; --n) disk_->step(random_.below(disk_->queued()));
  }

  void plant() {
    SimulatedFiles& files = disk_->files();
    IoFault fault;
    if (faults_.errors && random_.chance(0.5)) {
      constexpr int errors[] = {EIO, ENOSPC, EDQUOT, EFBIG};
      if (random_.chance(0.7)) fault.error = errors[random_.below(std::size(errors))];
      else fault.bytes_max = random_.below(block_size);
    }
    fault.flip = faults_.flips && random_.chance(0.3);
    fault.stall = faults_.slow && random_.chance(0.5);
    if (fault.error != 0 || fault.bytes_max || fault.flip || fault.stall) {
      files.inject(files.next_number() + random_.below(8), fault);
    }
    if (faults_.rot && random_.chance(0.4) && !there_.empty()) rot();
    if (faults_.fills) files.set_disk_bytes(random_.chance(0.5) ? files.used_bytes() : unlimited);
    if (faults_.limited) {
      files.set_file_bytes_max(random_.chance(0.3) ? Bytes{block_size * random_.between(1, blocks_)} : unlimited);
    }
    if (faults_.striped && random_.chance(0.01)) {
      files.break_directory("/store-1");
      lost_directory_ = true;
    }
  }

  void rot() {
    auto key = there_.begin();
    std::advance(key, static_cast<std::ptrdiff_t>(random_.below(there_.size())));
    const std::optional<FileStore::Location> at = store_->location(*key);
    if (!at) return;
    disk_->files().content(at->file)[at->offset + random_.below(block_size)] ^= std::byte{0x04};
    rotten_.insert(*key);
  }

  // ---- ends and checks

  /// Waits until nothing is under way. Then what can be read is exactly what the events say.
  void settle() {
    disk_->files().set_disk_bytes(unlimited);
    disk_->files().set_file_bytes_max(unlimited);
    poll();
    for (int i = 0; !batches_->is_idle() || store_->in_flight() > 0 || disk_->in_flight() > 0; ++i) {
      ASSERT_LT(i, 20000);
      if (disk_->queued() == 0) {
        disk_->release_stalled();
        clock_.advance(milliseconds{1});
      }
      disk_step();
      poll();
    }
    poll();
    ASSERT_TRUE(expected_.empty() && abandoned_.empty() && busy_.empty());
    const bool reads = !guard_ || guard_->read_breaker().state() == BreakerState::closed;
    for (std::uint64_t n = 0; n < keys_max; ++n) {
      EXPECT_EQ(store_->contains(key_of(n)), there_.contains(key_of(n))) << n;
      // (While the breaker is open, the answer is no, except at the time of a probe.)
      const bool found = batches_->contains(key_of(n));
      EXPECT_TRUE(found == there_.contains(key_of(n)) || (!found && !reads)) << n;
    }
    store_->check_invariants();
    const TierStatistics now = batches_->statistics();
    EXPECT_EQ(now.gets, now.hits + now.misses + now.corrupt + now.get_failures + now.gets_cancelled + now.gets_late);
    EXPECT_EQ(now.puts, now.stored + now.put_failures + now.puts_cancelled + now.puts_late);
  }

  /// Reads all that is there. Afterwards read_ has the blocks that were read with their bytes.
  void read_all() {
    read_.clear();
    get({there_.begin(), there_.end()}, never);
    settle();
  }

  void end_and_start_again() {
    poll();
    const bool power = random_.chance(0.5);
    const bool torn = random_.chance(0.5);
    const double survives = random_.chance(0.3) ? 0 : 0.5;
    bool answer = false;
    auto left = std::make_unique<SimulatedIo>(power ? disk_->files().after_power_failure([&](bool whole) {
      if (whole || torn) answer = random_.chance(survives);
      return answer;
    })
                                                    : disk_->files().left_by(SimulatedFiles::End::killed));
    ++(power ? seen_.power_failures : seen_.kills);
    // A block that the index has given up without having told yet is gone.
    std::erase_if(durable_, [this](const BlockKey& key) { return !store_->contains(key); });
    static_cast<void>(store_->close());  // on the disk that nobody has any more; it may still use memory of the batches
    batches_.reset();
    guard_.reset();
    store_.reset();
    expected_.clear();
    abandoned_.clear();
    busy_.clear();
    std::ranges::fill(memory_.span(), nobodys);
    disk_ = std::move(left);
    disk_->files().set_disk_bytes(unlimited);
    // (A page of the catalog that was not written leaves old records, too.)
    may_have_old_records_ |= power || faults_.errors || faults_.fills || faults_.limited;
    bool sure = !faults_.flips;
    if (faults_.errors && random_.chance(0.2)) {
      // Now the start itself meets a fault: either it says so, or it loses no more than what it could not read.
      disk_->files().inject(disk_->files().next_number() + random_.below(40), {.error = random_.chance(0.5) ? EIO : ENOSPC});
      sure = false;
    }
    may_have_old_records_ |= !sure;  // (A page of the catalog that could not be read may have old records.)
    try {
      open();
    } catch (const std::system_error& refused) {
      ++seen_.starts_refused;
      EXPECT_FALSE(sure);
      EXPECT_NE(std::string{refused.what()}, "");
      disk_ = std::make_unique<SimulatedIo>(disk_->files().left_by(SimulatedFiles::End::killed));
      open();
    }
    if (sure) {
      for (const BlockKey& key : durable_) EXPECT_TRUE(there_.contains(key)) << "was durable";
      for (const BlockKey& key : away_) EXPECT_FALSE(there_.contains(key)) << "was gone for good";
      seen_.away += away_.size();
    }
    const bool intact = sure && rotten_.empty();
    const std::set<BlockKey> durable = durable_;
    read_all();
    if (intact) {
      EXPECT_TRUE(std::ranges::includes(read_, durable)) << "durable blocks have their bytes";
      seen_.durable += durable.size();
    }
    // A block that a start has found need not be durable by itself; the next flush covers it.
    durable_.clear();
    away_.clear();
    erasing_.clear();
    rotten_.clear();
    lost_directory_ = false;
  }

  static std::uint64_t number_of(const BlockKey& key) {
    static const std::map<BlockKey, std::uint64_t> numbers = [] {
      std::map<BlockKey, std::uint64_t> all;
      for (std::uint64_t n = 0; n < keys_max; ++n) all.emplace(key_of(n), n);
      return all;
    }();
    return numbers.at(key);
  }

  static constexpr Bytes unlimited{~std::uint64_t{0}};

  Faults faults_;
  Random random_;
  Seen& seen_;
  std::uint32_t blocks_;
  std::size_t shift_;
  AlignedBuffer memory_;
  HostRows rows_;
  TierLimits limits_;
  ManualClock clock_;
  NullWaker nobody_;
  std::unique_ptr<SimulatedIo> disk_ = std::make_unique<SimulatedIo>();
  std::unique_ptr<FileStore> store_;
  std::optional<ResilientStore> guard_;
  std::optional<TierBatches> batches_;
  HostRegionId region_;
  std::uint64_t next_id_ = 1;
  Batches expected_;
  Batches abandoned_;
  std::set<std::uint32_t> busy_;
  std::set<BlockKey> there_;    ///< by the events
  std::set<BlockKey> durable_;  ///< covered by a flush, and not gone since
  std::set<BlockKey> away_;     ///< gone before a flush, and not put since
  std::set<BlockKey> erasing_;  ///< removed, and not put since; away when the erasure has ended
  std::set<BlockKey> rotten_;
  std::set<BlockKey> read_;  ///< by gets, with the right bytes, since read_all() began
  bool may_have_old_records_ = false;
  bool lost_directory_ = false;
};

TEST(TierStoreFaults, never_give_wrong_bytes_nor_lose_what_is_durable_and_events_agree_with_what_can_be_read) {
  const std::uint64_t first = seed_from_env_or(1);
  const std::uint64_t count = seeds_from_env_or(200, 200);
  Seen seen;
  for (std::uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
    World{seed, seen}.run();
  }
  const std::map<std::string, std::uint64_t> all{{"hits", seen.hits},
                                                 {"stored", seen.stored},
                                                 {"corrupt", seen.corrupt},
                                                 {"io_failed", seen.io_failed},
                                                 {"full", seen.full},
                                                 {"late", seen.late},
                                                 {"abandoned", seen.abandoned},
                                                 {"evicted", seen.evicted},
                                                 {"below", seen.below},
                                                 {"power", seen.power_failures},
                                                 {"kills", seen.kills},
                                                 {"durable", seen.durable},
                                                 {"away", seen.away},
                                                 {"erased", seen.erased},
                                                 {"flush_failures", seen.flush_failures},
                                                 {"refused", seen.starts_refused},
                                                 {"declined", seen.declined}};
  for (const auto& [name, number] : all) {
    std::printf("%s %lu, ", name.c_str(), number);
    // Worlds in which nothing happens would prove nothing.
    EXPECT_TRUE(number > 0 || count < 100) << name;
  }
  std::printf("\n");
}

}  // namespace
}  // namespace terrace::test
