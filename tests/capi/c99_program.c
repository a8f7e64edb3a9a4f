/* A program of C99 over the shared library: it stores blocks, finds them again after a restart, and serves an engine's slots from
   host memory and storage, and gives slots to the requests of an engine. It compares every byte. */
#define _POSIX_C_SOURCE 200809L

#include <terrace.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 4096
#define BLOCKS 16
#define SECOND INT64_C(1000000000)

static int failures = 0;

static void expect(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "FAILED: %s (last error: %s)\n", what, terrace_last_error());
  ++failures;
}

static void fill(unsigned char* block, unsigned seed) {
  size_t i;
  for (i = 0; i < BLOCK_BYTES; ++i) block[i] = (unsigned char)(seed * 31u + i * 7u);
}

static int is_filled(const unsigned char* block, unsigned seed) {
  unsigned char expected[BLOCK_BYTES];
  fill(expected, seed);
  return memcmp(block, expected, BLOCK_BYTES) == 0;
}

static void make_keys(terrace_key* keys) {
  char bytes[BLOCKS * 8];
  terrace_names names = {0};
  int i;
  for (i = 0; i < BLOCKS; ++i) snprintf(bytes + i * 8, 8, "name%03d", i);
  names.bytes = bytes;
  names.length = 8;
  names.count = BLOCKS;
  expect(terrace_keys_of_names("a model", 7, &names, keys) == TERRACE_OK, "names have keys");
}

/* Waits for the result of a batch. Returns the number of blocks that succeeded. */
static uint32_t finish(terrace_store* store, uint64_t id) {
  while (1) {
    const terrace_batch_result* results = NULL;
    size_t count = 0;
    size_t i;
    if (terrace_store_poll(store, &results, &count) != TERRACE_OK) return 0;
    for (i = 0; i < count; ++i) {
      if (results[i].id == id) return results[i].succeeded;
    }
    if (terrace_store_wait(store, SECOND) != TERRACE_OK) return 0;
  }
}

static void a_store_finds_blocks_after_a_restart(const char* directory) {
  static unsigned char memory[BLOCKS * BLOCK_BYTES];
  char config[512];
  terrace_key keys[BLOCKS];
  uint32_t rows[BLOCKS];
  uint32_t region = 0;
  uint64_t bitmap[1] = {~(uint64_t)0};
  size_t leading = 0;
  unsigned i;
  terrace_open_options options = TERRACE_INIT(terrace_open_options);
  terrace_batch batch = TERRACE_INIT(terrace_batch);
  terrace_close_report report = TERRACE_INIT(terrace_close_report);
  terrace_store_statistics statistics = TERRACE_INIT(terrace_store_statistics);
  terrace_store* store = NULL;
  const terrace_store_event* events = NULL;
  size_t count = 0;

  snprintf(config, sizeof config, "[storage]\nwhere = \"file:%s\"\ncapacity = \"8MiB\"\n[[pool]]\nblock-bytes = \"4KiB\"\n",
           directory);
  options.config = config;
  make_keys(keys);
  for (i = 0; i < BLOCKS; ++i) rows[i] = i;
  batch.id = 1;
  batch.keys = keys;
  batch.rows = rows;
  batch.count = BLOCKS;

  expect(terrace_store_open(&options, &store) == TERRACE_OK, "a store opens");
  if (store == NULL) return;
  expect(terrace_store_block_bytes(store) == BLOCK_BYTES, "it has the blocks of the configuration");
  expect(terrace_store_register(store, memory, BLOCKS, 0, &region) == TERRACE_OK, "memory is registered");
  batch.region = region;
  for (i = 0; i < BLOCKS; ++i) fill(memory + i * BLOCK_BYTES, i);
  expect(terrace_store_contains(store, keys, BLOCKS, bitmap) == TERRACE_OK && bitmap[0] == 0, "a new store is empty");
  expect(terrace_store_put(store, &batch) == TERRACE_OK && finish(store, 1) == BLOCKS, "all blocks are stored");
  expect(terrace_store_contains(store, keys, BLOCKS, bitmap) == TERRACE_OK && bitmap[0] == 0xFFFF, "and there");
  expect(terrace_store_events(store, &events, &count) == TERRACE_OK && count == BLOCKS, "there is an event for each");
  expect(count == 0 || events[0].kind == TERRACE_STORE_STORED, "that says so");
  expect(terrace_store_close(store, 10 * SECOND, &report) == TERRACE_OK && report.closed && report.error == TERRACE_OK,
         "the store closes in time");
  terrace_store_destroy(store);

  memset(memory, 0, sizeof memory);
  expect(terrace_store_open(&options, &store) == TERRACE_OK, "the store opens again");
  if (store == NULL) return;
  expect(terrace_store_register(store, memory, BLOCKS, 0, &region) == TERRACE_OK, "memory is registered again");
  batch.region = region;
  expect(terrace_store_leading(store, keys, BLOCKS, &leading) == TERRACE_OK && leading == BLOCKS, "it has the blocks");
  expect(terrace_store_get(store, &batch) == TERRACE_OK && finish(store, 1) == BLOCKS, "all blocks are read");
  for (i = 0; i < BLOCKS; ++i) expect(is_filled(memory + i * BLOCK_BYTES, i), "with their bytes");
  expect(terrace_store_read_statistics(store, &statistics) == TERRACE_OK && statistics.hits == BLOCKS &&
             statistics.read_bytes == BLOCKS * BLOCK_BYTES,
         "and they are counted");
  expect(terrace_store_remove(store, keys, 1) == TERRACE_OK, "a block is removed");
  expect(terrace_store_leading(store, keys, BLOCKS, &leading) == TERRACE_OK && leading == 0, "then it is not there");
  expect(terrace_store_unregister(store, region) == TERRACE_OK, "memory is unregistered");
  terrace_store_destroy(store);
}

/* Waits for the end of a job. Returns the number of blocks that were moved. */
static uint32_t end_of(terrace_offload* cache, uint64_t job) {
  while (1) {
    const terrace_offload_event* events = NULL;
    size_t count = 0;
    size_t i;
    if (terrace_offload_poll(cache, &events, &count) != TERRACE_OK) return 0;
    for (i = 0; i < count; ++i) {
      if (events[i].job == job && events[i].kind == TERRACE_OFFLOAD_ENDED) return events[i].moved;
    }
    if (terrace_cache_wait(cache, SECOND) != TERRACE_OK) return 0;
  }
}

static void a_cache_serves_slots_of_the_engine(const char* directory) {
  static unsigned char kv[BLOCKS * BLOCK_BYTES];
  char config[512];
  terrace_key keys[BLOCKS];
  uint32_t slots[4] = {0, 1, 2, 3};
  uint8_t states[4];
  unsigned i;
  uint64_t job = 0;
  size_t count = 0;
  terrace_device_region region = {0};
  terrace_open_options options = TERRACE_INIT(terrace_open_options);
  terrace_order order = TERRACE_INIT(terrace_order);
  terrace_write_back everything = TERRACE_INIT(terrace_write_back);
  terrace_write_back_progress progress = TERRACE_INIT(terrace_write_back_progress);
  terrace_offload_statistics statistics = TERRACE_INIT(terrace_offload_statistics);
  const terrace_write_back_result* results = NULL;
  const terrace_cache_event* changes = NULL;
  terrace_offload* cache = NULL;

  snprintf(config, sizeof config,
           "key-order = \"flat\"\nwrite-policy = \"none\"\n[storage]\nwhere = \"file:%s\"\nname = \"offload\"\n"
           "capacity = \"8MiB\"\n[[pool]]\nblock-bytes = \"4KiB\"\ndevice-blocks = 16\nhost-blocks = 32\n",
           directory);
  options.config = config;
  region.base = (uint64_t)(uintptr_t)kv;
  region.stride = BLOCK_BYTES;
  region.bytes = BLOCK_BYTES;
  options.regions = &region;
  options.region_count = 1;
  make_keys(keys);

  expect(terrace_offload_open(&options, &cache) == TERRACE_OK, "a cache opens");
  if (cache == NULL) return;
  expect(terrace_cache_record_events(cache) == TERRACE_OK, "events are recorded");
  for (i = 0; i < 4; ++i) fill(kv + i * BLOCK_BYTES, i);
  order.id = 1;
  order.keys = keys;
  order.count = 4;
  order.slots = slots;
  expect(terrace_offload_store(cache, &order) == TERRACE_OK && end_of(cache, 1) == 4, "slots are stored");
  expect(terrace_offload_look_up(cache, 0, keys, 4, states) == TERRACE_OK && states[3] == TERRACE_HOST, "in the host tier");
  expect(terrace_offload_end_request(cache, 0, keys, 4, 100) == TERRACE_OK, "the end of a request is told");
  expect(terrace_offload_expect_use(cache, 0, keys, 4, 5000000000) == TERRACE_OK, "the next use is told");
  expect(terrace_offload_expect_use(cache, 0, keys, 4, TERRACE_NEVER) == TERRACE_OK, "the end of a session is told");
  expect(terrace_cache_events(cache, &changes, &count) == TERRACE_OK && count == 4, "there is an event for each");

  everything.scope = TERRACE_SCOPE_ALL;
  expect(terrace_write_back_start(cache, &everything, &job) == TERRACE_OK, "a write-back job starts");
  do {
    expect(terrace_cache_wait(cache, SECOND / 10) == TERRACE_OK, "waiting works");
    {
      const terrace_offload_event* events = NULL;
      expect(terrace_offload_poll(cache, &events, &count) == TERRACE_OK, "polling works");
    }
    if (terrace_write_back_read(cache, job, &progress) != TERRACE_OK) break;
  } while (progress.state == TERRACE_JOB_RUNNING);
  expect(progress.state == TERRACE_JOB_DONE && progress.stored == 4 && progress.durable_bytes == 4 * BLOCK_BYTES,
         "the job has stored four blocks");
  expect(terrace_write_back_results(cache, job, &results, &count) == TERRACE_OK && count == 4 &&
             results[0].outcome == TERRACE_OUTCOME_STORED,
         "and says so for each");
  expect(terrace_cache_destroy(cache, 10 * SECOND) == 1, "the cache ends in time");

  memset(kv, 0, sizeof kv);
  for (i = 0; i < 4; ++i) slots[i] = 15 - i;
  expect(terrace_offload_open(&options, &cache) == TERRACE_OK, "the cache opens again");
  if (cache == NULL) return;
  expect(terrace_offload_look_up(cache, 0, keys, 4, states) == TERRACE_OK && states[0] == TERRACE_STORAGE, "it has the blocks");
  order.id = 2;
  expect(terrace_offload_load(cache, &order) == TERRACE_OK && end_of(cache, 2) == 4, "blocks are loaded into other slots");
  for (i = 0; i < 4; ++i) expect(is_filled(kv + (15 - i) * BLOCK_BYTES, i), "with their bytes");
  expect(terrace_offload_read_statistics(cache, &statistics) == TERRACE_OK && statistics.loaded_storage == 4, "and counted");
  expect(terrace_cache_clear(cache, 2) == TERRACE_INVALID_ARGUMENT, "an unknown flag of a clear is refused");
  expect(terrace_cache_clear(cache, TERRACE_CLEAR_KEEP_STORAGE) == TERRACE_OK, "a clear may keep what is stored");
  expect(terrace_offload_look_up(cache, 0, keys, 4, states) == TERRACE_OK && states[0] == TERRACE_STORAGE, "if it is told");
  for (i = 0; i < 2; ++i) {
    /* Earlier headers asked with 1 for what 0 does. */
    expect(terrace_cache_clear(cache, i) == TERRACE_OK, "a clear without flags");
    expect(terrace_offload_look_up(cache, 0, keys, 4, states) == TERRACE_OK && states[0] == TERRACE_MISS, "keeps nothing");
  }
  expect(terrace_cache_drain(cache, 10 * SECOND) == TERRACE_OK, "nothing is left");
  do {
    const terrace_offload_event* events = NULL;
    expect(terrace_cache_wait(cache, SECOND / 10) == TERRACE_OK && terrace_offload_poll(cache, &events, &count) == TERRACE_OK,
           "polling works");
    if (terrace_offload_read_statistics(cache, &statistics) != TERRACE_OK) break;
  } while (statistics.erasing != 0);
  expect(statistics.erasing == 0, "and nothing comes back");
  expect(terrace_cache_destroy(cache, 10 * SECOND) == 1, "the cache ends in time");
}

static void a_cache_gives_slots_to_requests(void) {
  static unsigned char kv[BLOCKS * BLOCK_BYTES];
  uint32_t tokens[10];
  int32_t row[8];
  uint32_t length = 0;
  const uint64_t id = 7;
  uint64_t computed = 10;
  const uint32_t one = 1;
  terrace_status status = TERRACE_INTERNAL;
  unsigned i;
  terrace_device_region region = {0};
  terrace_open_options options = TERRACE_INIT(terrace_open_options);
  terrace_root root = TERRACE_INIT(terrace_root);
  terrace_acquire request = TERRACE_INIT(terrace_acquire);
  terrace_request state = TERRACE_INIT(terrace_request);
  terrace_release done = TERRACE_INIT(terrace_release);
  terrace_step step = TERRACE_INIT(terrace_step);
  terrace_table table = {0};
  terrace_chain* chain = NULL;
  terrace_cache* cache = NULL;

  options.config = "[[pool]]\nblock-bytes = \"4KiB\"\ndevice-blocks = 16\nhost-blocks = 32\n";
  region.base = (uint64_t)(uintptr_t)kv;
  region.stride = BLOCK_BYTES;
  region.bytes = BLOCK_BYTES;
  options.regions = &region;
  options.region_count = 1;
  root.model_digest = "a model";
  root.model_digest_bytes = 7;
  for (i = 0; i < 10; ++i) tokens[i] = i;
  expect(terrace_cache_open(&options, &cache) == TERRACE_OK, "a cache with slots of its own opens");
  expect(terrace_chain_make(&root, 4, &chain) == TERRACE_OK && terrace_chain_append(chain, tokens, 10) == TERRACE_OK,
         "a prompt has a chain");
  if (cache == NULL || chain == NULL) return;
  request.request = id;
  request.chain = chain;
  expect(terrace_cache_acquire(cache, &request, &state) == TERRACE_OK && state.state == TERRACE_REQUEST_READY && state.miss == 2,
         "a request gets slots");
  table.rows = row;
  table.stride = 8;
  table.lengths = &length;
  table.row_count = 1;
  step.requests = &id;
  step.count = 1;
  step.tokens = tokens;
  step.token_capacity = 1;
  step.token_counts = &one;
  step.computed_tokens = &computed;
  step.tables = &table;
  step.table_count = 1;
  step.statuses = &status;
  expect(terrace_cache_step(cache, &step) == TERRACE_OK && status == TERRACE_OK && length == 3, "and its table");
  for (i = 0; i < 2; ++i) fill(kv + (size_t)row[i] * BLOCK_BYTES, i);
  done.flags = TERRACE_RELEASE_USED_UNTIL;
  expect(terrace_cache_release(cache, &id, 1, &done) == TERRACE_OK, "it ends");
  expect(terrace_cache_acquire(cache, &request, &state) == TERRACE_OK && state.device == 2, "the next turn finds its blocks");
  length = 0;
  step.tokens = NULL;
  expect(terrace_cache_step(cache, &step) == TERRACE_OK && length == 3, "in a table");
  for (i = 0; i < 2; ++i) expect(is_filled(kv + (size_t)row[i] * BLOCK_BYTES, i), "with their bytes");
  terrace_chain_destroy(chain);
  expect(terrace_cache_destroy(cache, 10 * SECOND) == 1, "the cache ends, and the request with it");
}

static void errors_have_a_sentence(void) {
  terrace_open_options options = TERRACE_INIT(terrace_open_options);
  terrace_store* store = NULL;
  options.config = "hostblocks = 3\n";
  options.config_name = "engine.toml";
  expect(terrace_store_open(&options, &store) == TERRACE_INVALID_ARGUMENT && store == NULL, "a wrong name is refused");
  expect(strstr(terrace_last_error(), "engine.toml:1") != NULL, "the sentence says where it is");
  expect(terrace_store_open(NULL, &store) == TERRACE_INVALID_ARGUMENT, "no options are refused");
  expect(terrace_c_version() >> 16 == TERRACE_C_VERSION_MAJOR, "the library has the version of the header");
}

int main(void) {
  char directory[] = "/tmp/terrace-c99-XXXXXX";
  char command[64];
  if (mkdtemp(directory) == NULL) return 2;
  errors_have_a_sentence();
  a_store_finds_blocks_after_a_restart(directory);
  a_cache_serves_slots_of_the_engine(directory);
  a_cache_gives_slots_to_requests();
  snprintf(command, sizeof command, "rm -r %s", directory);
  if (system(command) != 0) ++failures;
  if (failures == 0) puts("the program of C works");
  return failures == 0 ? 0 : 1;
}
