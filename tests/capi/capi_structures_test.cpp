// Structures that begin with struct_size: which sizes are accepted, and that nothing beyond the structure is touched.

#include "terrace.h"
#include "tests/capi/store_fixture.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>

namespace {

class Structures : public StoreFixture {
 protected:
  Structures() {
    terrace_open_options options = made<terrace_open_options>();
    options.config = "write-policy = \"write-through\"\n[storage]\nwhere = \"memory:\"\ncapacity = \"64KiB\"\n"
                     "[[pool]]\nblock-bytes = \"4KiB\"\ndevice-blocks = 4\nhost-blocks = 4\n";
    EXPECT_EQ(terrace_offload_open(&options, &cache_), TERRACE_OK) << terrace_last_error();
  }
  ~Structures() override { terrace_offload_destroy(cache_, TERRACE_NEVER); }

  /// Gives `call` a structure in front of other memory, with sizes that it does not have, and with those that it may have.
  /// `first` is its size in version 0.1.
  template <class T>
  static void check(const char* name, std::size_t first, const std::function<terrace_status(T*)>& call) {
    SCOPED_TRACE(name);
    struct {
      T structure;
      std::array<std::byte, 4096> others;
    } memory{};
    constexpr std::size_t size = sizeof(T);
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
    for (const std::size_t wrong : {std::size_t{0}, std::size_t{7}, first - 1, size + 1, size + 8, size + 512, most / 2, most}) {
      std::memset(&memory, 0xA5, sizeof memory);
      memory.structure.struct_size = wrong;
      const auto before = memory;
      EXPECT_EQ(call(&memory.structure), TERRACE_INVALID_ARGUMENT) << wrong;
      const std::string sentence = terrace_last_error();
      EXPECT_NE(sentence.find("struct_size of " + std::string{name} + " is " + std::to_string(wrong)), std::string::npos)
          << sentence;
      EXPECT_NE(sentence.find(std::to_string(first) + " to " + std::to_string(size)), std::string::npos) << sentence;
      EXPECT_EQ(std::memcmp(&memory, &before, sizeof memory), 0) << wrong;
    }
    for (const std::size_t right : {first, size}) {
      memory = {};
      memory.others.fill(std::byte{0xA5});
      std::memset(reinterpret_cast<std::byte*>(&memory.structure) + right, 0xA5, size - right);
      memory.structure.struct_size = right;
      const auto before = memory;
      if (call(&memory.structure) != TERRACE_OK) {
        EXPECT_EQ(std::string{terrace_last_error()}.find("struct_size"), std::string::npos) << terrace_last_error();
      }
      EXPECT_EQ(memory.structure.struct_size, right);
      const auto* const bytes = reinterpret_cast<const std::byte*>(&memory);
      EXPECT_EQ(std::memcmp(bytes + right, reinterpret_cast<const std::byte*>(&before) + right, sizeof memory - right), 0)
          << right;
    }
  }

  terrace_offload* cache_ = nullptr;
};

TEST_F(Structures, that_are_read_have_a_size_that_this_library_knows) {
  const auto as = [](auto call, auto* handle) { return [=](auto* structure) { return call(handle, structure); }; };
  for (const auto open : {+[](const terrace_open_options* options) {
                            terrace_store* opened = nullptr;
                            const terrace_status status = terrace_store_open(options, &opened);
                            EXPECT_EQ(opened, nullptr);
                            return status;
                          },
                          +[](const terrace_open_options* options) {
                            terrace_offload* opened = nullptr;
                            const terrace_status status = terrace_offload_open(options, &opened);
                            EXPECT_EQ(opened, nullptr);
                            return status;
                          }}) {
    check<terrace_open_options>("options", offsetof(terrace_open_options, host_rows), open);
  }
  check<terrace_batch>("batch", sizeof(terrace_batch), as(terrace_store_put, store()));
  check<terrace_batch>("batch", sizeof(terrace_batch), as(terrace_store_get, store()));
  check<terrace_probe>("probe", sizeof(terrace_probe), as(terrace_store_probe, store()));
  check<terrace_order>("order", sizeof(terrace_order), as(terrace_offload_load, cache_));
  check<terrace_order>("order", sizeof(terrace_order), as(terrace_offload_store, cache_));
  std::uint32_t slot = 0;
  std::uint32_t reserved = 0;
  check<terrace_order>("order", sizeof(terrace_order),
                       [&](terrace_order* order) { return terrace_offload_pin_slots(cache_, order, &slot); });
  check<terrace_order>("order", sizeof(terrace_order),
                       [&](terrace_order* order) { return terrace_offload_reserve(cache_, order, &slot, &reserved); });
  std::uint64_t job = 0;
  check<terrace_write_back>("order", offsetof(terrace_write_back, target),
                            [&](terrace_write_back* order) { return terrace_write_back_start(cache_, order, &job); });
}

TEST_F(Structures, that_are_written_have_a_size_that_this_library_knows) {
  check<terrace_store_statistics>("out", sizeof(terrace_store_statistics),
                                  [&](terrace_store_statistics* out) { return terrace_store_read_statistics(store(), out); });
  check<terrace_offload_statistics>(
      "out", offsetof(terrace_offload_statistics, loaded_shared),
      [&](terrace_offload_statistics* out) { return terrace_offload_read_statistics(cache_, out); });
  terrace_write_back all = made<terrace_write_back>();
  all.scope = TERRACE_SCOPE_ALL;
  std::uint64_t job = 0;
  ASSERT_EQ(terrace_write_back_start(cache_, &all, &job), TERRACE_OK) << terrace_last_error();
  check<terrace_write_back_progress>("out", sizeof(terrace_write_back_progress),
                                     [&](terrace_write_back_progress* out) { return terrace_write_back_read(cache_, job, out); });
  check<terrace_close_report>("report", sizeof(terrace_close_report),
                              [&](terrace_close_report* report) { return terrace_store_close(store(), TERRACE_NEVER, report); });
}

}  // namespace
