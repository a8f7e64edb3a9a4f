#include "tests/crash/driver.hpp"

#include "base/check.hpp"
#include "storage/format/catalog_scan.hpp"

#include "tests/storage/blocks.hpp"
#include "tests/storage/holes.hpp"

#include <fmt/format.h>

#include <utility>

namespace terrace::test {

using Kind = StoreEvent::Kind;

FileStoreConfig crash_config(const std::filesystem::path& directory, std::uint32_t blocks) {
  FileStoreConfig config;
  config.directory = directory;
  config.name.clear();
  config.block_bytes = Bytes{block_size};
  if (directory.filename().string().find("striped") != std::string::npos) {
    for (const char* end : {"-1", "-2"}) config.more_directories.push_back(directory.string() + end);
    config.stripe_bytes = Bytes{3 * block_size};
    config.id = 1;
  }
  config.capacity = crash_capacity(config, blocks);
  config.fingerprint = key_of(4711).bytes;
  config.data_file_bytes_max = Bytes{20 * block_size};
  config.growth_piece_bytes = Bytes{6 * block_size};
  return config;
}

std::vector<std::filesystem::path> directories_of(const FileStoreConfig& config) {
  std::vector<std::filesystem::path> all{config.directory};
  all.insert(all.end(), config.more_directories.begin(), config.more_directories.end());
  return all;
}

Bytes crash_capacity(const FileStoreConfig& config, std::uint32_t blocks) {
  return capacity_for(blocks, config.block_bytes, static_cast<std::uint32_t>(config.more_directories.size() + 1));
}

std::uint32_t crash_blocks(const FileStoreConfig& config) {
  return slots_within(config.capacity, count(config.block_bytes), static_cast<std::uint32_t>(config.more_directories.size() + 1));
}

Driver::Driver(Ground ground, std::uint64_t seed) : ground_{std::move(ground)}, random_{seed} {
  set_capacity(crash_blocks(ground_.config));
  open();
}

void Driver::set_capacity(std::uint32_t blocks) {
  ground_.say({Said::capacity, number_as_key(blocks)});
  ground_.config.capacity = crash_capacity(ground_.config, blocks);
}

void Driver::open() {
  store_ = std::make_unique<FileStore>(ground_.config, *ground_.engine);
  resizing_to_ = 0;
  ground_.say({Said::started});
  std::set<BlockKey> there;
  store_->for_each([&](const StoredBlock& block) { there.insert(block.key); });
  for (const StoredBlock& block : Universe::get().blocks()) {
    ground_.say({there.contains(block.key) ? Said::there : Said::absent, block.key});
  }
}

const StoredBlock& Driver::any_block() { return Universe::get().blocks()[random_.below(Universe::get().blocks().size())]; }

void Driver::poll() {
  events_.clear();
  store_->poll(events_);
  for (const StoreEvent& event : events_) {
    switch (event.kind) {
      case Kind::written:
        if (!event.error) ground_.say({Said::written, event.key});
        break;
      case Kind::removed:
      case Kind::evicted: ground_.say({Said::gone, event.key}); break;
      case Kind::read:
        if (!event.error && !holds(buffers_.at(event.token).span(), event.key)) ground_.say({Said::wrong, event.key});
        if (event.error && event.error != Errc::not_found) ground_.say({Said::unreadable, event.key});
        break;
      case Kind::flushed:
        flushing_ = false;
        if (!event.error) ground_.say({Said::flushed});
        break;
    }
    if (event.kind == Kind::written || event.kind == Kind::read) buffers_.erase(event.token);
  }
  if (resizing_to_ == 0 || ground_.engine->in_flight() > 0) return;
  if (store_->stat().capacity_blocks != resizing_to_) return;
  ground_.say({Said::resized, number_as_key(std::exchange(resizing_to_, 0))});
}

void Driver::drain() {
  poll();
  while (store_->in_flight() > 0) {
    ground_.advance();
    poll();
  }
}

void Driver::write() {
  std::vector<StoreWrite> batch;
  for (const StoredBlock& block : Universe::get().prefix_to(random_.below(Universe::get().blocks().size()))) {
    ground_.say({Said::write, block.key});
    const auto buffer = buffers_.emplace(next_token_, content_of(block.key)).first;
    batch.push_back({next_token_++, block, buffer->second.span()});
  }
  store_->write(batch);
  poll();
  ground_.say({Said::called});
}

void Driver::read() {
  std::vector<StoreRead> batch;
  for (std::uint64_t n = random_.between(1, 4); n > 0; --n) {
    const auto buffer = buffers_.emplace(next_token_, AlignedBuffer{block_size}).first;
    batch.push_back({next_token_++, any_block().key, buffer->second.span()});
  }
  store_->read(batch);
}

void Driver::remove() {
  const BlockKey key = any_block().key;
  ground_.say({Said::remove, key});
  store_->remove({&key, 1}, next_token_++);
  poll();
  ground_.say({Said::called});
}

void Driver::close() {
  ground_.say({Said::flushing});
  const bool failed = store_->close().has_error();
  if (!failed) ground_.say({Said::flushed});
  poll();
}

void Driver::flush() {
  while (flushing_) {
    ground_.advance();
    poll();
  }
  ground_.say({Said::flushing});
  if (!ground_.system_lasts || random_.chance(0.5)) {
    flushing_ = true;
    store_->flush(next_token_++);
    return;
  }
  drain();
  while (store_->unwritten_pages() > 0) {
    ground_.advance();
    poll();
  }
  ground_.say({Said::flushed});
}

void Driver::resize() {
  const auto blocks = static_cast<std::uint32_t>(random_.between(18, 75));
  ground_.say({Said::resize, number_as_key(blocks)});
  resizing_to_ = blocks;
  TERRACE_CHECK(store_->resize(Blocks{blocks}).has_value());
  poll();
  ground_.say({Said::called});
  // An owner that resizes a store may or may not configure the new size for the next start.
  if (random_.chance(0.6)) set_capacity(blocks);
  // Half of the resizes are finished before the next operation.
  if (random_.chance(0.5)) return;
  while (resizing_to_ != 0 && ground_.engine->in_flight() > 0) {
    ground_.advance();
    poll();
  }
}

void Driver::restart() {
  close();
  store_.reset();
  if (random_.chance(0.4)) TERRACE_CHECK(punch_free_slots(ground_.config.directory, *ground_.engine));
  if (random_.chance(0.4)) set_capacity(static_cast<std::uint32_t>(random_.between(18, 75)));
  open();
}

void Driver::step() {
  const std::uint64_t die = random_.below(100);
  if (die < 45) return write();
  if (die < 63) return read();
  if (die < 70) return remove();
  if (die < 73) {
    const BlockKey key = any_block().key;
    return store_->touch({&key, 1});
  }
  if (die < 83) {
    for (std::uint64_t n = random_.between(1, 5); n > 0; --n) {
      ground_.advance();
      poll();
    }
    return;
  }
  if (die < 88) return drain();
  if (die < 92) return flush();
  if (die < 98) return resize();
  restart();
}

std::set<std::string> names_of_store(const Superblock& superblock, std::uint32_t directory) {
  const StoreLayout layout = layout_of(superblock);
  std::set<std::string> names{"lock"};
  if (directory == 0) names.insert("catalog");
  if (layout.directories > 1) names.insert("stripe");
  for (std::uint32_t n = 1; directory == 0 && n < layout.directories; ++n) names.insert(fmt::format("stripe-{}", n));
  for (std::uint32_t n = directory; n < layout.data_files(); n += layout.directories) {
    names.insert(fmt::format("blocks-{:04}", n / layout.directories));
  }
  return names;
}

Restarted restart_and_check(const Driver::Ground& ground, Promises promises) {
  Restarted found;
  const auto expect = [&](bool fine, const std::string& otherwise) {
    if (!fine) found.objections.push_back(otherwise);
  };
  FileStore store{ground.config, *ground.engine};
  ground.opened();

  const StoreStat before = store.stat();
  expect(before.blocks + before.free + before.quarantined == before.capacity_blocks,
         "blocks, free slots and those that close do not make up the capacity");
  const std::uint32_t wanted = crash_blocks(ground.config);
  expect(before.wanted_blocks == wanted, "not of the capacity that was asked for");
  expect(before.blocks <= wanted && before.free <= wanted - before.blocks, "more slots may be used than were asked for");
  expect(before.writing == 0, "a slot is taken and nobody has it");
  expect(before.orphans == 0, "a block without its parent");
  store.check_invariants();
  std::set<BlockKey> listed;
  store.for_each([&](const StoredBlock& block) {
    const StoredBlock* known = Universe::get().find(block.key);
    expect(known != nullptr && *known == block, "a block that nobody wrote");
    expect(block.depth == 0 || listed.contains(block.parent), "a child before its parent");
    listed.insert(block.key);
  });
  expect(listed.size() == before.blocks, "more or fewer blocks are listed than counted");

  std::vector<StoreEvent> events;
  // The start gives back the space of slots that a smaller store left closed, and takes the space of slots that become open.
  StoreStat settled = before;
  for (int n = 0; n < 1000 && (settled.capacity_blocks != wanted || settled.quarantined > 0); ++n) {
    ground.advance();
    store.poll(events);
    settled = store.stat();
  }
  expect(settled.capacity_blocks == wanted && settled.growth_stopped == 0, "it does not come to its size");
  expect(settled.quarantined == 0, "a slot is taken and nobody has it");
  expect(settled.blocks == before.blocks && events.empty(), "a block went by itself");
  store.check_invariants();
  ground.settled();

  const auto drain = [&] {
    events.clear();
    store.poll(events);
    while (store.in_flight() > 0) {
      ground.advance();
      store.poll(events);
    }
  };
  AlignedBuffer buffer{block_size};
  for (const BlockKey& key : listed) {
    const StoreRead read{1, key, buffer.span()};
    store.read({&read, 1});
    drain();
    for (const StoreEvent& event : events) {
      if (event.kind != Kind::read) continue;
      expect(!event.error || event.error == Errc::corrupt || event.error == Errc::not_found, "a read failed otherwise");
      found.corrupt += event.error == Errc::corrupt;
      if (event.error) continue;
      expect(holds(buffer.span(), key), "a wrong block was served");
      found.served.insert(key);
    }
  }
  // A parent that turned out to be corrupt took its children with it, whether they were read before it or not.
  std::erase_if(found.served, [&](const BlockKey& key) { return !store.location(key).has_value(); });
  found.unserved = listed.size() - found.served.size();
  promises.check(found.served);
  found.objections.insert(found.objections.end(), promises.broken().begin(), promises.broken().end());

  const StoredBlock fresh = root_block(100'000);
  const AlignedBuffer content = content_of(fresh.key);
  const StoreWrite write{2, fresh, content.span()};
  store.write({&write, 1});
  drain();
  const StoreRead read{3, fresh.key, buffer.span()};
  store.read({&read, 1});
  drain();
  expect(events.size() == 1 && !events[0].error && holds(buffer.span(), fresh.key), "a new block is not served");
  store.remove({&fresh.key, 1}, 4);
  drain();
  store.check_invariants();
  expect(!store.close().has_error(), "the store could not be closed");
  found.served.clear();
  store.for_each([&](const StoredBlock& block) { found.served.insert(block.key); });
  return found;
}

}  // namespace terrace::test
