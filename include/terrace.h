/// \file
/// The C interface of Terrace: a store of blocks on disk (terrace_store), a cache in host memory and on disk for an engine that
/// owns the blocks of its devices (terrace_offload), and a publisher of what is cached (terrace_event_publisher). It is C99, and
/// other languages can bind to it. It wraps the C++ interface in <terrace/...>, whose headers describe each call in full.
///
/// *Errors.* A call that can fail returns a terrace_status. 0 is success; a positive number is one of the codes below; a negative
/// number is an errno of the system with its sign changed, as in -ENOSPC. After a failure, terrace_last_error() returns a
/// sentence that says what was wrong, where, and what would be right; the call has changed nothing then. No call throws, and no
/// argument stops the process, provided that pointers point to what the call requires, and handles are alive.
///
/// *Structures.* The caller sets the member `struct_size` of a structure to the sizeof of the structure, also if the call fills
/// it. TERRACE_INIT does that and sets all other members to 0, which is their default. A later library accepts the smaller
/// structures of an earlier header: members that these lack have their default, or are not filled. Any other size is refused,
/// also the larger size of a later header. The library never accesses memory beyond a structure. Arrays that the library returns
/// never change their layout. docs/versioning.md says what else versions promise.
///
/// *Ownership.* A handle belongs to the caller, until it is given to its destroy function. Pointers to arrays that a call returns
/// stay valid until the next call with the same handle and the same function. Texts and arrays that the caller passes must stay
/// valid only during the call, except memory of blocks, which belongs to its job until the job's result has come.
///
/// *Threads.* For each handle, one thread at a time; different calls may come from different threads. Functions without a handle:
/// any thread. terrace_last_error() is per thread. In a child process made by fork(), every call with a handle of the parent
/// fails with TERRACE_STOPPED, the destroy functions do nothing, and the files and the socket of the parent are closed.
///
/// *Units.* Durations are in nanoseconds, sizes in bytes. A time-out or deadline is relative to the time of the call;
/// TERRACE_NEVER means that there is none.

#ifndef TERRACE_H
#define TERRACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TERRACE_C_API __attribute__((visibility("default")))
#else
#define TERRACE_C_API
#endif

/// `terrace_batch batch = TERRACE_INIT(terrace_batch);` (C)
#define TERRACE_INIT(type) \
  { .struct_size = sizeof(type) }

#define TERRACE_NEVER INT64_MAX

// ---- versions and errors

/// The version of this header. The library has the same or a later one with the same major number.
#define TERRACE_C_VERSION_MAJOR 0
#define TERRACE_C_VERSION_MINOR 1
/// The version of the C interface that the library has: major * 65536 + minor.
TERRACE_C_API uint32_t terrace_c_version(void);
/// The version of the library: "0.1.0".
TERRACE_C_API const char* terrace_version(void);

typedef int32_t terrace_status;
enum {
  TERRACE_OK = 0,
  TERRACE_INVALID_ARGUMENT = 1,
  TERRACE_NO_ROOM = 2,
  TERRACE_NEVER_FITS = 3,
  TERRACE_UNKNOWN_REQUEST = 4,
  TERRACE_DUPLICATE_REQUEST = 5,
  TERRACE_NOT_READY = 6,
  TERRACE_NOT_FOUND = 7,
  TERRACE_CORRUPT = 8,
  TERRACE_PARENT_MISSING = 9,
  TERRACE_FULL = 10,
  TERRACE_IO_FAILED = 11,
  TERRACE_LOAD_FAILED = 12,
  TERRACE_REFUSED = 13,
  TERRACE_CANCELLED = 14,
  TERRACE_DEADLINE_EXCEEDED = 15,
  TERRACE_INCOMPATIBLE = 16,
  TERRACE_IN_USE = 17,
  TERRACE_PAUSED = 18,
  TERRACE_CLEARED = 19,
  TERRACE_STOPPED = 20,
  TERRACE_UNAVAILABLE = 1000,  ///< the machine lacks something that was requested, for example a GPU
  TERRACE_NO_MEMORY = 1001,
  TERRACE_INTERNAL = 1002  ///< a fault of the library; please report it with terrace_last_error()
};
/// Returns the meaning of a status in a few words, for any number. The text is static, or valid until the next call of this
/// function on the same thread.
TERRACE_C_API const char* terrace_status_text(terrace_status status);
/// Returns the sentence about the last call on this thread that failed; "" if none failed. Valid until the next failure on this
/// thread.
TERRACE_C_API const char* terrace_last_error(void);

// ---- keys

/// The name of a block. Compare keys, and do not interpret them.
typedef struct terrace_key {
  uint8_t bytes[32];
} terrace_key;

/// Names of blocks, of any bytes. They are stored one after another in `bytes`: name i has lengths[i] bytes, or each has `length`
/// bytes if `lengths` is null.
typedef struct terrace_names {
  const void* bytes;
  const uint32_t* lengths;
  uint32_t length;
  uint32_t count;
} terrace_names;

/// Makes the key of each name in the namespace. The namespace identifies the model, weights, layout and rank. Names in two
/// namespaces, or two names in one namespace, never have the same key. `out` has room for names->count keys.
TERRACE_C_API terrace_status terrace_keys_of_names(const void* key_namespace, size_t namespace_bytes, const terrace_names* names,
                                                   terrace_key* out);
/// Makes the keys of a prefix: each key also identifies all names before it. `parent` is the key of the block before the first
/// name; null: there is none. Use it with a terrace_offload in key-order prefix.
TERRACE_C_API terrace_status terrace_keys_of_prefix(const void* key_namespace, size_t namespace_bytes, const terrace_key* parent,
                                                    const terrace_names* names, terrace_key* out);

/// Makes the keys of the full blocks of a prompt, of `block_tokens` tokens each: count / block_tokens keys. Otherwise the same as
/// terrace_keys_of_prefix().
TERRACE_C_API terrace_status terrace_keys_of_tokens(const void* key_namespace, size_t namespace_bytes, const terrace_key* parent,
                                                    const uint32_t* tokens, size_t count, uint32_t block_tokens,
                                                    terrace_key* out);

/// The fields that all keys of a namespace share: terrace::RootFields. If any field differs, all keys differ. Bytes that are null
/// are absent, which differs from empty.
typedef struct terrace_root {
  size_t struct_size;
  const void* model_digest;
  size_t model_digest_bytes;
  const void* fingerprint;
  size_t fingerprint_bytes;
  const char* adapter;      ///< of LoRA; null: none
  const char* tenant_salt;  ///< null: none
  uint64_t weight_epoch;
} terrace_root;

/// The tokens of one sequence, and the keys of its full blocks. A terrace::KeyChain (<terrace/keys.hpp>). Hashing costs a
/// fraction of a microsecond for each block, so keep the chain of a conversation, and append the tokens of its next turn.
typedef struct terrace_chain terrace_chain;
/// `block_tokens` is the number of tokens of a block; with several groups, of a hash unit.
TERRACE_C_API terrace_status terrace_chain_make(const terrace_root* root, uint32_t block_tokens, terrace_chain** out);
/// Null is ignored. The chain of a live request (terrace_acquire::chain) stays until the request is released.
TERRACE_C_API void terrace_chain_destroy(terrace_chain* chain);
enum { TERRACE_ITEM_MEDIA = 0, TERRACE_ITEM_PROMPT_EMBEDDING = 1 };
/// A run of tokens that stands for other input, such as the placeholders of an image: terrace::PromptItem.
typedef struct terrace_item {
  uint64_t offset;  ///< of its first token, from the first token of the chain
  uint64_t length;  ///< in tokens
  const void* digest;
  size_t digest_bytes;
  uint32_t kind;  ///< TERRACE_ITEM_...
  uint32_t reserved;
} terrace_item;
/// Adds items, before the first block that they overlap is complete.
TERRACE_C_API terrace_status terrace_chain_add_items(terrace_chain* chain, const terrace_item* items, size_t count);
/// Appends tokens. Those of an incomplete last block wait for more.
TERRACE_C_API terrace_status terrace_chain_append(terrace_chain* chain, const uint32_t* tokens, size_t count);
/// Returns the keys of all full blocks, valid until the next append.
TERRACE_C_API terrace_status terrace_chain_keys(const terrace_chain* chain, const terrace_key** keys, size_t* count);
/// Returns the number of tokens in the chain, those of the incomplete block included; 0 for null.
TERRACE_C_API uint64_t terrace_chain_tokens(const terrace_chain* chain);
/// Returns the number of the chain's tenant, for quotas and statistics: all chains with an equal root have the same.
TERRACE_C_API uint64_t terrace_chain_tenant(const terrace_chain* chain);
/// Sets `shorter` to the largest number of blocks, at most `blocks`, that does not end inside a media item. An engine whose
/// encoder computes an item as a whole limits the hits of a request to it (TERRACE_ACQUIRE_HITS_MAX).
TERRACE_C_API terrace_status terrace_chain_before_media(const terrace_chain* chain, uint32_t blocks, uint32_t* shorter);

/// Sets `item` to the media item inside which a match of so many blocks ends, or its `length` to 0 if there is none. Of several
/// items, it is the one that begins first. Its digest is valid until items are added.
TERRACE_C_API terrace_status terrace_chain_media_across(const terrace_chain* chain, uint32_t blocks, terrace_item* item);

// ---- opening

enum { TERRACE_LOG_INFO = 0, TERRACE_LOG_WARNING = 1, TERRACE_LOG_ERROR = 2 };
/// Receives a message of the log: a sentence without a line end. The library calls it on its own thread, never on two threads at
/// once. It may block, and must not call the library.
typedef void (*terrace_log_function)(void* context, int32_t level, const char* sentence, size_t bytes);

/// One part of every block of a pool in the engine's memory: the part of block b begins at base + b * stride.
typedef struct terrace_device_region {
  uint32_t rank;
  uint32_t group;  ///< number of the group; number of the pool if the configuration has no groups
  uint64_t base;   ///< an address of the device; for emulated devices, of this process
  uint64_t stride;
  uint64_t bytes;
  uint32_t layer;
  uint32_t reserved;
} terrace_device_region;

/// Host memory of the caller for the host tier of a pool, in rows of one block each. Rows begin `stride` bytes after each other
/// (0: rows are adjacent). Host slot n is row n. The memory must stay valid until the cache is destroyed.
typedef struct terrace_host_rows {
  void* address;
  uint64_t stride;
  uint32_t rows;  ///< at least as many as the pool's host blocks and staging blocks together
  uint32_t pool;
} terrace_host_rows;

typedef struct terrace_open_options {
  size_t struct_size;
  /// The configuration: TOML, as docs/configuration.md describes it.
  const char* config;
  /// Stands for `config` in error sentences. Null: "configuration".
  const char* config_name;
  /// Null: nothing is logged. The option log.level selects the messages.
  terrace_log_function log;
  void* log_context;
  /// For caches only: the engine's memory. None: the device allocates the blocks.
  const terrace_device_region* regions;
  size_t region_count;
  /// For caches only: host memory of the caller, at most one entry for each pool.
  const terrace_host_rows* host_rows;
  size_t host_rows_count;
} terrace_open_options;

// ---- a store of blocks on disk

/// A flat, persistent store of blocks on disk, for an engine that names the blocks and manages device and host memory itself. It
/// finds its blocks again after a restart, and verifies each block that it reads. It is a terrace::TierStore
/// (<terrace/tier_store.hpp>).
typedef struct terrace_store terrace_store;

/// Opens or makes a store. Blocks until its index is in memory. The configuration has the table [storage] with where = "file:DIR"
/// and capacity, and [[pool]] with block-bytes. It may have other options of [storage], [log] and [admin], and `fingerprint`; any
/// other option is refused.
TERRACE_C_API terrace_status terrace_store_open(const terrace_open_options* options, terrace_store** out);
/// Waits until no work is under way, makes everything durable, and frees the store. Does not wait after terrace_store_close().
/// Null is ignored.
TERRACE_C_API void terrace_store_destroy(terrace_store* store);

typedef struct terrace_close_report {
  size_t struct_size;
  int32_t closed;         ///< 1: all memory is free, and all stored blocks are durable unless `error` is set
  uint32_t batches_left;  ///< batches that had not ended when the time was over
  terrace_status error;   ///< error of the last flush
  uint32_t reserved;
} terrace_close_report;
/// Ends all work, and makes everything durable, within the time. If a disk does not respond by then, a new thread continues the
/// work, and memory of registered regions must stay valid for the rest of the process. `report` may be null. A second call
/// reports the same as the first.
TERRACE_C_API terrace_status terrace_store_close(terrace_store* store, int64_t timeout, terrace_close_report* report);

TERRACE_C_API uint64_t terrace_store_block_bytes(const terrace_store* store);

/// Registers memory in rows of one block each. Rows begin `stride` bytes after each other (0: rows are adjacent). Rows whose
/// address and stride are multiples of 4096 are read and written directly; other rows are copied once more.
TERRACE_C_API terrace_status terrace_store_register(terrace_store* store, void* address, uint32_t rows, uint64_t stride,
                                                    uint32_t* region);
/// Fails with TERRACE_IN_USE while a batch uses the region.
TERRACE_C_API terrace_status terrace_store_unregister(terrace_store* store, uint32_t region);

/// Sets bit i % 64 of word i / 64 if a get would find keys[i], and clears all other bits of the (count + 63) / 64 words. Answers
/// from memory.
TERRACE_C_API terrace_status terrace_store_contains(const terrace_store* store, const terrace_key* keys, size_t count,
                                                    uint64_t* bitmap);
/// Sets `leading` to the number of leading keys that are there without a gap.
TERRACE_C_API terrace_status terrace_store_leading(const terrace_store* store, const terrace_key* keys, size_t count,
                                                   size_t* leading);
/// Tells the store that the blocks were used elsewhere. Keys that are not there are ignored.
TERRACE_C_API terrace_status terrace_store_touch(terrace_store* store, const terrace_key* keys, size_t count);

typedef struct terrace_batch {
  size_t struct_size;
  uint64_t id;  ///< chosen by the caller; must differ from the ids of all batches that have not ended
  const terrace_key* keys;
  const uint32_t* rows;  ///< by key: the row of the region
  size_t count;
  /// Only for a put: null, or by key the key of the block before it; all zero: none. A block is evicted before its parent.
  const terrace_key* parents;
  uint32_t region;
  uint32_t reserved;
  int64_t deadline;  ///< 0 or TERRACE_NEVER: none
} terrace_batch;
/// Stores blocks, or reads them into rows. Does not wait; terrace_store_poll() returns the result. Fails with
/// TERRACE_REFUSED if too much is under way; try again when batches have ended.
TERRACE_C_API terrace_status terrace_store_put(terrace_store* store, const terrace_batch* batch);
TERRACE_C_API terrace_status terrace_store_get(terrace_store* store, const terrace_batch* batch);
typedef struct terrace_probe {
  size_t struct_size;
  uint64_t id;  ///< as for a batch
  const terrace_key* keys;
  size_t count;
  int64_t deadline;  ///< 0 or TERRACE_NEVER: none. Keys for which the shared store has not answered by then count as not there.
} terrace_probe;
/// Asks how many leading keys a get would find without a gap, in the store and in the shared store behind it ([shared] of the
/// configuration). Does not wait. It ends in one result; its `succeeded` is that number. Fails with TERRACE_INVALID_ARGUMENT if
/// there is no shared store: terrace_store_leading() answers at once then.
TERRACE_C_API terrace_status terrace_store_probe(terrace_store* store, const terrace_probe* probe);
/// Makes all batches durable whose results have been polled. It ends in one result.
TERRACE_C_API terrace_status terrace_store_flush(terrace_store* store, uint64_t id);
/// Ends all blocks of the batch that the disk has not begun, with TERRACE_CANCELLED.
TERRACE_C_API terrace_status terrace_store_cancel(terrace_store* store, uint64_t id);

enum { TERRACE_BATCH_PUT = 0, TERRACE_BATCH_GET = 1, TERRACE_BATCH_FLUSH = 2, TERRACE_BATCH_PROBE = 3 };
typedef struct terrace_batch_result {
  uint64_t id;
  uint64_t bytes;     ///< of the blocks that succeeded
  uint64_t duration;  ///< since the batch was submitted
  /// By key; one entry for a flush or a probe. TERRACE_OK: the block is stored and readable, or its row has its bytes. After an
  /// error of a get, the content of its row is undefined.
  const terrace_status* statuses;
  uint32_t count;          ///< number of entries in `statuses`
  uint32_t succeeded;      ///< blocks; for a probe, leading keys that are there
  uint32_t kind;           ///< TERRACE_BATCH_...
  uint32_t memory_in_use;  ///< 1: the disk still uses rows after the deadline; do not use them until the event
                           ///< TERRACE_STORE_MEMORY_FREE
} terrace_batch_result;
/// Returns the results of batches that have ended.
TERRACE_C_API terrace_status terrace_store_poll(terrace_store* store, const terrace_batch_result** results, size_t* count);

enum { TERRACE_STORE_STORED = 0, TERRACE_STORE_EVICTED = 1, TERRACE_STORE_REMOVED = 2, TERRACE_STORE_MEMORY_FREE = 3 };
typedef struct terrace_store_event {
  terrace_key key;
  uint64_t batch;  ///< only of TERRACE_STORE_MEMORY_FREE
  uint32_t kind;   ///< TERRACE_STORE_...
  uint32_t reserved;
} terrace_store_event;
/// Returns events of blocks that have become readable or were dropped since the last call. Events are created in
/// terrace_store_poll().
TERRACE_C_API terrace_status terrace_store_events(terrace_store* store, const terrace_store_event** events, size_t* count);
/// Returns a descriptor that is readable when terrace_store_poll() has something. It belongs to the store.
TERRACE_C_API int terrace_store_fd(const terrace_store* store);
/// Returns the time after which terrace_store_poll() must be called even if the descriptor is not readable.
TERRACE_C_API int64_t terrace_store_next_poll(const terrace_store* store);
/// Waits until the descriptor is readable, or terrace_store_next_poll() or the time-out has come.
TERRACE_C_API terrace_status terrace_store_wait(const terrace_store* store, int64_t timeout);

/// Removes the blocks and all blocks below them, and waits until the removal is durable: after TERRACE_OK the blocks do not come
/// back after a kill or a power failure. Puts of these keys that have not ended end with TERRACE_CANCELLED and store nothing;
/// gets end with TERRACE_NOT_FOUND. Waits for the disk for 30 seconds at most. TERRACE_NO_ROOM, TERRACE_STOPPED: nothing has
/// changed. After any other failure, including TERRACE_DEADLINE_EXCEEDED, the blocks are removed and not served any more, but
/// they may come back after a crash; a second call tries again. A shared store is asked to remove the named blocks, too.
TERRACE_C_API terrace_status terrace_store_remove(terrace_store* store, const terrace_key* keys, size_t count);
/// Does the same for all blocks. A shared store is not used after that, until terrace_store_resume_shared(), because it is
/// unknown for which weights its blocks are.
TERRACE_C_API terrace_status terrace_store_clear(terrace_store* store);
/// Uses the shared store again, for weights of this revision from now on. Null: names that blocks had before the clear still mean
/// the same.
TERRACE_C_API terrace_status terrace_store_resume_shared(terrace_store* store, const char* weights_revision);
/// Refuses all later batches.
TERRACE_C_API void terrace_store_stop(terrace_store* store);
/// Waits until no batch is under way. Fails with TERRACE_DEADLINE_EXCEEDED.
TERRACE_C_API terrace_status terrace_store_drain(terrace_store* store, int64_t timeout);

/// Counts since the store was opened, and the work under way now.
typedef struct terrace_store_statistics {
  size_t struct_size;
  uint64_t gets;  ///< blocks; when no work is under way, the sum of the next six counts
  uint64_t hits;
  uint64_t misses;
  uint64_t corrupt;
  uint64_t get_failures;
  uint64_t gets_cancelled;
  uint64_t gets_late;
  uint64_t puts;  ///< blocks; when no work is under way, the sum of the next four counts
  uint64_t stored;
  uint64_t put_failures;
  uint64_t puts_cancelled;
  uint64_t puts_late;
  uint64_t read_bytes;
  uint64_t written_bytes;
  uint64_t unaligned_blocks;  ///< copied once more
  uint64_t refused;           ///< batches
  uint64_t without_parent;    ///< puts
  uint64_t flushes;
  uint64_t flush_failures;
  uint64_t not_flushed;  ///< stored blocks that a power failure may lose
  uint64_t events_dropped;
  uint64_t batches;  ///< batches that have not ended
  uint64_t waiting;  ///< blocks that the disk has not begun
  uint64_t under_way;
  uint64_t capacity_blocks;
  uint64_t blocks;  ///< blocks that are readable
  uint64_t evicted;
  uint64_t shared_hits;        ///< the part of `hits` that came from the shared store
  uint64_t shared_misses;      ///< blocks that were requested there and did not come
  uint64_t shared_stored;      ///< blocks that were written there
  uint64_t shared_present;     ///< blocks that were not written, because they were there already
  uint64_t shared_not_stored;  ///< blocks that it did not store; this does not make a put fail
  // When no work is under way, shared_gets = shared_hits + shared_misses + shared_gets_declined, and shared_puts = shared_stored
  // + shared_present + shared_not_stored + shared_puts_cancelled + shared_puts_declined.
  uint64_t shared_gets;            ///< blocks that the local store did not bring
  uint64_t shared_gets_declined;   ///< not requested there: the shared store could not be used, or is off since a clear
  uint64_t shared_puts;            ///< blocks
  uint64_t shared_puts_cancelled;  ///< removed or cleared before they were written
  uint64_t shared_puts_declined;   ///< not written: the shared store could not be used, or is off since a clear
  uint64_t asked;                  ///< keys in queries: terrace_store_contains, terrace_store_leading, and probes that have ended
  uint64_t found;                  ///< of those, keys that are there
} terrace_store_statistics;
TERRACE_C_API terrace_status terrace_store_read_statistics(const terrace_store* store, terrace_store_statistics* out);

enum { TERRACE_HEALTH_WELL = 0, TERRACE_HEALTH_DEGRADED = 1, TERRACE_HEALTH_DOWN = 2 };
/// Returns the health of the disk. `reason` is a sentence, or "" while the disk works; it stays valid until the next call.
TERRACE_C_API terrace_status terrace_store_health(terrace_store* store, int32_t* health, const char** reason);
/// Returns a text for people that describes how I/O is done. Valid as long as the store.
TERRACE_C_API const char* terrace_store_io(terrace_store* store);

// ---- a cache below an engine that owns the blocks of its devices

/// A cache, of which there are two kinds. Calls whose names begin with terrace_cache_ are for both, unless their comment says
/// otherwise. One that terrace_cache_open() has made also owns the blocks of the devices: see "a cache that owns the blocks of
/// its devices". It is a terrace::CacheSystem with its terrace::Cache (<terrace/cache.hpp>).
typedef struct terrace_cache terrace_cache;
/// One that terrace_offload_open() has made keeps blocks in host memory and in storage, for an engine that allocates the blocks
/// of its devices itself. The engine queries the cache, and orders jobs. It is a terrace::CacheSystem with a
/// terrace::OffloadCache (<terrace/offload_cache.hpp>). With any other, calls whose names begin with terrace_offload_ fail with
/// TERRACE_INVALID_ARGUMENT.
typedef terrace_cache terrace_offload;

/// Makes the devices, host memory, storage and the cache that the configuration describes. engine-owns-slots is always on.
TERRACE_C_API terrace_status terrace_offload_open(const terrace_open_options* options, terrace_offload** out);
enum { TERRACE_MISS = 0, TERRACE_PENDING = 1, TERRACE_HOST = 2, TERRACE_STORAGE = 3 };
enum { TERRACE_SHARED = 4 };  ///< only as the source of a loaded block: the shared store
/// A flag to add to the number of the pool in calls with keys, and in terrace_order::pool: each key names an unchained block.
/// Without it, the keys form a prefix if the configuration has key-order prefix. All calls for a block must use the same way; a
/// block that is stored in both ways counts as two blocks.
#define TERRACE_ALONE 0x8000U
/// Sets states[i] to the place of keys[i]: TERRACE_MISS, TERRACE_PENDING and so on. This call and the next two have no side
/// effects.
TERRACE_C_API terrace_status terrace_offload_look_up(const terrace_offload* cache, uint16_t pool, const terrace_key* keys,
                                                     size_t count, uint8_t* states);
TERRACE_C_API terrace_status terrace_offload_leading(const terrace_offload* cache, uint16_t pool, const terrace_key* keys,
                                                     size_t count, size_t* leading);
TERRACE_C_API terrace_status terrace_offload_contains(const terrace_offload* cache, uint16_t pool, const terrace_key* keys,
                                                      size_t count, uint64_t* bitmap);
/// Sets `leading` to the number of leading keys that have a copy, here or in the shared store. Does not wait for the shared
/// store: while `looking` is set to 1, poll and call it again with the same keys. This ends after the time of option
/// probe-deadline at the latest. Set terrace_order::shared in loads of keys that it has counted.
TERRACE_C_API terrace_status terrace_offload_find(terrace_offload* cache, uint16_t pool, const terrace_key* keys, size_t count,
                                                  size_t* leading, int32_t* looking);

enum { TERRACE_URGENCY_REQUEST = 0, TERRACE_URGENCY_MAKE_ROOM = 1, TERRACE_URGENCY_STORE = 2 };
typedef struct terrace_order {
  size_t struct_size;
  uint64_t id;  ///< chosen by the caller; must differ from the ids of all jobs that have not ended
  const terrace_key* keys;
  size_t count;           ///< of keys
  const uint32_t* slots;  ///< device slots, one for each moved block; or null
  void* const* memory;    ///< host memory of one block for each moved block; or null. Give either slots or memory. A load with
                          ///< neither copies the blocks only to the host tier, and a reservation has neither
  uint32_t first;         ///< with key-order prefix, index of the first block to move; 0 for unchained blocks
  uint16_t pool;
  uint16_t shared;  ///< 1: a load reads blocks that no tier has from the shared store
  uint64_t tenant;
  uint64_t after;     ///< the job starts after the device has reached this point of terrace_cache_signal(); 0: none
  int64_t deadline;   ///< 0 or TERRACE_NEVER: none
  uint32_t urgency;   ///< TERRACE_URGENCY_...
  uint32_t by_layer;  ///< 1: report leading layers of a load
  /// For a store or reservation with TERRACE_ALONE, in a cache with key-order prefix: the keys of a prefix, or null. The moved
  /// blocks are of use only together with its last `count` blocks: each stays in the host tier as long as that block, and its own
  /// uses do not count. For example the chunks of a sliding window, with those of full attention at the same place.
  const terrace_key* beside;
  size_t beside_count;
  /// With key-order prefix: a number of terrace_offload_new_use(). All orders with the same number are one use of their blocks,
  /// so give it to all orders of one request of the engine. 0: the order is a use of its own. Then a request that stores its
  /// prefix in pieces seems to use it again and again, and the eviction policy learns that it comes back.
  uint64_t use;
} terrace_order;
TERRACE_C_API terrace_status terrace_offload_new_use(terrace_offload* cache, uint64_t* use);
TERRACE_C_API terrace_status terrace_offload_load(terrace_offload* cache, const terrace_order* order);
TERRACE_C_API terrace_status terrace_offload_store(terrace_offload* cache, const terrace_order* order);
TERRACE_C_API terrace_status terrace_offload_cancel(terrace_offload* cache, uint64_t job);
/// Pins the host copies of the keys until terrace_offload_unpin(), or until the job with this id has ended. `pinned` may be null.
TERRACE_C_API terrace_status terrace_offload_pin(terrace_offload* cache, uint64_t job, uint16_t pool, const terrace_key* keys,
                                                 size_t count, uint32_t* pinned);
/// Does the same for the keys of an order that names neither slots nor memory, and counts as a use of the blocks. For the keys
/// from `first` on, sets host_slots[i] to the slot of the host tier that holds the block, or to TERRACE_NO_SLOT. The caller may
/// read these slots until it unpins them.
TERRACE_C_API terrace_status terrace_offload_pin_slots(terrace_offload* cache, const terrace_order* order, uint32_t* host_slots);
TERRACE_C_API terrace_status terrace_offload_unpin(terrace_offload* cache, uint64_t job);
/// Tells the cache that the blocks were used elsewhere. They are then evicted later, the first of the keys last. Keys that are
/// not cached are ignored.
TERRACE_C_API terrace_status terrace_offload_touch(terrace_offload* cache, uint16_t pool, const terrace_key* keys, size_t count);
/// Tells the cache that the engine's last request that used this prefix has ended, after it wrote so many tokens. The default
/// eviction policy learns from it which requests are continued. Optional. Keys that are not cached are ignored.
TERRACE_C_API terrace_status terrace_offload_end_request(terrace_offload* cache, uint16_t pool, const terrace_key* keys,
                                                         size_t count, uint64_t output_tokens);
/// Tells after how many nanoseconds the prefix is expected to be used next; TERRACE_NEVER: its session has ended. It counts for
/// the blocks that belong to this prefix alone, until they are used again. The default eviction policy evicts them accordingly.
/// Optional. Keys that are not cached are ignored.
TERRACE_C_API terrace_status terrace_offload_expect_use(terrace_offload* cache, uint16_t pool, const terrace_key* keys,
                                                        size_t count, int64_t in);
/// Takes host slots, which the caller fills itself. For the moved blocks of the order, sets host_slots[i] to a slot, or to
/// TERRACE_NO_SLOT (the block is cached already, is being copied to the host tier, or gets no slot), and `reserved` to the number
/// of slots. If that is 0, there is nothing to publish.
TERRACE_C_API terrace_status terrace_offload_reserve(terrace_offload* cache, const terrace_order* order, uint32_t* host_slots,
                                                     uint32_t* reserved);
/// Ends the reservation of this id. `filled` is 1 if the slots contain their blocks; 0: the slots become free.
TERRACE_C_API terrace_status terrace_offload_publish(terrace_offload* cache, uint64_t job, int32_t filled);

enum { TERRACE_OFFLOAD_BLOCK = 0, TERRACE_OFFLOAD_LAYERS = 1, TERRACE_OFFLOAD_ENDED = 2 };
typedef struct terrace_offload_event {
  uint64_t job;
  uint32_t kind;          ///< TERRACE_OFFLOAD_...
  uint32_t block;         ///< for a block: index of its key
  terrace_status status;  ///< error of the block; at the end: the first error
  uint32_t source;        ///< of a loaded block: TERRACE_HOST, TERRACE_STORAGE or TERRACE_SHARED; a later library may have more
  uint32_t layers;        ///< leading layers that have arrived
  uint32_t moved;         ///< at the end: blocks without an error
  uint32_t failed;        ///< at the end: blocks with an error
  uint32_t reserved;
} terrace_offload_event;
/// Collects ended work, starts new work, and returns the events since the last call.
TERRACE_C_API terrace_status terrace_offload_poll(terrace_offload* cache, const terrace_offload_event** events, size_t* count);
/// Rejects all later orders.
TERRACE_C_API void terrace_offload_stop(terrace_offload* cache);
/// Makes the stream wait, on the device, until the leading layers of the job's blocks have been copied (UINT32_MAX: whole
/// blocks).
TERRACE_C_API terrace_status terrace_offload_await(terrace_offload* cache, uint64_t job, uint32_t layers, void* stream,
                                                   uint32_t rank);

typedef struct terrace_offload_statistics {
  size_t struct_size;
  uint64_t jobs;
  uint64_t refused;
  uint64_t loaded_host;  ///< number of blocks, as are the following counts
  uint64_t loaded_storage;
  uint64_t load_misses;
  uint64_t load_failures;
  uint64_t stored;
  uint64_t already_there;
  uint64_t store_full;
  uint64_t store_failures;
  uint64_t joined;
  uint64_t late;
  uint64_t unconfirmed;
  uint64_t blocks_in_flight;
  uint64_t host_blocks;   ///< slots of the first pool's host tier
  uint64_t host_free;     ///< the part of `host_blocks` without a block
  uint64_t evicted_host;  ///< copies dropped, in all pools, as in the next count
  uint64_t dropped_lost;  ///< dropped copies whose block no other tier had
  uint64_t swapped_out_bytes;
  uint64_t swapped_in_bytes;
  uint64_t storage_read_bytes;
  uint64_t storage_written_bytes;
  uint64_t durable_blocks;  ///< blocks that would survive a power failure now
  uint64_t loaded_shared;   ///< blocks
  uint64_t shared_asked;    ///< blocks for which the shared store was asked
  uint64_t shared_there;    ///< the part of `shared_asked` that was there
  uint64_t shared_written;  ///< blocks
  uint64_t shared_present;  ///< blocks that were not written, because they were there already
  /// 1: blocks that terrace_cache_clear() has removed from storage may come back after a kill; 0: they cannot
  uint64_t erasing;
  uint64_t shared_off;  ///< 1: since a clear, the shared store is not used
  uint64_t loads;       ///< blocks ordered; once all jobs have ended, the sum of loaded_*, load_misses and load_failures
  uint64_t stores;      ///< blocks ordered; likewise the sum of stored, already_there, store_full and store_failures
  /// Keys in queries. For an engine that moves blocks itself (terrace_offload_reserve()), which may ask again and again: blocks
  /// that it has pinned or reserved.
  uint64_t asked;
  uint64_t found;      ///< the part of `asked` that were hits
  uint64_t link_down;  ///< 1: copies between device and host fail, so none are started
  uint64_t cleared;    ///< as in terrace_cache_statistics
  /// Transfers, reads and writes that have started and have not ended.
  uint64_t transfers_in_flight;
  uint64_t transfers_paused;  ///< 1: none starts, until somebody resumes them
} terrace_offload_statistics;
TERRACE_C_API terrace_status terrace_offload_read_statistics(const terrace_offload* cache, terrace_offload_statistics* out);

// ---- a cache that owns the blocks of its devices

/// Makes the devices, host memory, storage and the cache that the configuration describes. Blocks of a request are counted in
/// hash units, from the start of the sequence: with one group and without hash-unit, these are its blocks.
TERRACE_C_API terrace_status terrace_cache_open(const terrace_open_options* options, terrace_cache** out);

enum { TERRACE_DEVICE = 1 };  ///< a source, besides TERRACE_HOST, TERRACE_STORAGE and TERRACE_SHARED
/// Blocks of a prefix, by the source in which they were found.
typedef struct terrace_found {
  size_t struct_size;
  uint32_t device;
  uint32_t host;
  uint32_t storage;
  uint32_t shared;
} terrace_found;
/// Finds the longest cached prefix whose blocks are in the source `farthest` or a nearer one (0: any). Changes nothing, and does
/// not ask the shared store.
TERRACE_C_API terrace_status terrace_cache_match(const terrace_cache* cache, const terrace_key* keys, size_t count,
                                                 uint32_t farthest, terrace_found* out);

#define TERRACE_NO_SLOT UINT32_MAX
/// The copies of a block.
typedef struct terrace_place {
  uint32_t device;  ///< its slot, or TERRACE_NO_SLOT
  uint32_t host;    ///< its slot, or TERRACE_NO_SLOT
  uint8_t storage;  ///< 1: storage has it
  uint8_t in_use;   ///< 1: a request, a pin or a transfer holds it
  uint16_t reserved;
} terrace_place;
/// Tells where the blocks of a prefix are in a group: an entry for each block that the keys fill. Holds nothing, so the slots are
/// true until the next call only. The array is valid until then, too.
TERRACE_C_API terrace_status terrace_cache_find_blocks(terrace_cache* cache, const terrace_key* keys, size_t count,
                                                       uint16_t group, const terrace_place** places, size_t* place_count);
/// Tells where one block is, by its key alone. It visits the whole tree: terrace_cache_find_blocks() finds blocks by their
/// prefix.
TERRACE_C_API terrace_status terrace_cache_find_block(const terrace_cache* cache, const terrace_key* key, uint16_t group,
                                                      terrace_place* place);
/// Sets `blocks` to the number of blocks of a group for so many tokens, of which the last block may be partly filled; for cross
/// attention, tokens of the encoder. Without groups in the configuration, give hash units in place of tokens. Compare it with
/// terrace_cache_read_usage().
TERRACE_C_API terrace_status terrace_cache_blocks_for(const terrace_cache* cache, uint64_t tokens, uint16_t group,
                                                      uint64_t* blocks);

enum {
  TERRACE_ACQUIRE_HITS_MAX = 1,       ///< hit_units_max counts
  TERRACE_ACQUIRE_NEW_UNITS_MAX = 2,  ///< new_units_max counts
  TERRACE_ACQUIRE_DROP_LAST_HIT = 4,  ///< uses one cached block less than was found
  TERRACE_ACQUIRE_PREEMPTED = 8,      ///< the request was preempted before, and is acquired again
  TERRACE_ACQUIRE_BY_LAYER = 16       ///< events report leading layers that have arrived
};
/// The needs of a request: terrace::AcquireRequest (<terrace/request.hpp>).
typedef struct terrace_acquire {
  size_t struct_size;
  uint64_t request;  ///< its id, chosen by the caller; must differ from the ids of all live requests
  /// The prompt. terrace_cache_step() appends to it, until the request is released; no other live request may have it. At least
  /// the last token is not taken from the cache, because the engine needs its result. Null: `keys` are the keys of the full
  /// blocks, and the caller commits by terrace_cache_commit().
  terrace_chain* chain;
  const terrace_key* keys;
  size_t count;
  uint32_t units;  ///< all blocks that the request needs now, lookahead included; 0: those of the chain or of the keys
  uint32_t hit_units_max;
  uint32_t new_units_max;   ///< blocks to allocate now in addition to cached ones: the first chunk of a prompt
  uint32_t external_units;  ///< blocks after the cached ones that are filled from elsewhere
  uint32_t encoder_tokens;
  uint32_t farthest;  ///< source; 0: any
  uint32_t flags;     ///< TERRACE_ACQUIRE_...
  /// Device slots of each pool that must be left, free or evictable, when the request has its own; otherwise TERRACE_NO_ROOM.
  uint32_t room_left;
  uint64_t tenant;   ///< with a chain, 0 stands for the tenant of the chain
  int64_t deadline;  ///< of all waits; 0 or TERRACE_NEVER: none
} terrace_acquire;
enum { TERRACE_REQUEST_WAITING = 1, TERRACE_REQUEST_FAILED = 2, TERRACE_REQUEST_READY = 3 };
/// A live request: its state, and where its blocks with keys were found. units = device + host + storage + shared + external +
/// miss.
typedef struct terrace_request {
  size_t struct_size;
  uint32_t state;  ///< TERRACE_REQUEST_...
  uint32_t units;
  uint32_t device;
  uint32_t host;
  uint32_t storage;
  uint32_t shared;
  uint32_t external;
  uint32_t miss;             ///< to be computed
  uint32_t joined;           ///< of those found: blocks that another request was loading
  uint32_t committed_units;  ///< leading blocks that are shared with other requests; 0 before the request is ready
  int64_t waited;            ///< nanoseconds until the request was ready, or so far
  // Of `waited`, in nanoseconds, the waits that have ended. Loads from several sources run at the same time.
  int64_t waited_looking;  ///< for the answer of the shared store, or for a prefetch
  int64_t waited_room;     ///< for slots
  int64_t waited_host;     ///< from then on, until the last block from this source was on the device; as are the next two
  int64_t waited_storage;
  int64_t waited_shared;
} terrace_request;
/// Gives the request everything that it needs, or fails with TERRACE_NO_ROOM, TERRACE_NEVER_FITS, TERRACE_DUPLICATE_REQUEST or
/// TERRACE_PAUSED. The request is ready, or waits until an event of terrace_cache_poll() reports it. `out` may be null.
TERRACE_C_API terrace_status terrace_cache_acquire(terrace_cache* cache, const terrace_acquire* request, terrace_request* out);
TERRACE_C_API terrace_status terrace_cache_read_request(const terrace_cache* cache, uint64_t request, terrace_request* out);
/// Adds blocks at the end of the request's block tables, or fails with TERRACE_NO_ROOM and adds none.
TERRACE_C_API terrace_status terrace_cache_extend(terrace_cache* cache, uint64_t request, uint32_t units);
/// A block whose content was cached already. The request keeps its own slot.
typedef struct terrace_duplicate {
  uint32_t group;
  uint32_t block;  ///< index in the block table
  uint32_t own;    ///< slots
  uint32_t shared;
} terrace_duplicate;
/// Shares the request's first `count` blocks, which must hold the data of their keys when the device reaches `written`
/// (terrace_cache_signal(); 0: they do now). `duplicates` and `duplicate_count` may be null.
TERRACE_C_API terrace_status terrace_cache_commit(terrace_cache* cache, uint64_t request, const terrace_key* keys, size_t count,
                                                  uint64_t written, const terrace_duplicate** duplicates,
                                                  size_t* duplicate_count);
/// The first `tokens` tokens are computed: the request drops the blocks to which no later token attends. Work up to `last_use`
/// may still read them. Call it after a commit, and before an extend.
TERRACE_C_API terrace_status terrace_cache_advance(terrace_cache* cache, uint64_t request, uint64_t tokens, uint64_t last_use);
enum {
  TERRACE_RELEASE_USED_UNTIL = 1,  ///< last_use counts
  TERRACE_RELEASE_OUTPUT_TOKENS = 2,
  TERRACE_RELEASE_NEXT_USE = 4
};
/// How requests end: terrace::Lease (<terrace/request.hpp>).
typedef struct terrace_release {
  size_t struct_size;
  /// Work up to this point may still touch the blocks; 0: no work does. Without TERRACE_RELEASE_USED_UNTIL, the slots are not
  /// used until the devices have finished all work that they were given: this is safe, and slower.
  uint64_t last_use;
  uint64_t output_tokens;  ///< that the request has written
  int64_t next_use;        ///< nanoseconds; TERRACE_NEVER: its session has ended (terrace_cache_expect_use)
  uint32_t flags;          ///< TERRACE_RELEASE_...
  uint32_t reserved;
} terrace_release;
/// Ends requests, in any state. `how` is for all of them; null: nothing is told. Fails with TERRACE_UNKNOWN_REQUEST if one of
/// them is not alive; the others have ended then.
TERRACE_C_API terrace_status terrace_cache_release(terrace_cache* cache, const uint64_t* requests, size_t count,
                                                   const terrace_release* how);
/// The devices have finished all work that they were given: ends the waits of slots whose release has named no last use.
TERRACE_C_API terrace_status terrace_cache_compute_is_idle(terrace_cache* cache);

/// Returns the block table of a request in a group: one slot for each block. Valid until the next call with this request.
TERRACE_C_API terrace_status terrace_cache_block_table(const terrace_cache* cache, uint64_t request, uint16_t group,
                                                       const uint32_t** slots, size_t* count);
/// Returns the source of each hit of a request, from the first block on.
TERRACE_C_API terrace_status terrace_cache_hit_sources(terrace_cache* cache, uint64_t request, const uint8_t** sources,
                                                       size_t* count);
enum { TERRACE_GROUP_UNKNOWN = 0, TERRACE_GROUP_SERVES = 1, TERRACE_GROUP_DOES_NOT_SERVE = 2 };
/// Sets `state` to whether the group can serve the hits of the request. Only optional groups may be unable to.
TERRACE_C_API terrace_status terrace_cache_group_state(const terrace_cache* cache, uint64_t request, uint16_t group,
                                                       uint32_t* state);
/// Sets `blocks` to the number of leading blocks of the group that all ready requests share, for cascade attention.
TERRACE_C_API terrace_status terrace_cache_common_prefix(const terrace_cache* cache, uint16_t group, uint32_t* blocks);

/// The block tables of one group in the caller's memory, one row for each request.
typedef struct terrace_table {
  int32_t* rows;
  size_t stride;      ///< entries from one row to the next, and the most that a row may have
  uint32_t* lengths;  ///< by row: entries that it has. The call appends the others, and sets the new length.
  uint32_t group;
  uint32_t row_count;
} terrace_table;
/// What all running requests need before a step is launched. They have been acquired with a chain, and are ready.
typedef struct terrace_step {
  size_t struct_size;
  const uint64_t* requests;
  size_t count;
  /// By request: the number of tokens that the sequence has got since the last call, and these tokens, of all requests one after
  /// another. The call appends them to the chains. `tokens` may be null: none.
  const uint32_t* token_counts;
  const uint32_t* tokens;
  /// By request: leading tokens of the sequence whose KV is computed when the devices reach `written`. The call shares the blocks
  /// that they fill.
  const uint64_t* computed_tokens;
  /// By request: tokens for which the step needs slots, lookahead included; null: as many as the sequence has.
  const uint64_t* needed_tokens;
  uint64_t written;      ///< a point of terrace_cache_signal(); 0: it has been reached
  const uint32_t* rows;  ///< by request: its row in the tables; null: i
  const terrace_table* tables;
  size_t table_count;
  /// By request: TERRACE_OK, TERRACE_NO_ROOM (its tokens are appended and its blocks shared, but it has no slots for more:
  /// preempt a request, and call again for it without tokens), TERRACE_NEVER_FITS (likewise), TERRACE_UNKNOWN_REQUEST,
  /// TERRACE_NOT_READY, TERRACE_INVALID_ARGUMENT; with these three, nothing of the request has changed. A request that is named
  /// twice is served twice, one after the other. After TERRACE_NO_MEMORY, release the request.
  terrace_status* statuses;
  uint32_t advance;         ///< 1: blocks to which no later token attends are dropped (terrace_cache_advance)
  uint32_t token_capacity;  ///< entries of `tokens`: the most that all token_counts together may be
  /// By row of the tables: the request that has the entries there, in a form of the library; zeros at first. A request whose row
  /// has another one's entries is refused (TERRACE_INVALID_ARGUMENT) until the lengths of the row are 0. May be null: no check.
  uint64_t* row_owners;
} terrace_step;
/// Appends, commits, advances and extends for each request, and writes the new entries of its block tables. Returns the first
/// error in `statuses`; the other requests are served.
TERRACE_C_API terrace_status terrace_cache_step(terrace_cache* cache, const terrace_step* step);

typedef struct terrace_request_event {
  uint64_t request;
  terrace_status status;  ///< of the end of a wait: TERRACE_OK: ready; otherwise the request has failed, and must be released
  uint32_t layers;        ///< not 0: the wait continues, and so many leading layers have arrived
} terrace_request_event;
/// Collects ended work, starts new work, and returns the events since the last call.
TERRACE_C_API terrace_status terrace_cache_poll(terrace_cache* cache, const terrace_request_event** events, size_t* count);
/// Starts the copies that the calls of this step have requested. Call it before the step is launched.
TERRACE_C_API terrace_status terrace_cache_end_step(terrace_cache* cache);
/// Makes the stream wait, on the device, until the leading layers of all hits of the request have arrived (UINT32_MAX: whole
/// blocks). Fails with TERRACE_NOT_READY while some copies are not on the device yet.
TERRACE_C_API terrace_status terrace_cache_await(terrace_cache* cache, uint64_t request, uint32_t layers, void* stream,
                                                 uint32_t rank);

/// Copies blocks of a future request from storage and the shared store (`farthest`; 0: any) to host memory, until the deadline.
/// `tenant` is stored with blocks of the shared store. Fails with TERRACE_REFUSED if too many prefetches run.
TERRACE_C_API terrace_status terrace_cache_prefetch(terrace_cache* cache, const terrace_key* keys, size_t count,
                                                    uint32_t farthest, uint64_t tenant, int64_t deadline, uint64_t* prefetch);
TERRACE_C_API terrace_status terrace_cache_cancel_prefetch(terrace_cache* cache, uint64_t prefetch);
/// Sets `running` to 1 while the prefetch brings blocks or waits for an answer, and to 0 after that.
TERRACE_C_API terrace_status terrace_cache_prefetching(const terrace_cache* cache, uint64_t prefetch, int32_t* running);

/// Drops the device and host copies of the prefix from its end, up to the first block that is held. `freed` (may be null) is the
/// number of device blocks. Fails with TERRACE_NOT_FOUND, TERRACE_IN_USE (the last block is held).
TERRACE_C_API terrace_status terrace_cache_drop(terrace_cache* cache, const terrace_key* keys, size_t count, uint32_t* freed);
/// Evicts the blocks in these device slots, and all that follow them, from every tier: their bytes have turned out to be wrong.
/// `evicted` (may be null) is the number of blocks. `in_use` are the named slots whose blocks are held, and stay.
TERRACE_C_API terrace_status terrace_cache_evict(terrace_cache* cache, const uint32_t* slots, size_t count, uint16_t pool,
                                                 uint32_t* evicted, const uint32_t** in_use, size_t* in_use_count);
/// The engine has put its memory elsewhere: terrace::CacheSystem::relocate. Ranks without a region stay.
TERRACE_C_API terrace_status terrace_cache_relocate(terrace_cache* cache, const terrace_device_region* regions, size_t count);

// ---- both kinds of caches

/// Ends all requests and all work within the time, as CacheSystem::close, and frees the cache. Returns 1 if all work has ended.
/// Returns 0 if a new thread continues the work; then memory that jobs name and the engine's regions must stay valid for the rest
/// of the process. Null is ignored.
TERRACE_C_API int32_t terrace_cache_destroy(terrace_cache* cache, int64_t timeout);

/// Returns the size of a block of the pool; 0 if there is no such pool.
TERRACE_C_API uint64_t terrace_cache_block_bytes(const terrace_cache* cache, uint16_t pool);

/// Returns a descriptor that is readable when a poll has something. It belongs to the cache.
TERRACE_C_API int terrace_cache_fd(const terrace_cache* cache);
/// Returns the time after which a poll is due even if the descriptor is not readable.
TERRACE_C_API int64_t terrace_cache_next_poll(const terrace_cache* cache);
/// Waits until the descriptor is readable, or terrace_cache_next_poll() or the time-out has come.
TERRACE_C_API terrace_status terrace_cache_wait(const terrace_cache* cache, int64_t timeout);
/// Pauses the idle service for `longest` nanoseconds, or until a call with 0. The idle service (idle-service in the
/// configuration) is a thread of the library that continues the work and runs commands of operators when no call was made for 100
/// ms. The call is for an engine that relies on the results of an earlier call: during the pause, the cache changes only by calls
/// of the engine.
TERRACE_C_API terrace_status terrace_cache_pause_idle_service(terrace_cache* cache, int64_t longest);
/// Polls until no work is under way. It does not wait for requests. Fails with TERRACE_DEADLINE_EXCEEDED. The events come with
/// the next poll.
TERRACE_C_API terrace_status terrace_cache_drain(terrace_cache* cache, int64_t timeout);

/// Marks all work that is on the stream (a cudaStream_t) now, for calls that take a point of the device. With several ranks, mark
/// a stream of each rank; the point is the same on all. For devices in ordinary memory, null stands for the calling thread, whose
/// earlier work is done at the time of the call.
TERRACE_C_API terrace_status terrace_cache_signal(terrace_cache* cache, void* stream, uint32_t rank, uint64_t* point);

/// Flags of terrace_cache_clear(). With 0, no block from before the clear is ever a hit again, which is required after a change
/// of the weights. Use a flag to keep blocks only if their keys still identify their content. (1 has no effect: in earlier
/// headers it requested what 0 does now.)
enum {
  TERRACE_CLEAR_KEEP_STORAGE = 0x100,  ///< stored blocks stay, and can be hits
  TERRACE_CLEAR_KEEP_SHARED = 0x200,   ///< the shared store stays in use, without terrace_cache_resume_shared()
  TERRACE_CLEAR_WAIT = 0x400,          ///< nothing is served until cleared blocks are gone, and terrace_cache_resume()
  TERRACE_CLEAR_IDLE_ONLY = 0x800,     ///< fails with TERRACE_IN_USE, and clears nothing, if a request is alive
  /// As TERRACE_CLEAR_WAIT; when the clear is complete, host memory goes back to the system until terrace_cache_resume().
  TERRACE_CLEAR_RELEASE_HOST = 0x1000
};
/// Drops everything that is cached, removes everything from storage, and stops using the shared store until
/// terrace_cache_resume_shared(). It does not wait for the disk: while terrace_cache_statistics::erasing is 1, removed blocks
/// may come back after a kill. Live requests keep their slots; requests that wait fail with TERRACE_CLEARED. Fails with
/// TERRACE_INVALID_ARGUMENT (an unknown flag), and then clears nothing.
TERRACE_C_API terrace_status terrace_cache_clear(terrace_cache* cache, uint32_t flags);
/// Returns to service after a clear with TERRACE_CLEAR_WAIT. Fails with TERRACE_PAUSED while cleared blocks are on device or
/// host.
TERRACE_C_API terrace_status terrace_cache_resume(terrace_cache* cache);
/// Uses the shared store again, for weights of this revision from now on. Null: names that blocks had before the clear still mean
/// the same.
TERRACE_C_API terrace_status terrace_cache_resume_shared(terrace_cache* cache, const char* weights_revision);
/// No copy, read or write starts between the two calls.
TERRACE_C_API terrace_status terrace_cache_pause_transfers(terrace_cache* cache);
TERRACE_C_API terrace_status terrace_cache_resume_transfers(terrace_cache* cache);
/// Changes an option that can change while a cache serves, as `terrace set` does: name and value as in a configuration, such as
/// "policy" and "lru".
TERRACE_C_API terrace_status terrace_cache_set(terrace_cache* cache, const char* option, const char* value);
enum { TERRACE_TIER_DEVICE = 0, TERRACE_TIER_HOST = 1, TERRACE_TIER_STORAGE = 2 };
/// Evicts blocks that nobody holds until so many slots of the tier are free, or nothing more can be evicted. Does not wait. A
/// request needs no such call.
TERRACE_C_API terrace_status terrace_cache_make_room(terrace_cache* cache, uint32_t tier, uint32_t blocks, uint16_t pool);
/// Makes a tier of a pool larger or smaller while it serves. Does not wait. Only the host tier and storage of an offload cache.
/// Fails with TERRACE_NO_ROOM (more blocks are used, or the machine has no memory for them), TERRACE_NEVER_FITS.
TERRACE_C_API terrace_status terrace_cache_resize(terrace_cache* cache, uint32_t tier, uint32_t blocks, uint16_t pool);

/// Counts since the cache was opened, and its state now. Blocks are those of all pools. `asked`, `found_...` and `missed` are
/// tokens in full blocks if the configuration has groups; otherwise they are blocks, because the tokens of a block are not known.
typedef struct terrace_cache_statistics {
  size_t struct_size;
  uint64_t requests;  ///< that became ready, without preempted ones that came back; as are the next six
  uint64_t asked;
  uint64_t found_device;
  uint64_t found_host;
  uint64_t found_storage;
  uint64_t found_shared;
  uint64_t missed;
  uint64_t preempted;  ///< preempted requests that came back
  uint64_t refused_no_room;
  uint64_t refused_never_fits;
  uint64_t aborted;  ///< requests that ended before they were ready
  uint64_t load_failures;
  uint64_t duplicates;
  uint64_t device_blocks;  ///< slots of the first pool's device tier; 0 if the engine owns them
  uint64_t device_free;
  uint64_t device_evictable;
  uint64_t host_blocks;  ///< slots of the first pool's host tier
  uint64_t host_free;
  uint64_t evicted_device;
  uint64_t evicted_host;
  uint64_t dropped_lost;  ///< dropped copies whose block no other tier had
  uint64_t swapped_out_bytes;
  uint64_t swapped_in_bytes;
  uint64_t storage_read_bytes;
  uint64_t storage_written_bytes;
  uint64_t durable_blocks;       ///< blocks that would survive a power failure now
  uint64_t live;                 ///< requests that have not been released
  uint64_t erasing;              ///< 1: blocks that a clear has removed from storage may come back after a kill
  uint64_t shared_off;           ///< 1: since a clear, the shared store is not used
  uint64_t link_down;            ///< 1: copies between device and host fail, so none are started
  uint64_t cleared;              ///< 1: a clear with TERRACE_CLEAR_WAIT is under way; 2: it is complete, and the cache can resume
  uint64_t transfers_in_flight;  ///< transfers, reads and writes that have started and have not ended
  uint64_t transfers_paused;     ///< 1: none starts, until somebody resumes them
} terrace_cache_statistics;
TERRACE_C_API terrace_status terrace_cache_read_statistics(const terrace_cache* cache, terrace_cache_statistics* out);

/// How the slots of a tier of a pool are used. A new request can get free + evictable - promised of them.
typedef struct terrace_usage {
  size_t struct_size;
  uint64_t blocks;  ///< slots, without the null block
  uint64_t free;
  uint64_t evictable;  ///< cached, and not held by anything
  uint64_t promised;   ///< the part of `free` and `evictable` that is promised to waiting requests
} terrace_usage;
/// `tier` is TERRACE_TIER_DEVICE, except of an offload cache, or TERRACE_TIER_HOST.
TERRACE_C_API terrace_status terrace_cache_read_usage(const terrace_cache* cache, uint32_t tier, uint16_t pool,
                                                      terrace_usage* out);

/// What the tree of a pool has now. Leaves have no block after them in their tier.
typedef struct terrace_tree_counts {
  size_t struct_size;
  uint64_t nodes;
  uint64_t blocks;
  uint64_t references;     ///< pins
  uint64_t device_blocks;  ///< copies
  uint64_t device_pinned;
  uint64_t device_leaves;
  uint64_t host_blocks;
  uint64_t host_pinned;
  uint64_t host_leaves;
  uint64_t storage_blocks;
  uint64_t storage_leaves;
} terrace_tree_counts;
/// Visits every node of the tree, as does the next call.
TERRACE_C_API terrace_status terrace_cache_read_tree(const terrace_cache* cache, uint16_t pool, terrace_tree_counts* out);
/// Returns the trees as text for people: which tiers have which blocks, a line for each node, at most `lines_max` for each pool.
TERRACE_C_API terrace_status terrace_cache_describe_tree(terrace_cache* cache, size_t lines_max, const char** text);

/// Hash units that requests had to compute, by the reason: terrace::MissReason (<terrace/statistics.hpp>). Of an offload cache,
/// blocks that its engine has computed and stored. All of them are estimated from a share of the keys.
typedef struct terrace_misses {
  size_t struct_size;
  uint64_t unknown;         ///< never cached, or there is no record of it any more
  uint64_t evicted_device;  ///< the last copy was evicted from this tier, as are the next two
  uint64_t evicted_host;
  uint64_t evicted_storage;
  uint64_t damaged;
  uint64_t cleared;
  uint64_t turned_down;  ///< loading it would take longer than computing it
  uint64_t not_used;     ///< after a missing block, or in a source that the request did not allow
} terrace_misses;
/// Starts to record why blocks are missed. A cache with an admin endpoint does so from the start. Takes up to 3 MiB of memory.
TERRACE_C_API terrace_status terrace_cache_measure_misses(terrace_cache* cache);
TERRACE_C_API terrace_status terrace_cache_read_misses(const terrace_cache* cache, terrace_misses* out);

enum { TERRACE_CACHE_STORED = 0, TERRACE_CACHE_REMOVED = 1, TERRACE_CACHE_CLEARED = 2 };
/// A change of what is cached, for routers and other observers.
typedef struct terrace_cache_event {
  terrace_key key;
  terrace_key parent;  ///< all zero: none
  uint64_t tenant;
  uint32_t kind;    ///< TERRACE_CACHE_...
  uint32_t source;  ///< TERRACE_HOST, TERRACE_STORAGE or TERRACE_SHARED; a later library may have more
  uint32_t depth;   ///< index in its prefix
  uint32_t group;
} terrace_cache_event;
/// Starts to record changes. Take the events regularly, because all of them are kept until then.
TERRACE_C_API terrace_status terrace_cache_record_events(terrace_cache* cache);
TERRACE_C_API terrace_status terrace_cache_events(terrace_cache* cache, const terrace_cache_event** events, size_t* count);
/// Returns a time for each event of the last terrace_cache_events(), in the same order. An event for a copy in the shared store
/// is only a hint, which ends after this time, because no event reports the removal of such a copy. 0: the copy stays until an
/// event reports its removal, or the time is not known.
TERRACE_C_API terrace_status terrace_cache_event_expiries(terrace_cache* cache, const int64_t** expire_after, size_t* count);

// ---- hints, pins, quotas

/// Pins the cached part of the prefix for so long (TERRACE_NEVER: until terrace_cache_unpin()): device and host do not evict it.
/// Fails with TERRACE_NOT_FOUND, TERRACE_NO_ROOM (the limit of all pins).
TERRACE_C_API terrace_status terrace_cache_pin(terrace_cache* cache, const terrace_key* keys, size_t count, int64_t longest,
                                               uint64_t* pin);
TERRACE_C_API terrace_status terrace_cache_unpin(terrace_cache* cache, uint64_t pin);
#define TERRACE_USUAL_PRIORITY 7U
#define TERRACE_HIGHEST_PRIORITY 14U
/// Gives the cached part of the prefix a priority for so long. Blocks of a lower priority are evicted first; others have
/// TERRACE_USUAL_PRIORITY.
TERRACE_C_API terrace_status terrace_cache_retain(terrace_cache* cache, const terrace_key* keys, size_t count, uint32_t priority,
                                                  int64_t longest, uint64_t* retention);
TERRACE_C_API terrace_status terrace_cache_end_retention(terrace_cache* cache, uint64_t retention);
/// Tells after how many nanoseconds the prefix is expected to be used next; TERRACE_NEVER: its session has ended. It counts for
/// the blocks that belong to this prefix alone, until they are used again. The default eviction policy evicts them accordingly.
TERRACE_C_API terrace_status terrace_cache_expect_use(terrace_cache* cache, const terrace_key* keys, size_t count, int64_t in);
/// Limits how many blocks a tenant may keep cached in a pool (UINT32_MAX: no limit). Blocks beyond it are evicted first.
TERRACE_C_API terrace_status terrace_cache_set_quota(terrace_cache* cache, uint64_t tenant, uint32_t device_blocks,
                                                     uint32_t host_blocks, uint16_t pool);
TERRACE_C_API terrace_status terrace_cache_remove_quota(terrace_cache* cache, uint64_t tenant, uint16_t pool);
/// Sets `blocks` to the number of copies that a tenant with a quota has in the tier. Fails with TERRACE_NOT_FOUND.
TERRACE_C_API terrace_status terrace_cache_tenant_blocks(const terrace_cache* cache, uint64_t tenant, uint32_t tier,
                                                         uint16_t pool, uint64_t* blocks);

// ---- block sizes and counts

enum { TERRACE_FLOAT32 = 0, TERRACE_FLOAT16 = 1, TERRACE_BFLOAT16 = 2, TERRACE_FLOAT8 = 3, TERRACE_INT8 = 4, TERRACE_INT4 = 5 };
enum {
  TERRACE_ATTENTION_FULL = 0,
  TERRACE_ATTENTION_SLIDING_WINDOW = 1,
  TERRACE_ATTENTION_CHUNKED_LOCAL = 2,
  TERRACE_ATTENTION_RECURRENT = 3,
  TERRACE_ATTENTION_CROSS = 4
};
enum { TERRACE_SCALES_NONE = 0, TERRACE_SCALES_INSIDE_BLOCK = 1, TERRACE_SCALES_OWN_GROUP = 2 };
/// Layers of the same shape: terrace::LayerShape (<terrace/model_plan.hpp>). Counts are for the whole model. Set kv_heads and
/// head_size, or latent_size, or (of recurrent layers) state_bytes.
typedef struct terrace_layer_shape {
  uint32_t kind;  ///< TERRACE_ATTENTION_...
  uint32_t layers;
  uint32_t block_tokens;
  uint32_t span_tokens;      ///< of the window or chunk
  uint32_t optional;         ///< 1: as the layers of a draft model
  uint32_t kv_heads;         ///< heads that have a K and a V
  uint32_t head_size;        ///< values of K in one head, and of V unless value_head_size is set
  uint32_t value_head_size;  ///< 0: head_size
  uint32_t latent_size;      ///< values for one token of MLA, K and V together
  uint32_t type;             ///< TERRACE_FLOAT32 and so on, as is scale_type
  uint32_t scales;           ///< TERRACE_SCALES_...: where the scales of quantised values are
  uint32_t scale_type;
  uint32_t values_per_scale;  ///< 0: all values of a head
  uint32_t reserved;
  uint64_t state_bytes;  ///< the state of one layer
} terrace_layer_shape;
/// A model, a typical sequence, and the memory that a cache may use.
typedef struct terrace_plan_order {
  size_t struct_size;
  const terrace_layer_shape* layers;
  size_t layer_count;
  uint64_t device_bytes;  ///< of one rank
  uint64_t host_bytes;    ///< of all ranks together, staging included
  uint64_t block_unit;    ///< block sizes must be a multiple of it: 4096 with file storage; 0: of 1
  uint32_t ranks;         ///< tensor-parallel ranks; 0: 1
  uint32_t tokens;        ///< of a typical sequence, prompt and output together
  uint32_t chunk_tokens;  ///< the most tokens of a step
  uint32_t encoder_tokens;
  uint32_t staging_blocks;  ///< of each pool; 0: there is no storage
  uint32_t reserved;
} terrace_plan_order;
/// The options of a [[group]] in a configuration.
typedef struct terrace_planned_group {
  uint32_t kind;
  uint32_t block_tokens;
  uint32_t span_tokens;
  uint32_t optional;
  uint32_t pool;
} terrace_planned_group;
/// The options of a [[pool]].
typedef struct terrace_planned_pool {
  uint64_t block_bytes;
  uint32_t layers;
  uint32_t device_blocks;
  uint32_t host_blocks;
  uint32_t staging_blocks;
  uint32_t null_block;
  uint32_t reserved;
} terrace_planned_pool;
typedef struct terrace_group_plan {
  size_t struct_size;
  uint32_t group_count;
  uint32_t pool_count;
  uint32_t replicated;   ///< 1: rank-payload is "replicated"
  uint32_t sequences;    ///< typical sequences that fit the device at the same time
  uint64_t device_used;  ///< bytes on one rank
  uint64_t host_used;    ///< bytes of all ranks together
} terrace_group_plan;
/// Derives block sizes from the shapes, and block counts from the memory, so that all pools become full at the same time if
/// sequences are typical. `groups` and `pools` have room for 2 * layer_count entries each. Fails with TERRACE_INVALID_ARGUMENT;
/// the sentence says what does not fit, and what would fit.
TERRACE_C_API terrace_status terrace_plan_groups(const terrace_plan_order* order, terrace_planned_group* groups,
                                                 terrace_planned_pool* pools, terrace_group_plan* out);

// ---- events that routers read

/// Publishes events over ZeroMQ in the format of vLLM, for routers (docs/events.md). It is a terrace::EventPublisher
/// (<terrace/event_publisher.hpp>), and belongs to no cache. Calls may come from several threads at once. A forked child keeps
/// its connections open until the child ends or calls exec.
typedef struct terrace_event_publisher terrace_event_publisher;

/// 0 and null mean the default of terrace::EventPublisherOptions.
typedef struct terrace_event_options {
  size_t struct_size;
  const char* endpoint;         ///< "tcp://ADDRESS:PORT" or "ipc://PATH", for subscribers; null: "tcp://127.0.0.1:5557"
  const char* replay_endpoint;  ///< for requests for past batches; null: there is no replay
  const char* topic;
  uint32_t connect;             ///< 1: connects to `endpoint` instead of binding it
  uint32_t data_parallel_rank;  ///< also added to the ports that are bound and not 0
  uint32_t buffer_steps;        ///< past batches that are kept for replay
  uint32_t hwm;                 ///< batches that a subscriber may be behind
  uint32_t max_queue_size;      ///< events, and described blocks, that may wait for the publisher's thread
  uint32_t max_blocks;          ///< blocks whose tokens are kept
  uint64_t buffer_bytes;        ///< memory for the batches that are kept for replay
  int64_t heartbeat;            ///< after so long without events an empty batch is published
} terrace_event_options;
/// Binds the addresses. Fails with TERRACE_INVALID_ARGUMENT, or an errno (-EADDRINUSE: the port or path is in use).
TERRACE_C_API terrace_status terrace_event_publisher_open(const terrace_event_options* options, terrace_event_publisher** out);
/// Publishes what is queued, without waiting for subscribers, and frees the publisher. Null is ignored.
TERRACE_C_API void terrace_event_publisher_destroy(terrace_event_publisher* publisher);
/// Returns the address with the port that is used; "" if there is none. Valid as long as the publisher.
TERRACE_C_API const char* terrace_event_publisher_endpoint(const terrace_event_publisher* publisher);
TERRACE_C_API const char* terrace_event_publisher_replay_endpoint(const terrace_event_publisher* publisher);

/// The tokens behind the keys of consecutive blocks of a prompt.
typedef struct terrace_block_tokens {
  size_t struct_size;
  const terrace_key* keys;
  size_t count;  ///< of keys
  const uint32_t* tokens;
  size_t token_count;         ///< block_tokens for each key
  const terrace_key* parent;  ///< the key of the block before the first one; null: the prompt begins with it
  const char* adapter;        ///< name of the LoRA adapter; null: none
  uint32_t block_tokens;
  uint32_t group;
} terrace_block_tokens;
/// Describes blocks, once, before or after they are cached. Nothing is published about a block without a description. Fails with
/// TERRACE_REFUSED if the queue is full.
TERRACE_C_API terrace_status terrace_event_publisher_describe(terrace_event_publisher* publisher,
                                                              const terrace_block_tokens* blocks);
/// Publishes changes: the events of terrace_cache_events(), all of them and in their order, and, if the engine owns the slots of
/// its devices, events that it makes for its blocks there (TERRACE_DEVICE). Fails with TERRACE_REFUSED if the queue is full;
/// subscribers are told then that all blocks are gone.
TERRACE_C_API terrace_status terrace_event_publisher_publish(terrace_event_publisher* publisher,
                                                             const terrace_cache_event* events, size_t count);

/// The meanings are those of terrace::EventPublisherStats.
typedef struct terrace_event_statistics {
  size_t struct_size;
  uint64_t batches;
  uint64_t bytes;
  uint64_t stored;
  uint64_t removed;
  uint64_t cleared;
  uint64_t without_tokens;
  uint64_t not_remembered;
  uint64_t queue_overflows;
  uint64_t descriptions_refused;
  uint64_t replays;
  uint64_t replayed_batches;
  uint64_t snapshots;
  uint64_t replays_cut;
  uint64_t malformed_requests;
  uint64_t batches_lost;
  uint64_t peers_refused;
  uint64_t peers_dropped;
  uint64_t failures;
  uint64_t subscribers;
  uint64_t known_blocks;
  uint64_t published_blocks;
  uint64_t buffered_batches;
} terrace_event_statistics;
TERRACE_C_API terrace_status terrace_event_publisher_read_statistics(const terrace_event_publisher* publisher,
                                                                     terrace_event_statistics* out);

// ---- write-back jobs

enum { TERRACE_SCOPE_PREFIX = 1, TERRACE_SCOPE_TENANT = 2, TERRACE_SCOPE_IDLE = 3, TERRACE_SCOPE_ALL = 4 };
enum { TERRACE_TARGET_STORAGE = 0, TERRACE_TARGET_SHARED = 1 };
typedef struct terrace_write_back {
  size_t struct_size;
  uint32_t scope;           ///< TERRACE_SCOPE_...
  uint32_t not_durable;     ///< 1: the job does not flush storage before it ends
  const terrace_key* keys;  ///< for TERRACE_SCOPE_PREFIX
  size_t count;
  uint64_t tenant;     ///< for TERRACE_SCOPE_TENANT
  int64_t unused_for;  ///< for TERRACE_SCOPE_IDLE
  int64_t deadline;    ///< 0 or TERRACE_NEVER: none
  uint64_t budget;     ///< the largest number of bytes to write; 0: no limit
  uint32_t target;     ///< TERRACE_TARGET_...; the shared store is not flushed
  uint32_t reserved;
} terrace_write_back;
/// Starts a job that writes cached blocks to storage or to the shared store now. Fails with TERRACE_INVALID_ARGUMENT if there is
/// no such target.
TERRACE_C_API terrace_status terrace_write_back_start(terrace_cache* cache, const terrace_write_back* order, uint64_t* job);
TERRACE_C_API terrace_status terrace_write_back_pause(terrace_cache* cache, uint64_t job);
TERRACE_C_API terrace_status terrace_write_back_resume(terrace_cache* cache, uint64_t job);
TERRACE_C_API terrace_status terrace_write_back_cancel(terrace_cache* cache, uint64_t job);

enum {
  TERRACE_JOB_RUNNING = 0,
  TERRACE_JOB_PAUSED = 1,
  TERRACE_JOB_DONE = 2,
  TERRACE_JOB_CANCELLED = 3,
  TERRACE_JOB_DEADLINE_EXCEEDED = 4
};
typedef struct terrace_write_back_progress {
  size_t struct_size;
  uint32_t state;              ///< TERRACE_JOB_...
  terrace_status flush_error;  ///< error of the last flush
  uint64_t stored;             ///< number of blocks, as are the next seven
  uint64_t already_there;
  uint64_t dropped_full;
  uint64_t dropped_gone;
  uint64_t over_budget;
  uint64_t failed;
  uint64_t cancelled;
  uint64_t under_way;
  uint64_t written_bytes;
  uint64_t durable_bytes;
} terrace_write_back_progress;
TERRACE_C_API terrace_status terrace_write_back_read(const terrace_cache* cache, uint64_t job, terrace_write_back_progress* out);

enum {
  TERRACE_OUTCOME_STORED = 0,
  TERRACE_OUTCOME_ALREADY_THERE = 1,
  TERRACE_OUTCOME_DROPPED_FULL = 2,
  TERRACE_OUTCOME_DROPPED_GONE = 3,
  TERRACE_OUTCOME_OVER_BUDGET = 4,
  TERRACE_OUTCOME_FAILED = 5,
  TERRACE_OUTCOME_CANCELLED = 6
};
typedef struct terrace_write_back_result {
  terrace_key key;
  uint32_t outcome;       ///< TERRACE_OUTCOME_...
  terrace_status status;  ///< of a block that failed
} terrace_write_back_result;
/// Returns the results of the job's blocks since the last call.
TERRACE_C_API terrace_status terrace_write_back_results(terrace_cache* cache, uint64_t job,
                                                        const terrace_write_back_result** results, size_t* count);
/// Writes everything that is cached to storage, and flushes it, within the time: for the end of a process, after all requests
/// have been released. `durable` (may be null) is the number of blocks that would survive a power failure now.
TERRACE_C_API terrace_status terrace_cache_checkpoint(terrace_cache* cache, int64_t longest, uint64_t* durable);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // TERRACE_H
