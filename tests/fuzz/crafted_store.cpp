#include "tests/fuzz/fuzzed.hpp"

#include "storage/file/file_store.hpp"
#include "storage/io/little_endian.hpp"
#include "storage/offline/store_reader.hpp"
#include "tests/simulated/simulated_io.hpp"
#include "tests/storage/blocks.hpp"
#include "tests/storage/holes.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;
using Kind = StoreEvent::Kind;

constexpr std::uint32_t good_slots = 40;
constexpr std::size_t change_bytes = 11;

void expect(bool fine, const char* what) {
  if (fine) return;
  std::fprintf(stderr, "crafted store: %s\n", what);
  std::abort();
}

FileStoreConfig config_of(std::uint32_t slots) {
  FileStoreConfig config;
  config.directory = "/store";
  config.name.clear();
  config.block_bytes = Bytes{block_size};
  config.capacity = capacity_for(slots, config.block_bytes);
  config.fingerprint = key_of(4711).bytes;
  return config;
}

/// Completes everything that is under way, and everything that follows from it.
std::vector<StoreEvent> settle(SimulatedIo& io, FileStore& store) {
  std::vector<StoreEvent> events;
  do {
    while (io.queued() > 0) io.step(0);
    store.poll(events);
  } while (io.queued() > 0 || store.in_flight() > 0);
  return events;
}

void write(SimulatedIo& io, FileStore& store, const std::vector<StoredBlock>& blocks) {
  std::vector<AlignedBuffer> buffers;
  std::vector<StoreWrite> batch;
  for (const StoredBlock& block : blocks) {
    buffers.push_back(content_of(block.key));
    batch.push_back({1, block, buffers.back().span()});
  }
  store.write(batch);
  (void)settle(io, store);
}

SimulatedFiles make_good_disk() {
  SimulatedIo io;
  {
    FileStore store{config_of(good_slots), io};
    write(io, store, prefix_of(1, 12));
    write(io, store, prefix_of(100, 5));
    write(io, store, {child_of(prefix_of(1, 4).back(), 200)});
  }
  return io.files().left_by(SimulatedFiles::End::killed);
}

/// The files and the configuration of the good store, after the changes of the input.
class Crafted {
 public:
  explicit Crafted(std::span<const std::byte> input) {
    static const SimulatedFiles good = make_good_disk();
    disk_ = good.left_by(SimulatedFiles::End::killed);
    for (; input.size() >= change_bytes; input = input.subspan(change_bytes)) apply(input.first(change_bytes));
    make_sums();
    resize();
  }

  [[nodiscard]] SimulatedFiles disk() const { return disk_.left_by(SimulatedFiles::End::killed); }
  [[nodiscard]] FileStoreConfig config() const { return config_of(slots_); }
  [[nodiscard]] std::uint32_t slots() const { return slots_; }

 private:
  [[nodiscard]] std::span<std::byte> page() { return disk_.content("/store/catalog").first(catalog_page_bytes); }
  [[nodiscard]] std::span<std::byte> copy() { return disk_.content("/store/lock").subspan(superblock_copy_at, sector_bytes); }
  [[nodiscard]] std::span<std::byte> record(unsigned slot) {
    return disk_.content("/store/catalog").subspan(catalog_page_bytes + slot % good_slots * record_bytes, record_bytes);
  }

  void apply(std::span<const std::byte> change) {
    const auto a = std::to_integer<unsigned>(change[1]);
    const auto b = std::to_integer<unsigned>(change[2]);
    const std::uint64_t number = load_le64(change.data() + 3);
    switch (static_cast<Change>(std::to_integer<unsigned>(change[0]) % 7)) {
      case Change::superblock_word: store_le64(page().data() + 8 * (1 + a % 12), number); break;
      case Change::copy_word: store_le64(copy().data() + 8 * (1 + a % 12), number); break;
      case Change::record_word: store_le64(record(a).data() + 8 * (b % 15), number); break;
      case Change::record_moved:
        std::ranges::copy(record(a), record(b).begin());
        if (number % 2 == 1) store_le64(record(b).data() + 112, b % good_slots);
        break;
      case Change::overwritten:
        for (const unsigned which : {0U, 1U}) {
          if (a % 3 + which == 1) continue;
          std::ranges::fill(which == 0 ? page() : copy(), static_cast<std::byte>(b));
          kept_.insert(which);
        }
        break;
      case Change::sum_kept: kept_.insert(a % 3 < 2 ? a % 3 : 2 + b % good_slots); break;
      case Change::size:
        if (a % 4 == 3) {
          slots_ = static_cast<std::uint32_t>(1 + number % 100);
        } else {
          // A start does not change the length of a lock file; it truncates the other files.
          sizes_[a % 4] = number % (a % 4 == 2 ? 2 * lock_file_bytes : std::size_t{1} << 20);
        }
        break;
    }
  }

  /// A file of zeros has no checksum to correct.
  void make_sums() {
    const auto make = [&](unsigned which, std::span<std::byte> bytes) {
      if (kept_.contains(which) || all_zero(bytes)) return;
      store_le64(bytes.data() + bytes.size() - 8, plain_checksum(bytes.first(bytes.size() - 8)));
    };
    make(0, page().first(sector_bytes));
    make(1, copy());
    for (unsigned slot = 0; slot < good_slots; ++slot) make(2 + slot, record(slot));
  }

  void resize() {
    constexpr std::array names{"/store/catalog", "/store/blocks-0000", "/store/lock"};
    for (const auto& [which, bytes] : sizes_) {
      const FileId file = disk_.open(names[which], Create::no, Direct::no)->id;
      (void)disk_.resize(file, Bytes{bytes});
      disk_.close(file);
    }
  }

  SimulatedFiles disk_;
  std::uint32_t slots_ = good_slots;
  std::set<unsigned> kept_;
  std::map<unsigned, std::uint64_t> sizes_;
};

/// A directory /store whose files are memory, with the content of a simulated disk.
class MemoryCalls final : public PosixCalls {
 public:
  explicit MemoryCalls(SimulatedFiles& disk) : disk_{disk} {}
  int open(const char* path, int, unsigned) override {
    if (!disk_.exists(path)) {
      errno = ENOENT;
      return -1;
    }
    const int fd = ::memfd_create("crafted", MFD_CLOEXEC);
    const std::span<const std::byte> bytes = disk_.content(path);
    expect(fd >= 0 && ::pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "no memory file");
    return fd;
  }

 private:
  SimulatedFiles& disk_;
};

std::set<BlockKey> keys_of(const std::vector<CatalogRecord>& records) {
  std::set<BlockKey> keys;
  for (const CatalogRecord& record : records) keys.insert(record.block.key);
  return keys;
}

/// The blocks that a reader expects a store to serve. Nothing if it finds no store.
struct Look {
  Superblock superblock;
  std::set<BlockKey> blocks;
};
std::optional<Look> look(SimulatedFiles disk) {
  MemoryCalls calls{disk};
  try {
    const StoreReader reader{"/store", calls};
    const CatalogScan& catalog = reader.catalog();
    expect(catalog.blocks().size() + catalog.orphans().size() + catalog.superseded().size() + catalog.damaged().size() +
                   catalog.free_slots() ==
               reader.layout().slots,
           "the reader's counts do not add up");
    const AlignedBuffer scratch{block_size};
    for (const auto* records : {&catalog.blocks(), &catalog.orphans(), &catalog.superseded()}) {
      for (const CatalogRecord& record : *records) {
        (void)reader.location(record.slot);
        if (reader.verify(record, scratch.span()).verdict != StoreReader::Verdict::verified) continue;
        expect(reader.layout().block_bytes == block_size, "a block of another size was called right");
        expect(holds(scratch.span(), record.block.key), "a wrong block was called right");
      }
    }
    return Look{reader.superblock(), keys_of(catalog.blocks())};
  } catch (const std::system_error&) {
    return std::nullopt;
  }
}

/// Starts the store and lets it serve. Returns the blocks that it listed, or nothing if the start was refused.
std::optional<std::set<BlockKey>> serve(SimulatedIo& io, const FileStoreConfig& config, std::uint32_t slots) {
  std::unique_ptr<FileStore> store;
  const Bytes before = io.files().used_bytes();
  try {
    store = std::make_unique<FileStore>(config, io);
  } catch (const std::system_error&) {
    expect(io.files().used_bytes() <= before + Bytes{lock_file_bytes}, "a refused start took room");
    return std::nullopt;
  }
  std::set<BlockKey> listed;
  store->for_each([&](const StoredBlock& block) { listed.insert(block.key); });
  (void)settle(io, *store);
  store->check_invariants();
  // The data, and a catalog of as many slots as the store may keep.
  const Bytes kept_records{32 * std::uint64_t{slots} * record_bytes};
  expect(io.files().used_bytes() <= config.capacity + kept_records, "more than was configured");
  expect(store->stat().capacity_blocks <= slots, "more slots than were configured");
  AlignedBuffer buffer{block_size};
  for (const BlockKey& key : listed) {
    const StoreRead read{1, key, buffer.span()};
    store->read({&read, 1});
    for (const StoreEvent& event : settle(io, *store)) {
      if (event.kind == Kind::read && !event.error) expect(holds(buffer.span(), key), "a wrong block was served");
    }
  }
  store->check_invariants();
  write(io, *store, prefix_of(1000, 3));
  write(io, *store, prefix_of(1, 6));
  store->check_invariants();
  store->flush(2);
  (void)settle(io, *store);
  expect(store->close().has_value(), "it could not be closed");
  return listed;
}

}  // namespace

void run_crafted_store(std::string_view input) {
  const Crafted crafted{std::as_bytes(std::span{input})};
  const std::optional<Look> would = look(crafted.disk());
  SimulatedIo io{crafted.disk()};
  const auto does = serve(io, crafted.config(), crafted.slots());
  const bool same_size = would && would->superblock.slots == crafted.slots() && would->superblock.open_slots == 0;
  if (does && same_size) expect(*does == would->blocks, "the reader and the store do not agree");
  if (does) expect(serve(io, crafted.config(), crafted.slots()).has_value(), "it does not start a second time");

  SimulatedIo other{crafted.disk()};
  if (!punch_free_slots("/store", other)) return;
  const auto sparse = serve(other, crafted.config(), crafted.slots());
  if (sparse && same_size) expect(*sparse == would->blocks, "holes in free slots cost a block");
}

}  // namespace terrace::test
