#include "lab/storage/tier_store.hpp"

#include "lab/questions.hpp"
#include "lab/storage/storage_plain.hpp"
#include "lab/storage/storage_rounds.hpp"
#include "lab/storage/storage_subjects.hpp"
#include "storage/format/format.hpp"
#include "terrace/tier_store.hpp"
#include "tools/interrupted.hpp"
#include "tools/numbered_key.hpp"
#include "tools/output.hpp"
#include "tools/report_file.hpp"

#include <boost/json.hpp>

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

TierStoreOptions options_of(const StorageGround& ground) {
  TierStoreOptions options;
  options.directories = ground.directories;
  options.capacity = capacity_for(ground.blocks, ground.block_bytes, static_cast<std::uint32_t>(ground.directories.size()));
  options.block_bytes = ground.block_bytes;
  options.io = ground.io;
  options.gets_under_way_max = Blocks{std::max(256U, ground.depth_max)};
  options.puts_under_way_max = options.gets_under_way_max;
  options.flush_interval = {};  // plain writes are not flushed either
  return options;
}

/// A whole TierStore. The constructor makes it and fills it.
class TierStoreSubject final : public StorageSubject {
 public:
  explicit TierStoreSubject(StorageGround& ground) : ground_{ground}, store_{options_of(ground)} {
    const Result<HostRegionId> region =
        store_.register_region({ground.buffers.data(), ground.depth_max, ground.block_bytes, ground.block_bytes});
    if (!region) throw std::system_error{region.error(), "the tier store"};
    region_ = *region;
    std::vector<std::uint32_t> all(ground.blocks);
    std::iota(all.begin(), all.end(), 0U);
    move(StorageWay::write, std::min(16U, ground.depth_max), all);
  }

  void prepare(StorageWay) override {
    std::erase_if(keys_, [this](const BlockKey& key) { return !store_.contains(key); });
  }

  /// A put names a new block, for which the store evicts an old one when it is full.
  void move(StorageWay way, unsigned depth, std::span<const std::uint32_t> order) override {
    std::size_t begun = 0;
    std::size_t under_way = 0;
    ErrorCode failed;
    const auto start = [&](std::uint32_t row) {
      submit(way, row, order[begun++]);
      ++under_way;
    };
    while (begun < std::min<std::size_t>(depth, order.size())) start(static_cast<std::uint32_t>(begun));
    while (under_way > 0) {
      results_.clear();
      if (store_.poll(results_) == 0) wait();
      for (const BatchResult& result : results_) {
        if (result.errors.front()) failed = result.errors.front();
        --under_way;
        if (begun == order.size() || failed || ground_.interrupt.requested()) continue;
        start(static_cast<std::uint32_t>(result.id.value()));
      }
    }
    if (failed) throw std::system_error{failed, "the tier store"};
  }

  [[nodiscard]] const TierStore& store() const { return store_; }
  /// After prepare(): the keys of the stored blocks.
  [[nodiscard]] const std::vector<BlockKey>& keys() const { return keys_; }

 private:
  /// The row is the name of the batch, too.
  void submit(StorageWay way, std::uint32_t row, std::uint32_t block) {
    const std::array rows{row};
    std::array keys{BlockKey{}};
    Result<void> submitted{};
    if (way == StorageWay::read) {
      keys[0] = keys_[block % keys_.size()];
      submitted = store_.submit_get({.id = BatchId{row}, .keys = keys, .region = region_, .rows = rows});
    } else {
      keys[0] = numbered_key(++next_key_);
      keys_.push_back(keys[0]);
      submitted = store_.submit_put({.id = BatchId{row}, .keys = keys, .region = region_, .rows = rows});
    }
    if (!submitted) throw std::system_error{submitted.error(), "the tier store"};
  }
  void wait() const {
    constexpr int a_while_ms = 100;
    pollfd descriptor{store_.wake_fd(), POLLIN, 0};
    ::poll(&descriptor, 1, a_while_ms);
  }

  StorageGround& ground_;
  TierStore store_;
  HostRegionId region_{};
  std::vector<BlockKey> keys_;
  std::uint64_t next_key_ = 0;
  std::vector<BatchResult> results_;
};

/// A file of the same size for the plain I/O.
StorageFiles plain_files(const StorageGround& ground) {
  StorageFiles files;
  for (const std::filesystem::path& directory : ground.directories) files.to_write.push_back(directory / "plain");
  files.to_read = files.to_write;
  for (std::uint32_t n = 0; n < ground.blocks; ++n) {
    files.places.push_back(files.place(StorageWay::write, n, ground.block_bytes));
  }
  return files;
}

void add_questions(TierStoreSubject& subject, unsigned rounds, std::vector<QuestionRow>& rows) {
  subject.prepare(StorageWay::read);
  if (subject.keys().size() < keys_a_question) return;
  const TierStore& store = subject.store();
  const Questions questions{subject.keys(), rounds};
  const auto contains = [&](std::span<const BlockKey> keys) {
    return static_cast<std::size_t>(std::ranges::count_if(keys, [&](const BlockKey& key) { return store.contains(key); }));
  };
  const auto leading = [&](std::span<const BlockKey> keys) { return store.leading(keys); };
  for (const bool hit : {true, false}) {
    rows.push_back(questions.measure("contains", hit, Questions::Stop::at_the_end, contains));
    rows.push_back(questions.measure("leading", hit, Questions::Stop::at_a_miss, leading));
  }
}

boost::json::object to_json(Bytes block_bytes, unsigned depth, StorageWay way, const StorageSpeed& store,
                            const StorageSpeed& plain) {
  return {{"block_bytes", count(block_bytes)},
          {"depth", depth},
          {"way", way == StorageWay::read ? "get" : "put"},
          {"store_gb_per_s", store.gb_per_s},
          {"store_ratio", store.ratio},
          {"store_cpu_us", store.cpu_us},
          {"plain_gb_per_s", plain.gb_per_s},
          {"plain_cpu_us", plain.cpu_us}};
}

}  // namespace

void bench_tier_store(const StorageBenchOptions& options) {
  check_storage_options(options);
  EventFdWaker waker;
  const Interrupt interrupt{waker};

  std::string io;
  boost::json::array rows;
  boost::json::array question_rows;
  for (const Bytes block_bytes : options.block_bytes) {
    const StorageDirectories directories{options};
    StorageGround ground = make_ground(options, directories, block_bytes, interrupt, waker);
    TierStoreSubject store{ground};
    if (interrupt.requested()) throw Interrupted{};  // the store is not full after an interruption
    const std::unique_ptr<StorageSubject> plain = make_plain_subject(ground, plain_files(ground));
    if (interrupt.requested()) throw Interrupted{};
    if (io.empty()) {
      io = store.store().io();
      print("medians of {} rounds; {}; GB/s, and microseconds of the calling thread a block\n", options.rounds, io);
      print("{:>7} {:>6}  {:<3}  {:>7} {:>6}  {:>7}  {:>8} {:>8}\n", "block", "depth", "way", "store", "ratio", "plain",
            "store us", "plain");
    }
    for (const unsigned depth : options.depths) {
      for (const StorageWay way : {StorageWay::write, StorageWay::read}) {
        const std::array<StorageSubject*, 2> subjects{&store, plain.get()};
        const std::vector<StorageSpeed> speeds = measure_in_turns(options, ground, depth, way, subjects);
        print("{:>7} {:>6}  {:<3}  {:>7.2f} {:>6.2f}  {:>7.2f}  {:>8.1f} {:>8.1f}\n", to_string(block_bytes), depth,
              way == StorageWay::read ? "get" : "put", speeds[0].gb_per_s, speeds[0].ratio, speeds[1].gb_per_s, speeds[0].cpu_us,
              speeds[1].cpu_us);
        flush_output();
        rows.push_back(to_json(block_bytes, depth, way, speeds[0], speeds[1]));
      }
    }
    std::vector<QuestionRow> questions;
    add_questions(store, options.rounds, questions);
    for (const QuestionRow& row : questions) {
      print("{:>7}  {:<8} of {} keys, {:<4}  {:>7.2f} ns a key; std::unordered_set {:>7.2f}\n", to_string(block_bytes),
            row.question, keys_a_question, row.hit ? "hit" : "miss", row.ns_a_key, row.set_ns_a_key);
      boost::json::object object = to_json(row);
      object["block_bytes"] = count(block_bytes);
      object["blocks"] = store.keys().size();
      question_rows.push_back(std::move(object));
    }
    flush_output();
  }

  if (options.report.empty()) return;
  write_report(options.report, json_text(boost::json::object{{"io", io},
                                                             {"rounds", options.rounds},
                                                             {"size", count(options.size)},
                                                             {"directories", options.stripes.size() + 1},
                                                             {"tier_store", std::move(rows)},
                                                             {"questions", std::move(question_rows)}}));
}

}  // namespace terrace::tools
