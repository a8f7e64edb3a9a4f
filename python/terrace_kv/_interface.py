"""The C interface by ctypes. Generated from include/terrace.h by generate_interface.py: do not edit."""

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

from ._structures import Checked, Sized

OK = 0
INVALID_ARGUMENT = 1
NO_ROOM = 2
NEVER_FITS = 3
UNKNOWN_REQUEST = 4
DUPLICATE_REQUEST = 5
NOT_READY = 6
NOT_FOUND = 7
CORRUPT = 8
PARENT_MISSING = 9
FULL = 10
IO_FAILED = 11
LOAD_FAILED = 12
REFUSED = 13
CANCELLED = 14
DEADLINE_EXCEEDED = 15
INCOMPATIBLE = 16
IN_USE = 17
PAUSED = 18
CLEARED = 19
STOPPED = 20
UNAVAILABLE = 1000
NO_MEMORY = 1001
INTERNAL = 1002
ITEM_MEDIA = 0
ITEM_PROMPT_EMBEDDING = 1
LOG_INFO = 0
LOG_WARNING = 1
LOG_ERROR = 2
BATCH_PUT = 0
BATCH_GET = 1
BATCH_FLUSH = 2
BATCH_PROBE = 3
STORE_STORED = 0
STORE_EVICTED = 1
STORE_REMOVED = 2
STORE_MEMORY_FREE = 3
HEALTH_WELL = 0
HEALTH_DEGRADED = 1
HEALTH_DOWN = 2
MISS = 0
PENDING = 1
HOST = 2
STORAGE = 3
SHARED = 4
URGENCY_REQUEST = 0
URGENCY_MAKE_ROOM = 1
URGENCY_STORE = 2
OFFLOAD_BLOCK = 0
OFFLOAD_LAYERS = 1
OFFLOAD_ENDED = 2
DEVICE = 1
ACQUIRE_HITS_MAX = 1
ACQUIRE_NEW_UNITS_MAX = 2
ACQUIRE_DROP_LAST_HIT = 4
ACQUIRE_PREEMPTED = 8
ACQUIRE_BY_LAYER = 16
REQUEST_WAITING = 1
REQUEST_FAILED = 2
REQUEST_READY = 3
RELEASE_USED_UNTIL = 1
RELEASE_OUTPUT_TOKENS = 2
RELEASE_NEXT_USE = 4
GROUP_UNKNOWN = 0
GROUP_SERVES = 1
GROUP_DOES_NOT_SERVE = 2
CLEAR_KEEP_STORAGE = 0x100
CLEAR_KEEP_SHARED = 0x200
CLEAR_WAIT = 0x400
CLEAR_IDLE_ONLY = 0x800
CLEAR_RELEASE_HOST = 0x1000
TIER_DEVICE = 0
TIER_HOST = 1
TIER_STORAGE = 2
CACHE_STORED = 0
CACHE_REMOVED = 1
CACHE_CLEARED = 2
FLOAT32 = 0
FLOAT16 = 1
BFLOAT16 = 2
FLOAT8 = 3
INT8 = 4
INT4 = 5
ATTENTION_FULL = 0
ATTENTION_SLIDING_WINDOW = 1
ATTENTION_CHUNKED_LOCAL = 2
ATTENTION_RECURRENT = 3
ATTENTION_CROSS = 4
SCALES_NONE = 0
SCALES_INSIDE_BLOCK = 1
SCALES_OWN_GROUP = 2
SCOPE_PREFIX = 1
SCOPE_TENANT = 2
SCOPE_IDLE = 3
SCOPE_ALL = 4
TARGET_STORAGE = 0
TARGET_SHARED = 1
JOB_RUNNING = 0
JOB_PAUSED = 1
JOB_DONE = 2
JOB_CANCELLED = 3
JOB_DEADLINE_EXCEEDED = 4
OUTCOME_STORED = 0
OUTCOME_ALREADY_THERE = 1
OUTCOME_DROPPED_FULL = 2
OUTCOME_DROPPED_GONE = 3
OUTCOME_OVER_BUDGET = 4
OUTCOME_FAILED = 5
OUTCOME_CANCELLED = 6

LogFunction = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_void_p, c_size_t)


class Key(Checked):
    _fields_ = [
        ("bytes", c_uint8 * 32),
    ]


class Names(Checked):
    _fields_ = [
        ("bytes", c_char_p),
        ("lengths", c_void_p),
        ("length", c_uint32),
        ("count", c_uint32),
    ]


class Root(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("model_digest", c_char_p),
        ("model_digest_bytes", c_size_t),
        ("fingerprint", c_char_p),
        ("fingerprint_bytes", c_size_t),
        ("adapter", c_char_p),
        ("tenant_salt", c_char_p),
        ("weight_epoch", c_uint64),
    ]


class Item(Checked):
    _fields_ = [
        ("offset", c_uint64),
        ("length", c_uint64),
        ("digest", c_char_p),
        ("digest_bytes", c_size_t),
        ("kind", c_uint32),
        ("reserved", c_uint32),
    ]


class DeviceRegion(Checked):
    _fields_ = [
        ("rank", c_uint32),
        ("group", c_uint32),
        ("base", c_uint64),
        ("stride", c_uint64),
        ("bytes", c_uint64),
        ("layer", c_uint32),
        ("reserved", c_uint32),
    ]


class HostRows(Checked):
    _fields_ = [
        ("address", c_void_p),
        ("stride", c_uint64),
        ("rows", c_uint32),
        ("pool", c_uint32),
    ]


class OpenOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("config", c_char_p),
        ("config_name", c_char_p),
        ("log", LogFunction),
        ("log_context", c_void_p),
        ("regions", POINTER(DeviceRegion)),
        ("region_count", c_size_t),
        ("host_rows", POINTER(HostRows)),
        ("host_rows_count", c_size_t),
    ]


class CloseReport(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("closed", c_int32),
        ("batches_left", c_uint32),
        ("error", c_int32),
        ("reserved", c_uint32),
    ]


class Batch(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("id", c_uint64),
        ("keys", c_void_p),
        ("rows", c_void_p),
        ("count", c_size_t),
        ("parents", c_void_p),
        ("region", c_uint32),
        ("reserved", c_uint32),
        ("deadline", c_int64),
    ]


class Probe(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("id", c_uint64),
        ("keys", c_void_p),
        ("count", c_size_t),
        ("deadline", c_int64),
    ]


class BatchResult(Checked):
    _fields_ = [
        ("id", c_uint64),
        ("bytes", c_uint64),
        ("duration", c_uint64),
        ("statuses", POINTER(c_int32)),
        ("count", c_uint32),
        ("succeeded", c_uint32),
        ("kind", c_uint32),
        ("memory_in_use", c_uint32),
    ]


class StoreEvent(Checked):
    _fields_ = [
        ("key", Key),
        ("batch", c_uint64),
        ("kind", c_uint32),
        ("reserved", c_uint32),
    ]


class StoreStatistics(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("gets", c_uint64),
        ("hits", c_uint64),
        ("misses", c_uint64),
        ("corrupt", c_uint64),
        ("get_failures", c_uint64),
        ("gets_cancelled", c_uint64),
        ("gets_late", c_uint64),
        ("puts", c_uint64),
        ("stored", c_uint64),
        ("put_failures", c_uint64),
        ("puts_cancelled", c_uint64),
        ("puts_late", c_uint64),
        ("read_bytes", c_uint64),
        ("written_bytes", c_uint64),
        ("unaligned_blocks", c_uint64),
        ("refused", c_uint64),
        ("without_parent", c_uint64),
        ("flushes", c_uint64),
        ("flush_failures", c_uint64),
        ("not_flushed", c_uint64),
        ("events_dropped", c_uint64),
        ("batches", c_uint64),
        ("waiting", c_uint64),
        ("under_way", c_uint64),
        ("capacity_blocks", c_uint64),
        ("blocks", c_uint64),
        ("evicted", c_uint64),
        ("shared_hits", c_uint64),
        ("shared_misses", c_uint64),
        ("shared_stored", c_uint64),
        ("shared_present", c_uint64),
        ("shared_not_stored", c_uint64),
        ("shared_gets", c_uint64),
        ("shared_gets_declined", c_uint64),
        ("shared_puts", c_uint64),
        ("shared_puts_cancelled", c_uint64),
        ("shared_puts_declined", c_uint64),
        ("asked", c_uint64),
        ("found", c_uint64),
    ]


class Order(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("id", c_uint64),
        ("keys", c_void_p),
        ("count", c_size_t),
        ("slots", c_void_p),
        ("memory", c_void_p),
        ("first", c_uint32),
        ("pool", c_uint16),
        ("shared", c_uint16),
        ("tenant", c_uint64),
        ("after", c_uint64),
        ("deadline", c_int64),
        ("urgency", c_uint32),
        ("by_layer", c_uint32),
        ("beside", c_void_p),
        ("beside_count", c_size_t),
        ("use", c_uint64),
    ]


class OffloadEvent(Checked):
    _fields_ = [
        ("job", c_uint64),
        ("kind", c_uint32),
        ("block", c_uint32),
        ("status", c_int32),
        ("source", c_uint32),
        ("layers", c_uint32),
        ("moved", c_uint32),
        ("failed", c_uint32),
        ("reserved", c_uint32),
    ]


class OffloadStatistics(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("jobs", c_uint64),
        ("refused", c_uint64),
        ("loaded_host", c_uint64),
        ("loaded_storage", c_uint64),
        ("load_misses", c_uint64),
        ("load_failures", c_uint64),
        ("stored", c_uint64),
        ("already_there", c_uint64),
        ("store_full", c_uint64),
        ("store_failures", c_uint64),
        ("joined", c_uint64),
        ("late", c_uint64),
        ("unconfirmed", c_uint64),
        ("blocks_in_flight", c_uint64),
        ("host_blocks", c_uint64),
        ("host_free", c_uint64),
        ("evicted_host", c_uint64),
        ("dropped_lost", c_uint64),
        ("swapped_out_bytes", c_uint64),
        ("swapped_in_bytes", c_uint64),
        ("storage_read_bytes", c_uint64),
        ("storage_written_bytes", c_uint64),
        ("durable_blocks", c_uint64),
        ("loaded_shared", c_uint64),
        ("shared_asked", c_uint64),
        ("shared_there", c_uint64),
        ("shared_written", c_uint64),
        ("shared_present", c_uint64),
        ("erasing", c_uint64),
        ("shared_off", c_uint64),
        ("loads", c_uint64),
        ("stores", c_uint64),
        ("asked", c_uint64),
        ("found", c_uint64),
        ("link_down", c_uint64),
        ("cleared", c_uint64),
        ("transfers_in_flight", c_uint64),
        ("transfers_paused", c_uint64),
    ]


class Found(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("device", c_uint32),
        ("host", c_uint32),
        ("storage", c_uint32),
        ("shared", c_uint32),
    ]


class Place(Checked):
    _fields_ = [
        ("device", c_uint32),
        ("host", c_uint32),
        ("storage", c_uint8),
        ("in_use", c_uint8),
        ("reserved", c_uint16),
    ]


class Acquire(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("request", c_uint64),
        ("chain", c_void_p),
        ("keys", c_void_p),
        ("count", c_size_t),
        ("units", c_uint32),
        ("hit_units_max", c_uint32),
        ("new_units_max", c_uint32),
        ("external_units", c_uint32),
        ("encoder_tokens", c_uint32),
        ("farthest", c_uint32),
        ("flags", c_uint32),
        ("room_left", c_uint32),
        ("tenant", c_uint64),
        ("deadline", c_int64),
    ]


class Request(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("state", c_uint32),
        ("units", c_uint32),
        ("device", c_uint32),
        ("host", c_uint32),
        ("storage", c_uint32),
        ("shared", c_uint32),
        ("external", c_uint32),
        ("miss", c_uint32),
        ("joined", c_uint32),
        ("committed_units", c_uint32),
        ("waited", c_int64),
        ("waited_looking", c_int64),
        ("waited_room", c_int64),
        ("waited_host", c_int64),
        ("waited_storage", c_int64),
        ("waited_shared", c_int64),
    ]


class Duplicate(Checked):
    _fields_ = [
        ("group", c_uint32),
        ("block", c_uint32),
        ("own", c_uint32),
        ("shared", c_uint32),
    ]


class Release(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("last_use", c_uint64),
        ("output_tokens", c_uint64),
        ("next_use", c_int64),
        ("flags", c_uint32),
        ("reserved", c_uint32),
    ]


class Table(Checked):
    _fields_ = [
        ("rows", c_void_p),
        ("stride", c_size_t),
        ("lengths", c_void_p),
        ("group", c_uint32),
        ("row_count", c_uint32),
    ]


class Step(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("requests", c_void_p),
        ("count", c_size_t),
        ("token_counts", c_void_p),
        ("tokens", c_void_p),
        ("computed_tokens", c_void_p),
        ("needed_tokens", c_void_p),
        ("written", c_uint64),
        ("rows", c_void_p),
        ("tables", POINTER(Table)),
        ("table_count", c_size_t),
        ("statuses", POINTER(c_int32)),
        ("advance", c_uint32),
        ("token_capacity", c_uint32),
        ("row_owners", c_void_p),
    ]


class RequestEvent(Checked):
    _fields_ = [
        ("request", c_uint64),
        ("status", c_int32),
        ("layers", c_uint32),
    ]


class CacheStatistics(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("requests", c_uint64),
        ("asked", c_uint64),
        ("found_device", c_uint64),
        ("found_host", c_uint64),
        ("found_storage", c_uint64),
        ("found_shared", c_uint64),
        ("missed", c_uint64),
        ("preempted", c_uint64),
        ("refused_no_room", c_uint64),
        ("refused_never_fits", c_uint64),
        ("aborted", c_uint64),
        ("load_failures", c_uint64),
        ("duplicates", c_uint64),
        ("device_blocks", c_uint64),
        ("device_free", c_uint64),
        ("device_evictable", c_uint64),
        ("host_blocks", c_uint64),
        ("host_free", c_uint64),
        ("evicted_device", c_uint64),
        ("evicted_host", c_uint64),
        ("dropped_lost", c_uint64),
        ("swapped_out_bytes", c_uint64),
        ("swapped_in_bytes", c_uint64),
        ("storage_read_bytes", c_uint64),
        ("storage_written_bytes", c_uint64),
        ("durable_blocks", c_uint64),
        ("live", c_uint64),
        ("erasing", c_uint64),
        ("shared_off", c_uint64),
        ("link_down", c_uint64),
        ("cleared", c_uint64),
        ("transfers_in_flight", c_uint64),
        ("transfers_paused", c_uint64),
    ]


class Usage(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("blocks", c_uint64),
        ("free", c_uint64),
        ("evictable", c_uint64),
        ("promised", c_uint64),
    ]


class TreeCounts(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("nodes", c_uint64),
        ("blocks", c_uint64),
        ("references", c_uint64),
        ("device_blocks", c_uint64),
        ("device_pinned", c_uint64),
        ("device_leaves", c_uint64),
        ("host_blocks", c_uint64),
        ("host_pinned", c_uint64),
        ("host_leaves", c_uint64),
        ("storage_blocks", c_uint64),
        ("storage_leaves", c_uint64),
    ]


class Misses(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("unknown", c_uint64),
        ("evicted_device", c_uint64),
        ("evicted_host", c_uint64),
        ("evicted_storage", c_uint64),
        ("damaged", c_uint64),
        ("cleared", c_uint64),
        ("turned_down", c_uint64),
        ("not_used", c_uint64),
    ]


class CacheEvent(Checked):
    _fields_ = [
        ("key", Key),
        ("parent", Key),
        ("tenant", c_uint64),
        ("kind", c_uint32),
        ("source", c_uint32),
        ("depth", c_uint32),
        ("group", c_uint32),
    ]


class LayerShape(Checked):
    _fields_ = [
        ("kind", c_uint32),
        ("layers", c_uint32),
        ("block_tokens", c_uint32),
        ("span_tokens", c_uint32),
        ("optional", c_uint32),
        ("kv_heads", c_uint32),
        ("head_size", c_uint32),
        ("value_head_size", c_uint32),
        ("latent_size", c_uint32),
        ("type", c_uint32),
        ("scales", c_uint32),
        ("scale_type", c_uint32),
        ("values_per_scale", c_uint32),
        ("reserved", c_uint32),
        ("state_bytes", c_uint64),
    ]


class PlanOrder(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("layers", POINTER(LayerShape)),
        ("layer_count", c_size_t),
        ("device_bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("block_unit", c_uint64),
        ("ranks", c_uint32),
        ("tokens", c_uint32),
        ("chunk_tokens", c_uint32),
        ("encoder_tokens", c_uint32),
        ("staging_blocks", c_uint32),
        ("reserved", c_uint32),
    ]


class PlannedGroup(Checked):
    _fields_ = [
        ("kind", c_uint32),
        ("block_tokens", c_uint32),
        ("span_tokens", c_uint32),
        ("optional", c_uint32),
        ("pool", c_uint32),
    ]


class PlannedPool(Checked):
    _fields_ = [
        ("block_bytes", c_uint64),
        ("layers", c_uint32),
        ("device_blocks", c_uint32),
        ("host_blocks", c_uint32),
        ("staging_blocks", c_uint32),
        ("null_block", c_uint32),
        ("reserved", c_uint32),
    ]


class GroupPlan(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("group_count", c_uint32),
        ("pool_count", c_uint32),
        ("replicated", c_uint32),
        ("sequences", c_uint32),
        ("device_used", c_uint64),
        ("host_used", c_uint64),
    ]


class EventOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("endpoint", c_char_p),
        ("replay_endpoint", c_char_p),
        ("topic", c_char_p),
        ("connect", c_uint32),
        ("data_parallel_rank", c_uint32),
        ("buffer_steps", c_uint32),
        ("hwm", c_uint32),
        ("max_queue_size", c_uint32),
        ("max_blocks", c_uint32),
        ("buffer_bytes", c_uint64),
        ("heartbeat", c_int64),
    ]


class BlockTokens(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("keys", c_void_p),
        ("count", c_size_t),
        ("tokens", c_void_p),
        ("token_count", c_size_t),
        ("parent", c_void_p),
        ("adapter", c_char_p),
        ("block_tokens", c_uint32),
        ("group", c_uint32),
    ]


class EventStatistics(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("batches", c_uint64),
        ("bytes", c_uint64),
        ("stored", c_uint64),
        ("removed", c_uint64),
        ("cleared", c_uint64),
        ("without_tokens", c_uint64),
        ("not_remembered", c_uint64),
        ("queue_overflows", c_uint64),
        ("descriptions_refused", c_uint64),
        ("replays", c_uint64),
        ("replayed_batches", c_uint64),
        ("snapshots", c_uint64),
        ("replays_cut", c_uint64),
        ("malformed_requests", c_uint64),
        ("batches_lost", c_uint64),
        ("peers_refused", c_uint64),
        ("peers_dropped", c_uint64),
        ("failures", c_uint64),
        ("subscribers", c_uint64),
        ("known_blocks", c_uint64),
        ("published_blocks", c_uint64),
        ("buffered_batches", c_uint64),
    ]


class WriteBack(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("scope", c_uint32),
        ("not_durable", c_uint32),
        ("keys", c_void_p),
        ("count", c_size_t),
        ("tenant", c_uint64),
        ("unused_for", c_int64),
        ("deadline", c_int64),
        ("budget", c_uint64),
        ("target", c_uint32),
        ("reserved", c_uint32),
    ]


class WriteBackProgress(Sized):
    _fields_ = [
        ("struct_size", c_size_t),
        ("state", c_uint32),
        ("flush_error", c_int32),
        ("stored", c_uint64),
        ("already_there", c_uint64),
        ("dropped_full", c_uint64),
        ("dropped_gone", c_uint64),
        ("over_budget", c_uint64),
        ("failed", c_uint64),
        ("cancelled", c_uint64),
        ("under_way", c_uint64),
        ("written_bytes", c_uint64),
        ("durable_bytes", c_uint64),
    ]


class WriteBackResult(Checked):
    _fields_ = [
        ("key", Key),
        ("outcome", c_uint32),
        ("status", c_int32),
    ]


FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "terrace_c_version": (c_uint32, []),
    "terrace_version": (c_char_p, []),
    "terrace_status_text": (c_char_p, [c_int32]),
    "terrace_last_error": (c_char_p, []),
    "terrace_keys_of_names": (c_int32, [c_char_p, c_size_t, POINTER(Names), c_void_p]),
    "terrace_keys_of_prefix": (c_int32, [c_char_p, c_size_t, c_void_p, POINTER(Names), c_void_p]),
    "terrace_keys_of_tokens": (c_int32, [c_char_p, c_size_t, c_void_p, c_void_p, c_size_t, c_uint32, c_void_p]),
    "terrace_chain_make": (c_int32, [POINTER(Root), c_uint32, POINTER(c_void_p)]),
    "terrace_chain_destroy": (None, [c_void_p]),
    "terrace_chain_add_items": (c_int32, [c_void_p, POINTER(Item), c_size_t]),
    "terrace_chain_append": (c_int32, [c_void_p, c_void_p, c_size_t]),
    "terrace_chain_keys": (c_int32, [c_void_p, POINTER(POINTER(Key)), c_void_p]),
    "terrace_chain_tokens": (c_uint64, [c_void_p]),
    "terrace_chain_tenant": (c_uint64, [c_void_p]),
    "terrace_chain_before_media": (c_int32, [c_void_p, c_uint32, c_void_p]),
    "terrace_chain_media_across": (c_int32, [c_void_p, c_uint32, POINTER(Item)]),
    "terrace_store_open": (c_int32, [POINTER(OpenOptions), POINTER(c_void_p)]),
    "terrace_store_destroy": (None, [c_void_p]),
    "terrace_store_close": (c_int32, [c_void_p, c_int64, POINTER(CloseReport)]),
    "terrace_store_block_bytes": (c_uint64, [c_void_p]),
    "terrace_store_register": (c_int32, [c_void_p, c_void_p, c_uint32, c_uint64, c_void_p]),
    "terrace_store_unregister": (c_int32, [c_void_p, c_uint32]),
    "terrace_store_contains": (c_int32, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "terrace_store_leading": (c_int32, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "terrace_store_touch": (c_int32, [c_void_p, c_void_p, c_size_t]),
    "terrace_store_put": (c_int32, [c_void_p, POINTER(Batch)]),
    "terrace_store_get": (c_int32, [c_void_p, POINTER(Batch)]),
    "terrace_store_probe": (c_int32, [c_void_p, POINTER(Probe)]),
    "terrace_store_flush": (c_int32, [c_void_p, c_uint64]),
    "terrace_store_cancel": (c_int32, [c_void_p, c_uint64]),
    "terrace_store_poll": (c_int32, [c_void_p, POINTER(POINTER(BatchResult)), c_void_p]),
    "terrace_store_events": (c_int32, [c_void_p, POINTER(POINTER(StoreEvent)), c_void_p]),
    "terrace_store_fd": (c_int, [c_void_p]),
    "terrace_store_next_poll": (c_int64, [c_void_p]),
    "terrace_store_wait": (c_int32, [c_void_p, c_int64]),
    "terrace_store_remove": (c_int32, [c_void_p, c_void_p, c_size_t]),
    "terrace_store_clear": (c_int32, [c_void_p]),
    "terrace_store_resume_shared": (c_int32, [c_void_p, c_char_p]),
    "terrace_store_stop": (None, [c_void_p]),
    "terrace_store_drain": (c_int32, [c_void_p, c_int64]),
    "terrace_store_read_statistics": (c_int32, [c_void_p, POINTER(StoreStatistics)]),
    "terrace_store_health": (c_int32, [c_void_p, c_void_p, POINTER(c_char_p)]),
    "terrace_store_io": (c_char_p, [c_void_p]),
    "terrace_offload_open": (c_int32, [POINTER(OpenOptions), POINTER(c_void_p)]),
    "terrace_offload_look_up": (c_int32, [c_void_p, c_uint16, c_void_p, c_size_t, c_void_p]),
    "terrace_offload_leading": (c_int32, [c_void_p, c_uint16, c_void_p, c_size_t, c_void_p]),
    "terrace_offload_contains": (c_int32, [c_void_p, c_uint16, c_void_p, c_size_t, c_void_p]),
    "terrace_offload_find": (c_int32, [c_void_p, c_uint16, c_void_p, c_size_t, c_void_p, c_void_p]),
    "terrace_offload_new_use": (c_int32, [c_void_p, c_void_p]),
    "terrace_offload_load": (c_int32, [c_void_p, POINTER(Order)]),
    "terrace_offload_store": (c_int32, [c_void_p, POINTER(Order)]),
    "terrace_offload_cancel": (c_int32, [c_void_p, c_uint64]),
    "terrace_offload_pin": (c_int32, [c_void_p, c_uint64, c_uint16, c_void_p, c_size_t, c_void_p]),
    "terrace_offload_pin_slots": (c_int32, [c_void_p, POINTER(Order), c_void_p]),
    "terrace_offload_unpin": (c_int32, [c_void_p, c_uint64]),
    "terrace_offload_touch": (c_int32, [c_void_p, c_uint16, c_void_p, c_size_t]),
    "terrace_offload_end_request": (c_int32, [c_void_p, c_uint16, c_void_p, c_size_t, c_uint64]),
    "terrace_offload_expect_use": (c_int32, [c_void_p, c_uint16, c_void_p, c_size_t, c_int64]),
    "terrace_offload_reserve": (c_int32, [c_void_p, POINTER(Order), c_void_p, c_void_p]),
    "terrace_offload_publish": (c_int32, [c_void_p, c_uint64, c_int32]),
    "terrace_offload_poll": (c_int32, [c_void_p, POINTER(POINTER(OffloadEvent)), c_void_p]),
    "terrace_offload_stop": (None, [c_void_p]),
    "terrace_offload_await": (c_int32, [c_void_p, c_uint64, c_uint32, c_void_p, c_uint32]),
    "terrace_offload_read_statistics": (c_int32, [c_void_p, POINTER(OffloadStatistics)]),
    "terrace_cache_open": (c_int32, [POINTER(OpenOptions), POINTER(c_void_p)]),
    "terrace_cache_match": (c_int32, [c_void_p, c_void_p, c_size_t, c_uint32, POINTER(Found)]),
    "terrace_cache_find_blocks": (c_int32, [c_void_p, c_void_p, c_size_t, c_uint16, POINTER(POINTER(Place)), c_void_p]),
    "terrace_cache_find_block": (c_int32, [c_void_p, c_void_p, c_uint16, POINTER(Place)]),
    "terrace_cache_blocks_for": (c_int32, [c_void_p, c_uint64, c_uint16, c_void_p]),
    "terrace_cache_acquire": (c_int32, [c_void_p, POINTER(Acquire), POINTER(Request)]),
    "terrace_cache_read_request": (c_int32, [c_void_p, c_uint64, POINTER(Request)]),
    "terrace_cache_extend": (c_int32, [c_void_p, c_uint64, c_uint32]),
    "terrace_cache_commit": (c_int32, [c_void_p, c_uint64, c_void_p, c_size_t, c_uint64, POINTER(POINTER(Duplicate)), c_void_p]),
    "terrace_cache_advance": (c_int32, [c_void_p, c_uint64, c_uint64, c_uint64]),
    "terrace_cache_release": (c_int32, [c_void_p, c_void_p, c_size_t, POINTER(Release)]),
    "terrace_cache_compute_is_idle": (c_int32, [c_void_p]),
    "terrace_cache_block_table": (c_int32, [c_void_p, c_uint64, c_uint16, POINTER(POINTER(c_uint32)), c_void_p]),
    "terrace_cache_hit_sources": (c_int32, [c_void_p, c_uint64, POINTER(POINTER(c_uint8)), c_void_p]),
    "terrace_cache_group_state": (c_int32, [c_void_p, c_uint64, c_uint16, c_void_p]),
    "terrace_cache_common_prefix": (c_int32, [c_void_p, c_uint16, c_void_p]),
    "terrace_cache_step": (c_int32, [c_void_p, POINTER(Step)]),
    "terrace_cache_poll": (c_int32, [c_void_p, POINTER(POINTER(RequestEvent)), c_void_p]),
    "terrace_cache_end_step": (c_int32, [c_void_p]),
    "terrace_cache_await": (c_int32, [c_void_p, c_uint64, c_uint32, c_void_p, c_uint32]),
    "terrace_cache_prefetch": (c_int32, [c_void_p, c_void_p, c_size_t, c_uint32, c_uint64, c_int64, c_void_p]),
    "terrace_cache_cancel_prefetch": (c_int32, [c_void_p, c_uint64]),
    "terrace_cache_prefetching": (c_int32, [c_void_p, c_uint64, c_void_p]),
    "terrace_cache_drop": (c_int32, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "terrace_cache_evict": (c_int32, [c_void_p, c_void_p, c_size_t, c_uint16, c_void_p, POINTER(POINTER(c_uint32)), c_void_p]),
    "terrace_cache_relocate": (c_int32, [c_void_p, POINTER(DeviceRegion), c_size_t]),
    "terrace_cache_destroy": (c_int32, [c_void_p, c_int64]),
    "terrace_cache_block_bytes": (c_uint64, [c_void_p, c_uint16]),
    "terrace_cache_fd": (c_int, [c_void_p]),
    "terrace_cache_next_poll": (c_int64, [c_void_p]),
    "terrace_cache_wait": (c_int32, [c_void_p, c_int64]),
    "terrace_cache_pause_idle_service": (c_int32, [c_void_p, c_int64]),
    "terrace_cache_drain": (c_int32, [c_void_p, c_int64]),
    "terrace_cache_signal": (c_int32, [c_void_p, c_void_p, c_uint32, c_void_p]),
    "terrace_cache_clear": (c_int32, [c_void_p, c_uint32]),
    "terrace_cache_resume": (c_int32, [c_void_p]),
    "terrace_cache_resume_shared": (c_int32, [c_void_p, c_char_p]),
    "terrace_cache_pause_transfers": (c_int32, [c_void_p]),
    "terrace_cache_resume_transfers": (c_int32, [c_void_p]),
    "terrace_cache_set": (c_int32, [c_void_p, c_char_p, c_char_p]),
    "terrace_cache_make_room": (c_int32, [c_void_p, c_uint32, c_uint32, c_uint16]),
    "terrace_cache_resize": (c_int32, [c_void_p, c_uint32, c_uint32, c_uint16]),
    "terrace_cache_read_statistics": (c_int32, [c_void_p, POINTER(CacheStatistics)]),
    "terrace_cache_read_usage": (c_int32, [c_void_p, c_uint32, c_uint16, POINTER(Usage)]),
    "terrace_cache_read_tree": (c_int32, [c_void_p, c_uint16, POINTER(TreeCounts)]),
    "terrace_cache_describe_tree": (c_int32, [c_void_p, c_size_t, POINTER(c_char_p)]),
    "terrace_cache_measure_misses": (c_int32, [c_void_p]),
    "terrace_cache_read_misses": (c_int32, [c_void_p, POINTER(Misses)]),
    "terrace_cache_record_events": (c_int32, [c_void_p]),
    "terrace_cache_events": (c_int32, [c_void_p, POINTER(POINTER(CacheEvent)), c_void_p]),
    "terrace_cache_event_expiries": (c_int32, [c_void_p, POINTER(POINTER(c_int64)), c_void_p]),
    "terrace_cache_pin": (c_int32, [c_void_p, c_void_p, c_size_t, c_int64, c_void_p]),
    "terrace_cache_unpin": (c_int32, [c_void_p, c_uint64]),
    "terrace_cache_retain": (c_int32, [c_void_p, c_void_p, c_size_t, c_uint32, c_int64, c_void_p]),
    "terrace_cache_end_retention": (c_int32, [c_void_p, c_uint64]),
    "terrace_cache_expect_use": (c_int32, [c_void_p, c_void_p, c_size_t, c_int64]),
    "terrace_cache_set_quota": (c_int32, [c_void_p, c_uint64, c_uint32, c_uint32, c_uint16]),
    "terrace_cache_remove_quota": (c_int32, [c_void_p, c_uint64, c_uint16]),
    "terrace_cache_tenant_blocks": (c_int32, [c_void_p, c_uint64, c_uint32, c_uint16, c_void_p]),
    "terrace_plan_groups": (c_int32, [POINTER(PlanOrder), POINTER(PlannedGroup), POINTER(PlannedPool), POINTER(GroupPlan)]),
    "terrace_event_publisher_open": (c_int32, [POINTER(EventOptions), POINTER(c_void_p)]),
    "terrace_event_publisher_destroy": (None, [c_void_p]),
    "terrace_event_publisher_endpoint": (c_char_p, [c_void_p]),
    "terrace_event_publisher_replay_endpoint": (c_char_p, [c_void_p]),
    "terrace_event_publisher_describe": (c_int32, [c_void_p, POINTER(BlockTokens)]),
    "terrace_event_publisher_publish": (c_int32, [c_void_p, POINTER(CacheEvent), c_size_t]),
    "terrace_event_publisher_read_statistics": (c_int32, [c_void_p, POINTER(EventStatistics)]),
    "terrace_write_back_start": (c_int32, [c_void_p, POINTER(WriteBack), c_void_p]),
    "terrace_write_back_pause": (c_int32, [c_void_p, c_uint64]),
    "terrace_write_back_resume": (c_int32, [c_void_p, c_uint64]),
    "terrace_write_back_cancel": (c_int32, [c_void_p, c_uint64]),
    "terrace_write_back_read": (c_int32, [c_void_p, c_uint64, POINTER(WriteBackProgress)]),
    "terrace_write_back_results": (c_int32, [c_void_p, c_uint64, POINTER(POINTER(WriteBackResult)), c_void_p]),
    "terrace_cache_checkpoint": (c_int32, [c_void_p, c_int64, c_void_p]),
}
