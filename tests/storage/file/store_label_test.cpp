// Labels: whose store it is, for people. Nothing depends on them.

#include "storage/format/store_label.hpp"

#include "storage/offline/store_reader.hpp"
#include "tests/storage/damage.hpp"
#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;

TEST(StoreLabelText, is_read_back_and_no_letter_may_change) {
  const StoreLabel label{"vLLM 0.33.0, model M, weights commit:1f", "2026-11-21 10:00:00 UTC"};
  const std::string text = to_text(label);
  ASSERT_EQ(text.size(), label_bytes);
  EXPECT_EQ(parse_label(text), label);
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string other = text;
    other[at] ^= 1;
    EXPECT_EQ(parse_label(other), std::nullopt) << at;
  }
  EXPECT_EQ(parse_label(std::string(label_bytes, '\0')), std::nullopt);
  EXPECT_EQ(parse_label(""), std::nullopt);
}

TEST(StoreLabelText, brings_nothing_unprintable_to_a_terminal_and_fits_its_sector) {
  const StoreLabel loud{"\x1b[2Jevil\nsum " + std::string(1000, 'y'), "2026-11-21 10:00:00 UTC"};
  const auto found = parse_label(to_text(loud));
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->text.starts_with("?[2Jevil?sum yyy")) << found->text;
  EXPECT_EQ(found->text.size(), label_letters_max);
  EXPECT_EQ(tenant_of(found->text), tenant_of(loud.text));
  EXPECT_EQ(tenant_of(""), TenantId{});
}

TEST(StoreLabelText, the_seventh_label_takes_the_place_of_the_oldest) {
  std::array<std::byte, labels_max * label_bytes> sectors{};
  const auto put = [&](const std::string& text, int day) {
    const std::string record = to_text({text, "2026-11-2" + std::to_string(day) + " 10:00:00 UTC"});
    const std::size_t at = sector_for(sectors, text);
    std::memcpy(sectors.data() + at * label_bytes, record.data(), label_bytes);
  };
  for (int n = 0; n < 6; ++n) put(std::string(1, static_cast<char>('a' + n)), n);
  put("a", 7);  // its own place again
  put("g", 8);
  std::string order;
  for (const StoreLabel& label : parse_labels(sectors)) order += label.text;
  EXPECT_EQ(order, "gafedc") << "b was opened first";
  sectors[label_bytes / 2] ^= std::byte{1};
  EXPECT_EQ(parse_labels(sectors).size(), 5U) << "one torn record costs one label";
}

class LabelledStore : public testing::Test {
 protected:
  void write_as(const std::string& label, const std::vector<StoredBlock>& blocks) {
    FileStoreConfig config = config_for(where_, 64);
    config.label = label;
    ThreadsHarness harness{config, calls_};
    harness.write(blocks);
  }
  static std::vector<StoredBlock> without_tenant(std::uint64_t first, std::size_t count) {
    std::vector<StoredBlock> blocks = prefix_of(first, count);
    for (StoredBlock& block : blocks) block.tenant = {};
    return blocks;
  }

  TemporaryDirectory directory_;
  fs::path where_ = directory_.path() / "store";
  FaultyCalls calls_;
};

TEST_F(LabelledStore, tells_how_many_blocks_were_written_under_each_label) {
  write_as("engine, model A", without_tenant(1, 3));
  write_as("engine, model B", without_tenant(100, 2));
  write_as("engine, model B", prefix_of(200, 1));  // with a tenant of its own
  const StoreReader reader{where_};
  ASSERT_EQ(reader.labels().size(), 2U);
  std::map<TenantId, int> blocks;
  for (const CatalogRecord& record : reader.catalog().blocks()) ++blocks[record.block.tenant];
  EXPECT_EQ(blocks[tenant_of("engine, model A")], 3);
  EXPECT_EQ(blocks[tenant_of("engine, model B")], 2);
  EXPECT_EQ(blocks[TenantId{7}], 1);
}

TEST_F(LabelledStore, has_no_tenant_that_its_user_did_not_give) {
  write_as("engine", without_tenant(1, 3));
  FileStoreConfig config = config_for(where_, 64);
  config.label = "engine";
  ThreadsHarness harness{config, calls_};
  int found = 0;
  harness.store().for_each([&](const StoredBlock& block) {
    EXPECT_EQ(block.tenant, TenantId{});
    ++found;
  });
  EXPECT_EQ(found, 3);
}

TEST_F(LabelledStore, is_optional_and_a_damaged_label_harms_nothing) {
  write_as("", without_tenant(1, 3));
  EXPECT_TRUE(StoreReader{where_}.labels().empty());
  EXPECT_EQ(fs::file_size(where_ / "lock"), lock_file_bytes) << "as without labels";
  write_as("engine", {});
  EXPECT_EQ(StoreReader{where_}.labels().size(), 1U);
  flip(where_ / "lock", labels_at + 20, 1);
  EXPECT_TRUE(StoreReader{where_}.labels().empty());
  write_as("engine", {});
  EXPECT_EQ(StoreReader{where_}.labels().size(), 1U) << "the next start records it again";
  EXPECT_EQ(StoreReader{where_}.catalog().blocks().size(), 3U);
}

TEST_F(LabelledStore, is_found_below_a_folder) {
  write_as("engine", without_tenant(1, 1));
  FileStoreConfig deeper = config_for(directory_.path() / "b", 8);
  deeper.name = "vllm-8192";
  { ThreadsHarness{deeper, calls_}.write(without_tenant(1, 1)); }
  fs::create_directory_symlink(where_, directory_.path() / "link");
  EXPECT_EQ(stores_below(directory_.path()), (std::vector<fs::path>{directory_.path() / "b" / "vllm-8192", where_}));
  EXPECT_EQ(stores_below(where_), std::vector{where_});
  EXPECT_TRUE(stores_below(directory_.path() / "nothing").empty());
}

}  // namespace
}  // namespace terrace::test
