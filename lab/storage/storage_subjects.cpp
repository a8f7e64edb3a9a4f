#include "lab/storage/storage_subjects.hpp"

#include "tools/numbered_key.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace terrace::tools {
namespace {

std::unique_ptr<IoEngine> make_engine(const StorageGround& ground) {
  IoOptions options;
  options.choice = ground.io;
  auto engine = make_io_engine(options, ground.waker);
  engine->register_memory(ground.buffers.span());
  return engine;
}

}  // namespace

AlignedBuffer noise(std::uint64_t bytes) {
  AlignedBuffer buffer{bytes};
  std::uint64_t word = 1;
  for (std::uint64_t at = 0; at < buffer.size(); at += sizeof word) {
    word = word * 6364136223846793005ULL + 1442695040888963407ULL;
    std::memcpy(buffer.data() + at, &word, sizeof word);
  }
  return buffer;
}

std::string_view to_string(StorageWay way) { return way == StorageWay::read ? "read" : "write"; }

StorageDirectories::StorageDirectories(const StorageBenchOptions& options) {
  directories_.push_back(std::make_unique<ScratchDirectory>(options.directory));
  for (const auto& stripe : options.stripes) directories_.push_back(std::make_unique<ScratchDirectory>(stripe, "--stripe"));
}

std::vector<std::filesystem::path> StorageDirectories::paths() const {
  std::vector<std::filesystem::path> paths;
  paths.reserve(directories_.size());
  for (const auto& directory : directories_) paths.push_back(directory->path());
  return paths;
}

StorageGround make_ground(const StorageBenchOptions& options, const StorageDirectories& directories, Bytes block_bytes,
                          const Interrupt& interrupt, EventFdWaker& waker) {
  const unsigned depth_max = std::ranges::max(options.depths);
  return {.directories = directories.paths(),
          .block_bytes = block_bytes,
          .blocks = static_cast<std::uint32_t>(options.size / block_bytes),
          .depth_max = depth_max,
          .io = options.io,
          .interrupt = interrupt,
          .waker = waker,
          .buffers = noise(count(block_bytes) * depth_max)};
}

StoreSubject::StoreSubject(StorageGround& ground) : ground_{ground}, io_{make_engine(ground)} {
  FileStoreConfig config;
  const auto directories = static_cast<std::uint32_t>(ground.directories.size());
  config.directory = ground.directories.front();
  for (std::uint32_t n = 1; n < directories; ++n) config.more_directories.push_back(ground.directories[n]);
  config.block_bytes = ground.block_bytes;
  config.capacity = capacity_for(ground.blocks, ground.block_bytes, directories);
  store_ = std::make_unique<FileStore>(config, *io_);
  std::vector<std::uint32_t> all(ground.blocks);
  for (std::uint32_t n = 0; n < ground.blocks; ++n) all[n] = n;
  move(StorageWay::write, std::min(16U, ground.depth_max), all);
}

StoreSubject::~StoreSubject() {
  store_.reset();
  io_->forget_memory(ground_.buffers.span());
}

std::vector<std::pair<StorageFiles::Place, BlockKey>> StoreSubject::stored() {
  std::vector<std::pair<StorageFiles::Place, BlockKey>> blocks;
  store_->for_each([&](const StoredBlock& block) {
    const FileStore::Location at = *store_->location(block.key);
    auto file = std::ranges::find(files_, at.file);
    if (file == files_.end()) file = files_.insert(files_.end(), at.file);
    blocks.push_back({{static_cast<std::uint32_t>(file - files_.begin()), at.offset}, block.key});
  });
  if (blocks.size() != ground_.blocks) throw std::runtime_error{"the store has lost blocks"};
  std::ranges::sort(blocks);
  return blocks;
}

void StoreSubject::prepare(StorageWay way) {
  if (way == StorageWay::write) return;
  keys_.clear();
  for (const auto& [place, key] : stored()) keys_.push_back(key);
}

StorageFiles StoreSubject::files() {
  StorageFiles files;
  for (const auto& [place, key] : stored()) files.places.push_back(place);
  files.to_read = files_;
  for (const std::filesystem::path& directory : ground_.directories) files.to_write.push_back(directory / "plain");
  return files;
}

void StoreSubject::start(StorageWay way, std::uint64_t buffer, std::uint32_t block) {
  if (way == StorageWay::read) {
    reads_.push_back({buffer, keys_[block], ground_.buffer(buffer)});
    return;
  }
  StoreWrite write;
  write.token = buffer;
  write.block.key = numbered_key(++next_key_);
  write.from = ground_.buffer(buffer);
  writes_.push_back(write);
}

void StoreSubject::move(StorageWay way, unsigned depth, std::span<const std::uint32_t> order) {
  const auto expected = way == StorageWay::read ? StoreEvent::Kind::read : StoreEvent::Kind::written;
  const auto submit = [&] {
    if (!reads_.empty()) store_->read(reads_);
    if (!writes_.empty()) store_->write(writes_);
    reads_.clear();
    writes_.clear();
  };
  std::size_t begun = 0;
  std::size_t under_way = 0;
  for (; begun < std::min<std::size_t>(depth, order.size()); ++begun, ++under_way) start(way, begun, order[begun]);
  submit();
  ErrorCode failed;
  while (under_way > 0) {
    ground_.waker.acknowledge();
    events_.clear();
    store_->poll(events_);
    std::size_t ended = 0;
    for (const StoreEvent& event : events_) {
      if (event.kind != expected) continue;  // it is an `evicted` event
      ++ended;
      if (event.error) failed = event.error;
      --under_way;
      if (begun == order.size() || failed || ground_.interrupt.requested()) continue;
      start(way, event.token, order[begun++]);
      ++under_way;
    }
    submit();
    if (ended == 0) ground_.waker.wait(-1);
  }
  if (failed) throw std::system_error{failed, "the store"};
}

EngineSubject::EngineSubject(StorageGround& ground, StorageFiles files)
    : ground_{ground}, io_{make_engine(ground)}, files_{std::move(files)} {
  const auto open = [this](const std::filesystem::path& file) {
    const Result<OpenedFile> opened = io_->files().open(file, Create::no, Direct::yes);
    if (!opened) throw std::system_error{opened.error(), file.string()};
    return opened->id;
  };
  std::ranges::transform(files_.to_read, std::back_inserter(to_read_), open);
  std::ranges::transform(files_.to_write, std::back_inserter(to_write_), open);
}

EngineSubject::~EngineSubject() { io_->forget_memory(ground_.buffers.span()); }

void EngineSubject::move(StorageWay way, unsigned depth, std::span<const std::uint32_t> order) {
  const auto start = [&](std::uint64_t buffer, std::uint32_t block) {
    IoOperation operation;
    operation.token = buffer;
    const StorageFiles::Place place = files_.place(way, block, ground_.block_bytes);
    operation.file = (way == StorageWay::read ? to_read_ : to_write_)[place.file];
    operation.offset = place.offset;
    operation.kind = way == StorageWay::read ? IoOperation::Kind::read : IoOperation::Kind::write;
    if (way == StorageWay::read) {
      operation.into = ground_.buffer(buffer);
    } else {
      operation.from = ground_.buffer(buffer);
    }
    batch_.push_back(operation);
  };
  std::size_t begun = 0;
  int error = 0;
  for (; begun < std::min<std::size_t>(depth, order.size()); ++begun) start(begun, order[begun]);
  io_->submit(batch_);
  batch_.clear();
  while (io_->in_flight() > 0) {
    ground_.waker.acknowledge();
    completed_.clear();
    if (io_->poll(completed_) == 0) {
      ground_.waker.wait(-1);
      continue;
    }
    for (const IoCompletion& completion : completed_) {
      if (completion.error != 0) error = completion.error;
      if (begun == order.size() || error != 0 || ground_.interrupt.requested()) continue;
      start(completion.token, order[begun++]);
    }
    io_->submit(batch_);
    batch_.clear();
  }
  if (error != 0) throw std::system_error{error, std::generic_category(), "the engine"};
}

}  // namespace terrace::tools
