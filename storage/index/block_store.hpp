#pragma once

#include "base/block_key.hpp"
#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/strong_id.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// What a store remembers of a block beside its bytes.
struct StoredBlock {
  BlockKey key;
  BlockKey parent;          ///< all zero where depth is 0
  std::uint32_t depth = 0;  ///< blocks before it on its path
  /// The first eight bytes of the path's root key: model, geometry, adapter, tenant and epoch in one number, for statistics
  /// and jobs; never trusted for identity.
  TenantId tenant;
  /// Of the block's layers. A store takes it as it is.
  GroupId group = {};

  friend bool operator==(const StoredBlock&, const StoredBlock&) = default;
};

struct StoreRead {
  std::uint64_t token = 0;
  BlockKey key;
  /// Exactly one block; stays valid and is nobody else's until the event.
  std::span<std::byte> into;
};

struct StoreWrite {
  std::uint64_t token = 0;
  StoredBlock block;
  /// Exactly one block; stays valid and unchanged until the event.
  std::span<const std::byte> from;
};

struct StoreEvent {
  enum class Kind : unsigned char {
    read,     ///< of a StoreRead. Fails: not_found, corrupt, io_failed. After a failure the buffer's content means nothing.
    written,  ///< of a StoreWrite. No error also where it was there already. Fails: parent_missing, full, refused, io_failed.
    removed,  ///< of a remove(), one per key that was there, and one per descendant that had to go with it (token 0)
    evicted,  ///< the store gave the block up by itself, to make room or because it did not verify (token 0)
    flushed,  ///< of a flush(); without a key. Fails: io_failed, or the device's errno
  };

  Kind kind = Kind::read;
  std::uint64_t token = 0;
  BlockKey key;
  ErrorCode error;
  /// removed, evicted: the token of the StoreWrite that stored the block, so that its owner need not look the key up.
  std::uint64_t write_token = 0;
};

struct StoreStat {
  std::uint64_t capacity_blocks = 0;  ///< slots that may be used, or whose room has not been given back yet
  std::uint64_t wanted_blocks = 0;    ///< what capacity_blocks comes to when resizing is done: as the last resize() said, or as
                                      ///< far as it came
  std::uint64_t blocks = 0;           ///< stored and readable
  std::uint64_t writing = 0;          ///< being written, or waiting for their parent
  std::uint64_t quarantined = 0;      ///< slots that must not be used: an operation may touch them, bad sectors, or closing
  std::uint64_t free = 0;             ///< free + blocks + writing + quarantined = capacity_blocks
  std::uint64_t orphans = 0;          ///< readable blocks whose parent is not readable; always 0, counted afresh by each call
  std::uint64_t evicted = 0;          ///< since construction, as are the rest
  std::uint64_t corrupt = 0;
  std::uint64_t io_errors = 0;
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  Bytes read{};
  Bytes written{};
  std::uint64_t growth_stopped = 0;    ///< times that the store could not grow to what was wanted, for want of room, or an error
  ErrorCode growth_error;              ///< why it was, the last time
  std::uint64_t room_kept = 0;         ///< slots closed whose room the file system did not take back
  std::uint64_t floor_stopped = 0;     ///< of those times, the ones at which the free space would have gone below the floor
  std::uint32_t directories = 1;       ///< that it is striped over
  std::uint32_t directories_lost = 0;  ///< of those, out of use until the next start; their slots are not in capacity_blocks
};

/// Keeps blocks by key, bounded by a capacity, closed under parent: every readable block's ancestors are readable.
///
/// - A write is accepted where its parent is stored or is itself being written (submitted before); it becomes readable after
///   its parent, and fails with parent_missing if the parent's write fails.
/// - When full, the store gives up leaves, least recently used first (read, written or touched), never one that an operation
///   under way names; a block whose children are stored is no leaf. Where nothing may go, a write fails with `full`.
/// - Every read is verified against the key it was asked for; what does not verify is not served, counted, and given up
///   together with its descendants (`evicted` events).
/// - Several operations may name one key; a read of a block being written is not_found.
///
/// Threads: all calls from one thread, the control plane's; none blocks. Every read, write and flush ends in exactly one event.
class BlockStore {
 public:
  virtual ~BlockStore() = default;

  virtual void read(std::span<const StoreRead> batch) = 0;
  virtual void write(std::span<const StoreWrite> batch) = 0;
  /// Gives up the blocks and all their descendants; one that is being written is given up when its write has ended. Keys that
  /// are not there are ignored.
  virtual void remove(std::span<const BlockKey> keys, std::uint64_t token) = 0;
  /// Whether a read of the block would find it: it is readable, as far as the index knows. No I/O, no use of the block.
  [[nodiscard]] virtual bool contains(const BlockKey& key) const = 0;
  /// These were used in a tier above: they count as recently used here. Keys that are not there are ignored.
  virtual void touch(std::span<const BlockKey> keys) = 0;

  /// One `flushed` event. When it comes without an error, what polled events had told before this call survives a power failure,
  /// as far as the store can survive anything: blocks that were `written` are there, unless they were given up since, and blocks
  /// that were `removed` or `evicted` do not come back. All flush() calls while one is under way share the next one. After an
  /// error nothing is known of what was written since the last flush that succeeded.
  virtual void flush(std::uint64_t token) = 0;

  /// Shown some of the blocks; whose token it sets has that as the write_token of its events from now on.
  using Adopt = std::function<void(std::span<const StoredBlock> blocks, std::span<std::optional<std::uint64_t>> tokens)>;
  /// Shows every readable block, some at a time, in for_each()'s order: how the prefix tree comes back after a restart, and who
  /// brings it back knows what an earlier process wrote.
  virtual void adopt_all(const Adopt& adopt) = 0;

  /// So many blocks from now on. Larger: the room is taken in the background, piece by piece, and each piece is used as soon as
  /// it is there. Smaller: blocks are given up as by a full store, with their `evicted` events, until the rest fits; the polls
  /// that follow do it, and what operations hold goes when they end. stat() says how far it has come. Another resize() takes this
  /// one's place. Fails, and changes nothing: invalid_argument (0, or a store of a fixed size), never_fits (more than can be
  /// counted).
  [[nodiscard]] virtual Result<void> resize(std::uint32_t /*blocks*/) { return Errc::invalid_argument; }

  /// Appends the events that have arrived; returns how many.
  virtual std::size_t poll(std::vector<StoreEvent>& out) = 0;
  /// Operations whose event has not been polled yet.
  [[nodiscard]] virtual std::size_t in_flight() const = 0;

  /// When poll() has something to do by itself, where that depends on time; `never`: it does not.
  [[nodiscard]] virtual TimePoint next_deadline() const { return never; }

  [[nodiscard]] virtual Bytes block_bytes() const = 0;
  [[nodiscard]] virtual StoreStat stat() const = 0;
  /// Every readable block, depth first: what hangs on a block follows it, before anything else does.
  virtual void for_each(const std::function<void(const StoredBlock&)>& visit) const = 0;
  virtual void check_invariants() const = 0;
};

}  // namespace terrace
