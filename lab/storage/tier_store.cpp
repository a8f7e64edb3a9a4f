#include "terrace/tier_store.hpp"
#include "lab/benches.hpp"
#include "lab/questions.hpp"
#include "lab/storage/storage_ground.hpp"
#include "storage/format/format.hpp"
#include "tools/numbered_key.hpp"
#include "tools/output.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
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
    fill(ground, *this);
  }

  void prepare(StorageWay) override {
    std::erase_if(keys_, [this](const BlockKey& key) { return !store_.contains(key); });
  }

  /// A put names a new block, for which the store evicts an old one when it is full.
  void move(StorageWay way, unsigned depth, std::span<const std::uint32_t> order) override {
    ErrorCode failed;
    const auto start = [&](std::uint64_t row, std::uint32_t block) { submit(way, static_cast<std::uint32_t>(row), block); };
    keep_under_way(ground_, depth, order, start, [&](const auto& ended) {
      results_.clear();
      if (store_.poll(results_) == 0) wait();
      for (const BatchResult& result : results_) {
        const ErrorCode error = result.errors.front();
        if (error) failed = error;
        ended(result.id.value(), !error);
      }
    });
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

/// Nothing if there are too few blocks for a question.
std::vector<Row> ask(TierStoreSubject& subject, unsigned rounds) {
  subject.prepare(StorageWay::read);
  if (subject.keys().size() < keys_a_question) return {};
  const TierStore& store = subject.store();
  const Questions questions{subject.keys(), rounds};
  const auto contains = [&](std::span<const BlockKey> keys) {
    return static_cast<std::size_t>(std::ranges::count_if(keys, [&](const BlockKey& key) { return store.contains(key); }));
  };
  const auto leading = [&](std::span<const BlockKey> keys) { return store.leading(keys); };
  std::vector<Row> rows;
  for (const bool hit : {true, false}) {
    rows.push_back(questions.measure("contains", hit, Questions::Stop::at_the_end, contains));
    rows.push_back(questions.measure("leading", hit, Questions::Stop::at_a_miss, leading));
  }
  return rows;
}

constexpr Column tier_store_columns[] = {{"block_bytes", "block", 7},
                                         {"depth", "", 7},
                                         {"way", "", -3},
                                         {"store_gb_per_s", "store", 9, 2},
                                         {"store_ratio", "ratio", 7, 2},
                                         {"plain_gb_per_s", "plain", 9, 2},
                                         {"store_cpu_us", "store us", 10, 1},
                                         {"plain_cpu_us", "plain", 9, 1}};
constexpr Column tier_store_question_columns[] = {{"block_bytes", "block", 7},
                                                  {"question", "", -8},
                                                  {"hit", "", 5},
                                                  {"ns_a_key", "store", 9, 2},
                                                  {"set_ns_a_key", "std::unordered_set", 20, 2}};

}  // namespace

Row bench_tier_store(const StorageBenchOptions& options) {
  std::string io;
  boost::json::array rows;
  boost::json::array questions;
  at_each_size(options, [&](StorageGround& ground) {
    TierStoreSubject store{ground};
    const std::unique_ptr<StorageSubject> plain = make_plain_subject(ground, plain_files(ground));
    if (io.empty()) {
      io = store.store().io();
      print("medians of {} rounds; {}; GB/s, and microseconds of the calling thread a block\n", options.rounds, io);
      print_head(tier_store_columns);
    }
    const NamedSubject subjects[] = {{"store", store}, {"plain", *plain}};
    for (const unsigned depth : options.depths) {
      for (const StorageWay way : {StorageWay::write, StorageWay::read}) {
        Row row = measure_in_turns(options, ground, depth, way, subjects);
        row["way"] = way == StorageWay::read ? "get" : "put";
        add_row(rows, tier_store_columns, std::move(row));
      }
    }
    for (Row& row : ask(store, options.rounds)) {
      row["block_bytes"] = count(ground.block_bytes);
      row["blocks"] = store.keys().size();
      questions.push_back(std::move(row));
    }
  });
  print_table(fmt::format("questions about {} keys, ns a key", keys_a_question), tier_store_question_columns, questions);
  return {{"io", io},
          {"rounds", options.rounds},
          {"size", count(options.size)},
          {"directories", options.stripes.size() + 1},
          {"tier_store", std::move(rows)},
          {"questions", std::move(questions)}};
}

}  // namespace terrace::tools
