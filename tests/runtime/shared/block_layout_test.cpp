// A store is bound to how the bytes of its blocks are laid out: nobody gets blocks that were laid out in another way.

#include "runtime/shared/block_layout.hpp"
#include "storage/file/file_store.hpp"
#include "storage/format/format.hpp"
#include "storage/io/threaded_io.hpp"
#include "terrace/system.hpp"
#include "tests/refusal.hpp"
#include "tests/storage/blocks.hpp"
#include "tests/tools/temporary_directory.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;

constexpr Bytes block = KiB * 16;

CacheSystemOptions options_over(const fs::path& directory, std::size_t ranks) {
  CacheSystemOptions options;
  options.ranks.resize(ranks);
  options.pools.front() = {.block_bytes = block, .device_blocks = Blocks{8}, .host_blocks = Blocks{8}};
  FileStorage files;
  files.directories = {directory};
  files.capacity = MiB;
  files.io = IoChoice::threads;
  options.storage = files;
  return options;
}

/// Stores a block, as the cache would.
void store(BlockStore& store, std::uint64_t number) {
  const std::vector<std::byte> content(count(block), std::byte{7});
  const StoreWrite write{1, {key_of(number), {}, 0, {}}, content};
  store.write({&write, 1});
  std::vector<StoreEvent> events;
  while (!store.contains(key_of(number))) store.poll(events);
}

std::string why_incompatible(const CacheSystemOptions& options) {
  try {
    const CacheSystem system{options};
    return {};
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), static_cast<std::error_code>(make_error_code(Errc::incompatible)));
    return error.what();
  }
}

class CapturedLog final : public LogSink {
 public:
  void write(LogLevel, std::string_view sentence) override { said += sentence; }
  std::string said;  ///< to be read when the log has ended
};

std::string content_of_file(const fs::path& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

TEST(StoreLayout, of_another_number_of_ranks_is_refused_with_both_and_left_as_it_was) {
  const TemporaryDirectory directory;
  {
    CacheSystem system{options_over(directory.path(), 2)};
    store(*system.store(), 1);
  }
  for (const std::size_t ranks : {1, 4}) {
    const std::string sentence = why_incompatible(options_over(directory.path(), ranks));
    EXPECT_NE(sentence.find("ranks side by side: 2"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("ranks side by side: " + std::to_string(ranks)), std::string::npos) << sentence;
  }
  CacheSystemOptions replicated = options_over(directory.path(), 2);
  replicated.rank_payload = RankPayload::replicated;
  EXPECT_NE(why_incompatible(replicated), "");
  CacheSystem system{options_over(directory.path(), 2)};
  EXPECT_TRUE(system.store()->contains(key_of(1)));
  EXPECT_EQ(system.storage_health()->reason.find("earlier version"), std::string::npos);
}

TEST(StoreLayout, of_blocks_that_all_ranks_have_does_not_depend_on_their_number) {
  const TemporaryDirectory directory;
  {
    CacheSystem system{options_over(directory.path(), 1)};
    store(*system.store(), 1);
  }
  CacheSystemOptions replicated = options_over(directory.path(), 4);
  replicated.rank_payload = RankPayload::replicated;
  CacheSystem system{replicated};
  EXPECT_TRUE(system.store()->contains(key_of(1)));
}

/// Makes a store as versions did that bound no layout to it: its fingerprint is that of the options.
void make_former_store(const fs::path& directory) {
  FileStoreConfig config;
  config.directory = directory;
  config.capacity = MiB;
  config.block_bytes = block;
  NullWaker nobody;
  ThreadedIo io{{.threads = 2}, nobody};
  FileStore former{config, io};
  store(former, 1);
}

TEST(StoreLayout, of_a_former_version_is_unknown_so_its_blocks_are_misses_and_it_is_left_as_it_is) {
  const TemporaryDirectory directory;
  const fs::path old = directory.path() / "store";
  make_former_store(directory.path());
  const std::string catalog = content_of_file(old / "catalog");
  CapturedLog log;
  CacheSystemOptions options = options_over(directory.path(), 1);
  options.log.sink = &log;
  {
    CacheSystem system{options};
    EXPECT_EQ(system.store()->stat().blocks, 0U);
    EXPECT_NE(system.storage_health()->reason.find("left as it is"), std::string::npos);
    store(*system.store(), 2);
  }
  EXPECT_NE(log.said.find(old.string() + " was made by an earlier version"), std::string::npos) << log.said;
  EXPECT_NE(why_incompatible(options_over(directory.path(), 2)).find("ranks side by side: 1"), std::string::npos);
  EXPECT_EQ(content_of_file(old / "catalog"), catalog);
  fs::remove_all(old);
  CacheSystem system{options_over(directory.path(), 1)};
  EXPECT_TRUE(system.store()->contains(key_of(2))) << "the new store keeps its place";
  EXPECT_EQ(system.storage_health()->reason.find("earlier version"), std::string::npos);
}

TEST(StoreLayout, says_what_to_remove_where_both_have_no_room) {
  const TemporaryDirectory directory;
  make_former_store(directory.path());
  CacheSystemOptions options = options_over(directory.path(), 1);
  std::get<FileStorage>(options.storage).floor = Bytes{std::uint64_t{1} << 60};
  const std::string said = refusal_of<std::system_error>([&] { const CacheSystem system{options}; });
  EXPECT_NE(said.find("remove the former to free its space"), std::string::npos) << said;
}

TEST(BlockLayouts, differ_in_everything_that_orders_the_bytes_of_a_block_in_both_kinds_of_stores) {
  using Change = std::function<void(CacheSystemOptions&)>;
  const auto regions = [](std::vector<DeviceRegion> parts) {
    return [parts](CacheSystemOptions& options) { options.ranks.front().regions = {parts}; };
  };
  // Each letter is a rank: some ranks have the first layer, others the second.
  const auto ranks = [](const std::string& parts) {
    return [parts](CacheSystemOptions& options) {
      options.ranks.resize(parts.size());
      for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        options.ranks[rank].regions = {{{0, 64, 64, parts[rank] == 'a' ? 0U : 1U}}};
      }
    };
  };
  const auto groups = [](GroupKind kind, std::uint32_t tokens, std::uint32_t span) {
    return [=](CacheSystemOptions& options) {
      options.groups = {{.kind = GroupKind::full, .block_tokens = 16},
                        {.kind = kind, .block_tokens = tokens, .span_tokens = span}};
    };
  };
  const std::vector<Change> changes{
      [](CacheSystemOptions&) {},
      [](CacheSystemOptions& options) { options.ranks.resize(2); },
      [](CacheSystemOptions& options) { options.ranks.resize(4); },
      [](CacheSystemOptions& options) { options.fingerprint[0] = std::byte{1}; },
      regions({{0, 64, 64, 0}, {0, 64, 64, 1}}),
      regions({{0, 64, 64, 1}, {0, 64, 64, 0}}),
      regions({{0, 64, 32, 0}, {0, 64, 96, 1}}),
      regions({{0, 64, 128, 0}}),
      [&](CacheSystemOptions& options) {
        options.ranks.resize(2);
        regions({{0, 64, 64, 0}})(options);
      },
      ranks("ab"),
      ranks("aab"),
      ranks("abb"),
      ranks("aba"),
      groups(GroupKind::sliding_window, 16, 128),
      groups(GroupKind::sliding_window, 16, 256),
      groups(GroupKind::sliding_window, 32, 128),
      groups(GroupKind::chunked_local, 16, 128),
  };
  std::set<std::array<std::byte, 32>> seen;
  for (const Change& change : changes) {
    CacheSystemOptions options;
    change(options);
    const BlockLayout layout = layout_of(options);
    EXPECT_TRUE(seen.insert(file_fingerprint(options.fingerprint, layout)).second) << describe(options.fingerprint, layout);
    EXPECT_TRUE(seen.insert(shared_fingerprint({options.fingerprint, "", block, layout})).second);
    EXPECT_TRUE(seen.insert(shared_fingerprint({options.fingerprint, "other", block, layout})).second);
  }
  // Addresses and strides are the engine's, and differ from start to start.
  CacheSystemOptions options;
  regions({{4096, 128, 64, 0}, {8192, 64, 64, 1}})(options);
  EXPECT_TRUE(seen.contains(file_fingerprint({}, layout_of(options))));
}

}  // namespace
}  // namespace terrace::test
