#include "tools/bench/storage_subjects.hpp"

#include <algorithm>
#include <stdexcept>
#include <system_error>

namespace terrace::tools {
namespace {

std::unique_ptr<IoEngine> make_engine(const StorageGround& ground) {
  IoOptions options;
  options.choice = ground.io;
  auto engine = make_io_engine(options, ground.waker);
  engine->register_memory(ground.buffers.span());
  return engine;
}

BlockKey numbered_key(std::uint64_t n) {
  BlockKey key;
  std::memcpy(key.bytes.data(), &n, sizeof n);
  return key;
}

}  // namespace

std::string_view to_string(StorageWay way) { return way == StorageWay::read ? "read" : "write"; }

StoreSubject::StoreSubject(StorageGround& ground) : ground_{ground}, io_{make_engine(ground)} {
  FileStoreConfig config;
  config.directory = ground.directory / "store";
  config.block_bytes = ground.block_bytes;
  config.capacity = capacity_for(ground.blocks, ground.block_bytes);
  store_ = std::make_unique<FileStore>(config, *io_);
  std::vector<std::uint32_t> all(ground.blocks);
  for (std::uint32_t n = 0; n < ground.blocks; ++n) all[n] = n;
  move(StorageWay::write, std::min(16U, ground.depth_max), all);
}

StoreSubject::~StoreSubject() {
  store_.reset();
  io_->forget_memory(ground_.buffers.span());
}

void StoreSubject::prepare(StorageWay way) {
  if (way == StorageWay::write) return;
  keys_.clear();
  store_->for_each([&](const StoredBlock& block) { keys_.push_back(block.key); });
  if (keys_.empty()) throw std::runtime_error{"the store has no blocks"};
}

void StoreSubject::start(StorageWay way, std::uint64_t buffer, std::uint32_t block) {
  if (way == StorageWay::read) {
    reads_.push_back({buffer, keys_[block % keys_.size()], ground_.buffer(buffer)});
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
      if (event.kind != expected) continue;  // evicted
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

EngineSubject::EngineSubject(StorageGround& ground, const std::filesystem::path& file)
    : ground_{ground}, io_{make_engine(ground)} {
  const Result<OpenedFile> opened = io_->files().open(file, Create::no, Direct::yes);
  if (!opened) throw std::system_error{opened.error(), file.string()};
  file_ = opened->id;
}

EngineSubject::~EngineSubject() { io_->forget_memory(ground_.buffers.span()); }

void EngineSubject::move(StorageWay way, unsigned depth, std::span<const std::uint32_t> order) {
  const auto start = [&](std::uint64_t buffer, std::uint32_t block) {
    IoOperation operation;
    operation.token = buffer;
    operation.file = file_;
    operation.offset = block * count(ground_.block_bytes);
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
