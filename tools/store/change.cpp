#include "storage/file/file_store.hpp"
#include "storage/io/threaded_io.hpp"
#include "tools/output.hpp"
#include "tools/store/command_line.hpp"
#include "tools/store/opening.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <stdexcept>
#include <system_error>
#include <utility>

namespace terrace::tools {
namespace {

namespace json = boost::json;

FileStoreConfig config_of(const StoreReader& reader) {
  FileStoreConfig config;
  config.directory = reader.directory();
  config.name.clear();
  config.block_bytes = Bytes{reader.layout().block_bytes};
  // less than all slots if the store was made smaller; it keeps this size
  const std::uint64_t open = reader.superblock().open_slots;
  config.more_directories = reader.more_directories();
  config.capacity = capacity_for(open > 0 ? static_cast<std::uint32_t>(open) : reader.layout().slots, config.block_bytes,
                                 reader.layout().directories);
  config.fingerprint = reader.superblock().fingerprint;
  return config;
}

/// The user must act if the store has an owner or is no store. All other errors are failures of the program.
std::unique_ptr<FileStore> open_for_changes(const StoreReader& reader, ThreadedIo& io) {
  try {
    return std::make_unique<FileStore>(config_of(reader), io);
  } catch (const std::system_error& error) {
    const auto is = [&](Errc code) { return error.code() == static_cast<std::error_code>(make_error_code(code)); };
    if (is(Errc::in_use) || is(Errc::incompatible)) throw UsageError{sentence_of(error)};
    throw;
  }
}

void check(const StoreArguments& arguments) {
  if (arguments.all && !arguments.keys.empty()) throw UsageError{"give keys or --all, not both"};
  if (!arguments.all && arguments.keys.empty()) throw UsageError{"nothing to remove: give keys, or --all"};
  if (arguments.all && !arguments.yes) throw UsageError{"--all removes every block: confirm it with --yes"};
  if (!arguments.all && arguments.yes) throw UsageError{"--yes: only with --all"};
}

}  // namespace

ExitStatus remove_blocks(const StoreArguments& arguments) {
  check(arguments);
  const std::unique_ptr<StoreReader> reader = open_store(arguments.directory);
  std::vector<BlockKey> keys;
  keys.reserve(arguments.keys.size());
  for (const std::string& digits : arguments.keys) keys.push_back(find_block(*reader, digits).block.key);
  for (const CatalogRecord& record : reader->catalog().blocks()) {
    if (arguments.all) keys.push_back(record.block.key);
  }

  NullWaker nobody;
  ThreadedIo io{{.threads = 2}, nobody};
  const auto store = open_for_changes(*reader, io);
  const std::uint64_t before = store->stat().blocks;
  store->remove(keys, 0);
  std::vector<StoreEvent> events;
  store->poll(events);
  const std::uint64_t left = store->stat().blocks;
  const Result<void> closed = store->close();
  if (!closed)
    throw std::runtime_error{fmt::format("cannot write {}: {}", arguments.directory.string(), closed.error().message())};

  json::array removed;
  for (const StoreEvent& event : events) {
    if (event.kind == StoreEvent::Kind::removed) removed.push_back(json::string{to_hex(event.key)});
  }
  if (arguments.json) print_json({{"removed", std::move(removed)}, {"blocks", left}});
  else print("{} blocks removed, {} left\n", before - left, left);
  return ExitStatus::done;
}

}  // namespace terrace::tools
