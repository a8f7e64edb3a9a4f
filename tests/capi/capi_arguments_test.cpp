// Calls with arguments at random: wrong numbers of everything that is a number. Pointers point to what the calls say, because no
// call can see more than a null pointer. Whatever happens, the process lives, a block that is read has the bytes that were stored
// under its key, and a failure has a sentence.

#include "terrace.h"
#include "tests/capi/arguments.hpp"
#include "tests/capi/store_fixture.hpp"
#include "tests/seed.hpp"
#include "tests/tools/temporary_directory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace {

using terrace::test::Arguments;
using terrace::test::block_bytes;
using terrace::test::blocks;

/// The batch under way: key i is in row i, so that contents can be told.
struct Batch {
  std::uint64_t id = 0;
  std::vector<std::size_t> keys;
  bool is_get = false;
};

void store_calls(std::uint64_t seed, const std::string& directory) {
  Arguments any{seed};
  terrace_open_options options = made<terrace_open_options>();
  const std::string config =
      "[storage]\nwhere = \"file:" + directory + "\"\ncapacity = \"1MiB\"\n[[pool]]\nblock-bytes = \"4KiB\"\n";
  options.config = config.c_str();
  terrace_store* store = nullptr;
  ASSERT_EQ(terrace_store_open(&options, &store), TERRACE_OK) << terrace_last_error();
  std::uint32_t region = 0;
  ASSERT_EQ(terrace_store_register(store, any.memory(), blocks, 0, &region), TERRACE_OK);
  Batch batch;  // one at a time, so that its rows are known to be free
  for (int step = 0; step < 400; ++step) {
    switch (any.below(10)) {
      case 0:
      case 1:
      case 2: {
        if (!batch.keys.empty()) break;
        batch.is_get = any.one_in(2);
        std::vector<terrace_key> keys;
        std::vector<std::uint32_t> rows;
        const std::size_t count = any.below(5);
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t key = any.block();
          batch.keys.push_back(key);
          keys.push_back(any.keys()[key]);
          rows.push_back(any.one_in(20) ? any.number<std::uint32_t>(blocks * 2) : static_cast<std::uint32_t>(key));
          if (!batch.is_get) any.fill(key, key);
        }
        terrace_batch given = made<terrace_batch>();
        given.id = batch.id = any.number<std::uint64_t>(6);
        given.keys = keys.data();
        given.rows = rows.data();
        given.count = count;
        given.region = any.one_in(10) ? any.number<std::uint32_t>(4) : region;
        given.deadline = any.one_in(10) ? any.number<std::int64_t>(1000) : 0;
        if (any.one_in(6)) given.struct_size = any.number<std::size_t>(sizeof given);
        bool elsewhere = false;
        for (std::size_t i = 0; i < count; ++i) elsewhere = elsewhere || rows[i] != batch.keys[i];
        const terrace_status status = (batch.is_get ? terrace_store_get : terrace_store_put)(store, &given);
        Arguments::judge(status);
        if (status != TERRACE_OK) batch.keys.clear();
        if (status == TERRACE_OK && elsewhere) {  // a wrong row that exists: the bytes are not those of the key any more
          ASSERT_EQ(terrace_store_drain(store, TERRACE_NEVER), TERRACE_OK);
          Arguments::judge(terrace_store_clear(store));
          Arguments::judge(terrace_store_resume_shared(store, any.one_in(2) ? nullptr : "b"));
          batch.keys.clear();
        }
        break;
      }
      case 3:
      case 4: {
        const terrace_batch_result* results = nullptr;
        std::size_t count = 0;
        Arguments::judge(terrace_store_wait(store, 100'000));
        Arguments::judge(terrace_store_poll(store, &results, &count));
        for (std::size_t n = 0; n < count; ++n) {
          if (results[n].id != batch.id || batch.keys.size() != results[n].count) continue;
          for (std::size_t i = 0; batch.is_get && i < batch.keys.size(); ++i) {
            const bool right = results[n].statuses[i] != TERRACE_OK || any.has(batch.keys[i], batch.keys[i]);
            EXPECT_TRUE(right) << "seed " << seed;
          }
          if (results[n].memory_in_use == 0) batch.keys.clear();
        }
        break;
      }
      case 5: {
        std::array<std::uint64_t, 1> word{~std::uint64_t{0}};
        std::size_t leading = 0;
        const std::size_t count = any.below(blocks + 1);
        Arguments::judge(terrace_store_contains(store, any.keys(), count, word.data()));
        Arguments::judge(terrace_store_leading(store, any.keys(), count, &leading));
        EXPECT_LE(leading, count);
        break;
      }
      case 6: Arguments::judge(terrace_store_cancel(store, any.number<std::uint64_t>(6))); break;
      case 7: Arguments::judge(terrace_store_remove(store, any.keys() + any.block(), 1)); break;
      case 8: Arguments::judge(terrace_store_flush(store, 1000 + any.number<std::uint64_t>(4))); break;
      default: {
        std::uint32_t other = 0;
        Arguments::judge(terrace_store_register(store, any.one_in(2) ? nullptr : any.memory(), any.number<std::uint32_t>(4),
                                                any.number<std::uint64_t>(block_bytes * 2), &other));
        const std::uint32_t wrong = any.number<std::uint32_t>(100);
        if (wrong != region) Arguments::judge(terrace_store_unregister(store, wrong));
        const terrace_store_event* events = nullptr;
        std::size_t count = 0;
        Arguments::judge(terrace_store_events(store, &events, &count));
        break;
      }
    }
  }
  terrace_store_destroy(store);
}

TEST(CapiArguments, a_store_survives_any_numbers) {
  const std::uint64_t first = terrace::test::seed_from_env_or(1);
  for (std::uint64_t seed = first; seed < first + 10; ++seed) {
    const terrace::test::TemporaryDirectory directory;
    store_calls(seed, directory.path().string());
    if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "TERRACE_SEED=" << seed;
  }
}

void offload_calls(std::uint64_t seed) {
  Arguments any{seed};
  std::vector<std::byte> kv(blocks * block_bytes);
  const terrace_device_region region{0, 0, reinterpret_cast<std::uintptr_t>(kv.data()), block_bytes, block_bytes, 0, 0};
  terrace_open_options options = made<terrace_open_options>();
  options.config = "key-order = \"flat\"\n[storage]\nwhere = \"memory:\"\ncapacity = \"256KiB\"\n"
                   "[[pool]]\nblock-bytes = \"4KiB\"\ndevice-blocks = 16\nhost-blocks = 8\n";
  options.regions = &region;
  options.region_count = 1;
  terrace_offload* cache = nullptr;
  ASSERT_EQ(terrace_offload_open(&options, &cache), TERRACE_OK) << terrace_last_error();
  std::vector<std::size_t> loading;  // by index in the job, the key
  std::uint64_t loading_job = 0;
  for (int step = 0; step < 400; ++step) {
    switch (any.below(9)) {
      case 0:
      case 1:
      case 2: {
        if (!loading.empty()) break;
        const bool is_load = any.one_in(2);
        std::vector<terrace_key> keys;
        std::vector<std::uint32_t> slots;
        std::vector<void*> memory;
        const std::size_t count = any.below(5);
        for (std::size_t i = 0; i < count; ++i) {
          loading.push_back(any.block());
          keys.push_back(any.keys()[loading.back()]);
          slots.push_back(static_cast<std::uint32_t>(loading.back()));
          memory.push_back(any.row(loading.back()));
          if (!is_load) std::memset(kv.data() + loading.back() * block_bytes, static_cast<int>(loading.back() + 1), block_bytes);
          if (!is_load) any.fill(loading.back(), loading.back());
        }
        terrace_order order = made<terrace_order>();
        order.id = loading_job = any.number<std::uint64_t>(6);
        order.keys = keys.data();
        order.count = count;
        order.first = any.one_in(10) ? any.number<std::uint32_t>(6) : 0;
        const std::size_t begin = std::min<std::size_t>(order.first, count);
        if (any.one_in(3)) {
          order.memory = memory.data() + begin;
        } else {
          order.slots = slots.data() + begin;
        }
        order.pool = any.one_in(15) ? any.number<std::uint16_t>(3) : std::uint16_t{0};
        order.urgency = any.one_in(15) ? any.number<std::uint32_t>(5) : 0;
        order.after = any.one_in(15) ? any.number<std::uint64_t>(3) : 0;
        order.deadline = any.one_in(10) ? any.number<std::int64_t>(100'000) : 0;
        order.by_layer = any.number<std::uint32_t>(2);
        const terrace_status status = (is_load ? terrace_offload_load : terrace_offload_store)(cache, &order);
        Arguments::judge(status);
        if (status == TERRACE_OK && order.after > 0 && order.deadline == 0)
          Arguments::judge(terrace_offload_cancel(cache, order.id));
        if (status != TERRACE_OK || !is_load || order.slots == nullptr || order.first > 0) {
          if (status == TERRACE_OK) {
            const terrace_status drained = terrace_cache_drain(cache, 5'000'000'000);
            EXPECT_EQ(drained, TERRACE_OK) << "seed " << seed;
          }
          loading.clear();
        }
        break;
      }
      case 3:
      case 4: {
        const terrace_offload_event* events = nullptr;
        std::size_t count = 0;
        Arguments::judge(terrace_cache_wait(cache, 100'000));
        Arguments::judge(terrace_offload_poll(cache, &events, &count));
        for (std::size_t n = 0; n < count; ++n) {
          if (events[n].job != loading_job) continue;
          if (events[n].kind == TERRACE_OFFLOAD_ENDED) loading.clear();
          if (events[n].kind != TERRACE_OFFLOAD_BLOCK || events[n].status != TERRACE_OK || events[n].block >= loading.size())
            continue;
          const std::size_t key = loading[events[n].block];
          for (std::size_t i = 0; i < block_bytes; ++i)
            ASSERT_EQ(kv[key * block_bytes + i], static_cast<std::byte>(key + 1)) << seed;
        }
        break;
      }
      case 5: {
        std::array<std::uint8_t, blocks> states{};
        std::array<std::uint64_t, 1> word{};
        std::size_t leading = 0;
        const auto pool = any.number<std::uint16_t>(2);
        Arguments::judge(terrace_offload_look_up(cache, pool, any.keys(), blocks, states.data()));
        Arguments::judge(terrace_offload_leading(cache, pool, any.keys(), blocks, &leading));
        std::int32_t looking = 0;
        Arguments::judge(terrace_offload_find(cache, pool, any.keys(), blocks, &leading, &looking));
        Arguments::judge(terrace_cache_resume_shared(cache, any.one_in(2) ? nullptr : "b"));
        Arguments::judge(terrace_offload_contains(cache, pool, any.keys(), blocks, word.data()));
        break;
      }
      case 6: {
        std::uint32_t pinned = 0;
        const auto job = any.number<std::uint64_t>(6);
        std::array<std::uint32_t, blocks> host_slots{};
        Arguments::judge(terrace_offload_pin(cache, job, any.number<std::uint16_t>(2), any.keys(), blocks, &pinned));
        terrace_order order = made<terrace_order>();
        order.id = job;
        order.keys = any.keys();
        order.count = any.below(blocks);
        order.first = any.number<std::uint32_t>(2);
        order.pool = static_cast<std::uint16_t>(any.number<std::uint16_t>(2) | (any.one_in(2) ? TERRACE_ALONE : 0U));
        Arguments::judge(terrace_offload_new_use(cache, any.one_in(4) ? nullptr : &order.use));
        if (any.one_in(4)) order.use = any.number<std::uint64_t>(8);
        Arguments::judge(terrace_offload_pin_slots(cache, &order, any.one_in(4) ? nullptr : host_slots.data()));
        std::uint32_t reserved = 0;
        if (any.one_in(2)) {
          order.beside = any.one_in(8) ? nullptr : any.keys();
          order.beside_count = any.below(blocks + 1);
        }
        Arguments::judge(terrace_offload_reserve(cache, &order, host_slots.data(), &reserved));
        Arguments::judge(terrace_offload_publish(cache, job, 0));
        Arguments::judge(terrace_offload_touch(cache, any.number<std::uint16_t>(2), any.keys(), blocks));
        Arguments::judge(terrace_offload_end_request(cache, any.number<std::uint16_t>(2), any.keys(), blocks, 7));
        Arguments::judge(terrace_offload_expect_use(cache, any.number<std::uint16_t>(2), any.keys(), blocks,
                                                    any.one_in(4) ? TERRACE_NEVER : any.number<std::int64_t>(9) - 2));
        Arguments::judge(terrace_offload_unpin(cache, any.number<std::uint64_t>(6)));
        break;
      }
      case 7: {
        terrace_write_back order = made<terrace_write_back>();
        order.scope = any.number<std::uint32_t>(6);
        order.keys = any.keys();
        order.count = any.below(blocks);
        order.unused_for = any.number<std::int64_t>(1000);
        order.budget = any.number<std::uint64_t>(100'000);
        order.target = any.number<std::uint32_t>(3);
        std::uint64_t job = 0;
        Arguments::judge(terrace_write_back_start(cache, &order, &job));
        Arguments::judge(terrace_write_back_pause(cache, any.number<std::uint64_t>(4)));
        Arguments::judge(terrace_write_back_resume(cache, any.number<std::uint64_t>(4)));
        Arguments::judge(terrace_write_back_cancel(cache, any.number<std::uint64_t>(4)));
        terrace_write_back_progress progress = made<terrace_write_back_progress>();
        Arguments::judge(terrace_write_back_read(cache, job, &progress));
        const terrace_write_back_result* results = nullptr;
        std::size_t count = 0;
        Arguments::judge(terrace_write_back_results(cache, any.number<std::uint64_t>(4), &results, &count));
        break;
      }
      default: {
        terrace::test::read_calls(any, cache);
        std::uint64_t point = 0;
        Arguments::judge(terrace_cache_signal(cache, nullptr, any.number<std::uint32_t>(3), &point));
        Arguments::judge(terrace_offload_await(cache, any.number<std::uint64_t>(6), any.number<std::uint32_t>(3), nullptr,
                                               any.number<std::uint32_t>(3)));
        const std::uint32_t size = any.one_in(4) ? any.number<std::uint32_t>(10) : 8;
        if (size <= 1000)
          Arguments::judge(terrace_cache_resize(cache, any.number<std::uint32_t>(4), size, any.number<std::uint16_t>(2)));
        if (any.one_in(10) && loading.empty()) Arguments::judge(terrace_cache_clear(cache, any.number<std::uint32_t>(0x400)));
        break;
      }
    }
  }
  EXPECT_EQ(terrace_cache_drain(cache, 5'000'000'000), TERRACE_OK) << "seed " << seed;
  EXPECT_EQ(terrace_cache_destroy(cache, 5'000'000'000), 1) << "seed " << seed;
}

TEST(CapiArguments, a_cache_survives_any_numbers) {
  const std::uint64_t first = terrace::test::seed_from_env_or(1);
  for (std::uint64_t seed = first; seed < first + 10; ++seed) {
    offload_calls(seed);
    if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "TERRACE_SEED=" << seed;
  }
}

// ---- structures that begin with struct_size: which sizes are accepted, and that nothing beyond the structure is touched

class Structures : public StoreFixture {
 protected:
  Structures() {
    terrace_open_options options = made<terrace_open_options>();
    options.config = "write-policy = \"write-through\"\n[storage]\nwhere = \"memory:\"\ncapacity = \"64KiB\"\n"
                     "[[pool]]\nblock-bytes = \"4KiB\"\ndevice-blocks = 4\nhost-blocks = 4\n";
    EXPECT_EQ(terrace_offload_open(&options, &cache_), TERRACE_OK) << terrace_last_error();
    options.config = "[[pool]]\nblock-bytes = 4096\ndevice-blocks = 4\nhost-blocks = 4\n";
    EXPECT_EQ(terrace_cache_open(&options, &owner_), TERRACE_OK) << terrace_last_error();
  }
  ~Structures() override {
    terrace_cache_destroy(cache_, TERRACE_NEVER);
    terrace_cache_destroy(owner_, TERRACE_NEVER);
  }

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
  terrace_cache* owner_ = nullptr;
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
                          },
                          +[](const terrace_open_options* options) {
                            terrace_cache* opened = nullptr;
                            const terrace_status status = terrace_cache_open(options, &opened);
                            EXPECT_EQ(opened, nullptr);
                            return status;
                          }}) {
    check<terrace_open_options>("options", offsetof(terrace_open_options, host_rows), open);
  }
  check<terrace_batch>("batch", sizeof(terrace_batch), as(terrace_store_put, store()));
  check<terrace_batch>("batch", sizeof(terrace_batch), as(terrace_store_get, store()));
  check<terrace_probe>("probe", sizeof(terrace_probe), as(terrace_store_probe, store()));
  check<terrace_order>("order", offsetof(terrace_order, beside), as(terrace_offload_load, cache_));
  check<terrace_order>("order", offsetof(terrace_order, beside), as(terrace_offload_store, cache_));
  std::uint32_t slot = 0;
  std::uint32_t reserved = 0;
  check<terrace_order>("order", offsetof(terrace_order, beside),
                       [&](terrace_order* order) { return terrace_offload_pin_slots(cache_, order, &slot); });
  check<terrace_order>("order", offsetof(terrace_order, beside),
                       [&](terrace_order* order) { return terrace_offload_reserve(cache_, order, &slot, &reserved); });
  std::uint64_t job = 0;
  check<terrace_write_back>("order", offsetof(terrace_write_back, target),
                            [&](terrace_write_back* order) { return terrace_write_back_start(cache_, order, &job); });
  check<terrace_root>("root", sizeof(terrace_root), [](terrace_root* root) {
    terrace_chain* chain = nullptr;
    const terrace_status status = terrace_chain_make(root, 4, &chain);
    terrace_chain_destroy(chain);
    return status;
  });
  check<terrace_acquire>("request", sizeof(terrace_acquire), [&](terrace_acquire* request) {
    const terrace_status status = terrace_cache_acquire(owner_, request, nullptr);
    const std::uint64_t none = 0;
    if (status == TERRACE_OK) terrace_cache_release(owner_, &none, 1, nullptr);
    return status;
  });
  check<terrace_step>("step", sizeof(terrace_step), as(terrace_cache_step, owner_));
  std::array<terrace_planned_group, 2> groups{};
  std::array<terrace_planned_pool, 2> pools{};
  terrace_group_plan plan = made<terrace_group_plan>();
  check<terrace_plan_order>("order", sizeof(terrace_plan_order), [&](terrace_plan_order* order) {
    return terrace_plan_groups(order, groups.data(), pools.data(), &plan);
  });
  check<terrace_release>("how", sizeof(terrace_release),
                         [&](terrace_release* how) { return terrace_cache_release(owner_, nullptr, 0, how); });
}

TEST_F(Structures, that_are_written_have_a_size_that_this_library_knows) {
  check<terrace_store_statistics>("out", sizeof(terrace_store_statistics),
                                  [&](terrace_store_statistics* out) { return terrace_store_read_statistics(store(), out); });
  check<terrace_offload_statistics>(
      "out", offsetof(terrace_offload_statistics, loaded_shared),
      [&](terrace_offload_statistics* out) { return terrace_offload_read_statistics(cache_, out); });
  check<terrace_cache_statistics>("out", sizeof(terrace_cache_statistics),
                                  [&](terrace_cache_statistics* out) { return terrace_cache_read_statistics(owner_, out); });
  check<terrace_found>("out", sizeof(terrace_found),
                       [&](terrace_found* out) { return terrace_cache_match(owner_, nullptr, 0, 0, out); });
  check<terrace_usage>("out", sizeof(terrace_usage),
                       [&](terrace_usage* out) { return terrace_cache_read_usage(owner_, TERRACE_TIER_HOST, 0, out); });
  check<terrace_tree_counts>("out", sizeof(terrace_tree_counts),
                             [&](terrace_tree_counts* out) { return terrace_cache_read_tree(owner_, 0, out); });
  check<terrace_misses>("out", sizeof(terrace_misses),
                        [&](terrace_misses* out) { return terrace_cache_read_misses(owner_, out); });
  terrace_layer_shape layer{};
  layer.layers = layer.block_tokens = layer.kv_heads = layer.head_size = 1;
  terrace_plan_order order = made<terrace_plan_order>();
  order.layers = &layer;
  order.layer_count = 1;
  order.device_bytes = order.host_bytes = 4096;
  order.tokens = 1;
  std::array<terrace_planned_group, 2> groups{};
  std::array<terrace_planned_pool, 2> pools{};
  check<terrace_group_plan>("out", sizeof(terrace_group_plan), [&](terrace_group_plan* out) {
    return terrace_plan_groups(&order, groups.data(), pools.data(), out);
  });
  terrace_acquire one = made<terrace_acquire>();
  one.units = 1;
  ASSERT_EQ(terrace_cache_acquire(owner_, &one, nullptr), TERRACE_OK) << terrace_last_error();
  check<terrace_request>("out", sizeof(terrace_request),
                         [&](terrace_request* out) { return terrace_cache_read_request(owner_, 0, out); });
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
