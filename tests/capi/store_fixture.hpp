#pragma once

#include "terrace.h"
#include "tests/tools/temporary_directory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

/// A structure of the C interface with its size and no other field set.
template <class T>
T made() {
  T structure{};
  structure.struct_size = sizeof structure;
  return structure;
}

/// A store of the C interface in a directory of its own, with memory of 16 blocks of 4 KiB.
class StoreFixture : public testing::Test {
 protected:
  static constexpr std::uint32_t rows = 16;
  static constexpr std::size_t block_bytes = 4096;

  StoreFixture() : memory_(rows * block_bytes) {
    terrace_open_options options = made<terrace_open_options>();
    const std::string text = config();
    options.config = text.c_str();
    EXPECT_EQ(terrace_store_open(&options, &store_), TERRACE_OK) << terrace_last_error();
    EXPECT_EQ(terrace_store_register(store_, memory_.data(), rows, 0, &region_), TERRACE_OK) << terrace_last_error();
    std::vector<std::byte> names(rows * 4);
    for (std::uint32_t i = 0; i < rows; ++i) names[i * 4] = static_cast<std::byte>(i);
    const terrace_names each{names.data(), nullptr, 4, rows};
    keys_.resize(rows);
    EXPECT_EQ(terrace_keys_of_names("fixture", 7, &each, keys_.data()), TERRACE_OK);
  }
  ~StoreFixture() override { terrace_store_destroy(store_); }

  [[nodiscard]] std::string directory() const { return directory_.path().string(); }
  /// Ends in the table of the pool.
  [[nodiscard]] std::string config() const {
    return "[storage]\nwhere = \"file:" + directory() + "\"\ncapacity = \"1MiB\"\n[[pool]]\nblock-bytes = \"4KiB\"\n";
  }
  [[nodiscard]] terrace_store* store() { return store_; }

  /// A batch of the blocks with these numbers, in the rows with these numbers. Its arrays last until the next call.
  terrace_batch batch_of(std::initializer_list<std::uint32_t> numbers) {
    chosen_keys_.clear();
    chosen_rows_.assign(numbers);
    for (const std::uint32_t number : numbers) chosen_keys_.push_back(keys_[number]);
    terrace_batch batch = made<terrace_batch>();
    batch.id = ++last_id_;
    batch.keys = chosen_keys_.data();
    batch.rows = chosen_rows_.data();
    batch.count = chosen_keys_.size();
    batch.region = region_;
    return batch;
  }

  /// Waits for the result of a batch. Returns the status of each block.
  std::vector<terrace_status> finish(std::uint64_t id) {
    while (true) {
      const terrace_batch_result* results = nullptr;
      std::size_t count = 0;
      EXPECT_EQ(terrace_store_poll(store_, &results, &count), TERRACE_OK);
      for (std::size_t i = 0; i < count; ++i) {
        if (results[i].id == id) return {results[i].statuses, results[i].statuses + results[i].count};
      }
      EXPECT_EQ(terrace_store_wait(store_, TERRACE_NEVER), TERRACE_OK);
    }
  }

  /// Opens another store with this configuration, and closes it again.
  static terrace_status status_of_opening(const std::string& text) {
    terrace_open_options options = made<terrace_open_options>();
    options.config = text.c_str();
    terrace_store* other = nullptr;
    const terrace_status status = terrace_store_open(&options, &other);
    terrace_store_destroy(other);
    return status;
  }

 private:
  terrace::test::TemporaryDirectory directory_;
  std::vector<std::byte> memory_;
  terrace_store* store_ = nullptr;
  std::uint32_t region_ = 0;
  std::vector<terrace_key> keys_;
  std::vector<terrace_key> chosen_keys_;
  std::vector<std::uint32_t> chosen_rows_;
  std::uint64_t last_id_ = 0;
};
