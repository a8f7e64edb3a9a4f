#include "lab/benches.hpp"

#include "base/random.hpp"
#include "base/waker.hpp"
#include "lab/rounds.hpp"
#include "runtime/shared/block_layout.hpp"
#include "storage/file/file_store.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "storage/io/make_io_engine.hpp"
#include "terrace/system.hpp"
#include "tools/interrupted.hpp"
#include "tools/output.hpp"
#include "tools/replay/engine/interrupt.hpp"
#include "tools/scratch_directory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

namespace terrace::tools {
namespace {

constexpr Bytes block_bytes = KiB * 4;
constexpr std::uint32_t restart_blocks_max = 1U << 28;

[[noreturn]] void fail(const char* what, const std::filesystem::path& path, const ErrorCode& error) {
  throw std::runtime_error{fmt::format("{} {}: {}", what, path.string(), error.message())};
}

class Ground {
 public:
  Ground(const RestartBenchOptions& options, const std::filesystem::path& directory) : options_{options} {
    config_.directory = directory;
    config_.capacity = capacity_for(options.blocks, block_bytes);
    config_.block_bytes = block_bytes;
    config_.fingerprint = file_fingerprint({}, {});  // that of the CacheSystem which opens it
  }

  /// Fills the store with prompts that continue from a block of an earlier prompt, as conversations do.
  void fill(const Interrupt& interrupt) {
    const AlignedBuffer content{count(block_bytes)};  // must outlive the operations under way
    const std::unique_ptr<IoEngine> io = make_engine();
    FileStore store{config_, *io};
    Random random{1};
    std::vector<StoredBlock> blocks;
    const auto add = [&](const StoredBlock* parent) {
      StoredBlock block;
      for (std::size_t at = 0; at < block.key.bytes.size(); at += 8) {
        const std::uint64_t word = random.below(~std::uint64_t{0});
        std::memcpy(block.key.bytes.data() + at, &word, 8);
      }
      if (parent != nullptr) {
        block.parent = parent->key;
        block.depth = parent->depth + 1;
      }
      return block;
    };
    std::vector<StoreWrite> batch;
    std::vector<StoreEvent> events;
    while (blocks.size() < options_.blocks) {
      const std::size_t length = std::min<std::size_t>(options_.prefix_blocks, options_.blocks - blocks.size());
      // One prompt in sixteen starts a new conversation.
      const bool root = blocks.empty() || random.below(16) == 0;
      StoredBlock above = root ? StoredBlock{} : blocks[static_cast<std::size_t>(random.below(blocks.size()))];
      for (std::size_t n = 0; n < length; ++n) {
        above = add(root && n == 0 ? nullptr : &above);
        blocks.push_back(above);
        batch.push_back({.token = 0, .block = above, .from = content.span()});
      }
      store.write(batch);
      batch.clear();
      while (store.in_flight() > 1024 || (blocks.size() == options_.blocks && store.in_flight() > 0)) {
        if (io->in_flight() > 0) io->wait();
        store.poll(events);
        for (const StoreEvent& event : events) {
          if (event.error) fail("cannot write a block to", store_directory(), event.error);
        }
        events.clear();
      }
      if (interrupt.requested()) throw Interrupted{};
    }
    if (const auto closed = store.close(); !closed) fail("cannot write", store_directory(), closed.error());
  }

  /// Reads the catalog from end to end, in pieces of the same size as the store's.
  void read_catalog() {
    constexpr std::uint64_t piece = std::uint64_t{1} << 20;
    constexpr std::uint64_t pieces_under_way = 8;
    const AlignedBuffer buffers{piece * pieces_under_way};  // must outlive the operations under way
    const std::filesystem::path path = store_directory() / "catalog";
    const std::unique_ptr<IoEngine> io = make_engine();
    const Result<OpenedFile> opened = io->files().open(path, Create::no, Direct::yes);
    if (!opened) fail("cannot read", path, opened.error());
    const FileId file = opened->id;
    const Result<Bytes> size = io->files().size(file);
    if (!size) fail("cannot read", path, size.error());
    const std::uint64_t bytes = count(*size);
    std::vector<IoOperation> batch;
    std::vector<IoCompletion> done;
    std::uint64_t next = 0;
    const auto begin = [&](std::uint64_t buffer) {
      if (next >= bytes) return;
      batch.push_back({.kind = IoOperation::Kind::read,
                       .token = buffer,
                       .file = file,
                       .offset = next,
                       .into = buffers.span(buffer * piece, std::min(piece, bytes - next))});
      next += piece;
    };
    for (std::uint64_t buffer = 0; buffer < pieces_under_way; ++buffer) begin(buffer);
    for (;;) {
      io->submit(batch);
      batch.clear();
      if (io->in_flight() == 0) break;
      io->wait();
      done.clear();
      io->poll(done);
      for (const IoCompletion& completion : done) {
        if (completion.error != 0) fail("cannot read", path, errno_code(completion.error));
        begin(completion.token);
      }
    }
    io->files().close(file);
  }

  [[nodiscard]] double open_store() {
    const std::unique_ptr<IoEngine> io = make_engine();
    std::optional<FileStore> opened;
    const double seconds = seconds_of([&] { opened.emplace(config_, *io); });
    expect_all(opened->stat().blocks);
    return seconds;
  }

  [[nodiscard]] double open_system() {
    CacheSystemOptions system;
    system.pools[0].block_bytes = block_bytes;
    system.pools[0].device_blocks = 16;
    system.pools[0].staging_blocks = 16;
    system.storage = FileStorage{.directories = {config_.directory}, .capacity = config_.capacity, .io = options_.io};
    std::optional<CacheSystem> opened;
    const double seconds = seconds_of([&] { opened.emplace(system); });
    expect_all(opened->cache().durability().lost_blocks);
    return seconds;
  }

 private:
  [[nodiscard]] std::filesystem::path store_directory() const { return config_.directory / config_.name; }

  void expect_all(std::uint64_t found) const {
    if (found == options_.blocks) return;
    throw std::runtime_error{fmt::format("{}: {} of {} blocks were found", store_directory().string(), found, options_.blocks)};
  }

  [[nodiscard]] std::unique_ptr<IoEngine> make_engine() {
    return make_io_engine({.choice = options_.io, .threads = {}, .uring = {}}, nobody_);
  }

  const RestartBenchOptions& options_;
  FileStoreConfig config_;
  NullWaker nobody_;
};

}  // namespace

Row bench_restart(const RestartBenchOptions& options) {
  if (options.rounds == 0) throw std::invalid_argument{"--rounds 0: at least 1 is needed"};
  if (options.blocks == 0 || options.blocks > restart_blocks_max) {
    throw std::invalid_argument{fmt::format("--blocks {}: must be from 1 to {}", options.blocks, restart_blocks_max)};
  }
  if (options.prefix_blocks == 0) throw std::invalid_argument{"--prefix-blocks 0: at least 1 is needed"};
  const Interrupt interrupt;
  const ScratchDirectory directory{options.directory};
  Ground ground{options, directory.path()};
  ground.fill(interrupt);

  Figures figures;
  for (unsigned round = 0; round < options.rounds; ++round) {
    const double read = seconds_of([&] { ground.read_catalog(); });
    const double store = ground.open_store();
    const double system = ground.open_system();
    figures.add("read_seconds", read);
    figures.add("store_seconds", store);
    figures.add("stack_seconds", system);
    figures.add("ratio", system / read);
    if (interrupt.requested()) throw Interrupted{};
  }
  const Bytes catalog = Bytes{std::uint64_t{options.blocks} * record_bytes};
  print("medians of {} rounds; {} blocks, a catalog of {}\n", options.rounds, options.blocks, to_string(catalog));
  print("  catalog read       {:>9.4f} s\n  store opened       {:>9.4f} s\n", figures.median("read_seconds"),
        figures.median("store_seconds"));
  print("  cache, with tree   {:>9.4f} s, {:.2f} times the read\n", figures.median("stack_seconds"), figures.median("ratio"));
  Row report{{"blocks", options.blocks},
             {"path_blocks", options.prefix_blocks},
             {"rounds", options.rounds},
             {"catalog_bytes", count(catalog)}};
  figures.add_medians(report);
  return report;
}

}  // namespace terrace::tools
