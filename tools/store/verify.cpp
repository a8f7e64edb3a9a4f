#include "storage/offline/store_verification.hpp"
#include "tools/output.hpp"
#include "tools/progress_line.hpp"
#include "tools/replay/engine/interrupt.hpp"
#include "tools/store/command_line.hpp"
#include "tools/store/opening.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <atomic>
#include <string>

namespace terrace::tools {
namespace {

namespace json = boost::json;

constexpr double giga = 1e-9;

double rate(const Verification& found) { return found.seconds > 0 ? static_cast<double>(count(found.read)) / found.seconds : 0; }

std::string place_of(const StoreReader& reader, std::uint32_t slot) {
  const StoreReader::Location at = reader.location(slot);
  return fmt::format("{} at offset {}", at.file.string(), at.offset);
}

json::object to_object(const StoreReader& reader, const Verification& found) {
  const CatalogScan& catalog = reader.catalog();
  json::array wrong;
  for (const Verification::Wrong& each : found.wrong) {
    const StoreReader::Location at = reader.location(each.block.slot);
    wrong.push_back(json::object{{"key", to_hex(each.block.block.key)},
                                 {"slot", each.block.slot},
                                 {"file", at.file.string()},
                                 {"offset", at.offset},
                                 {"what", what_is_wrong(each.why)}});
  }
  json::array damaged;
  for (const CatalogScan::Damaged& each : catalog.damaged()) {
    damaged.push_back(json::object{{"slot", each.slot},
                                   {"key", each.key ? json::value(to_hex(*each.key)) : json::value(nullptr)},
                                   {"what", what_is_wrong(each.flaw)}});
  }
  return {{"blocks", found.blocks},
          {"verified", found.verified},
          {"changed", found.changed},
          {"wrong", std::move(wrong)},
          {"damaged_records", std::move(damaged)},
          {"missing", found.missing},
          {"orphans", catalog.orphans().size()},
          {"bytes", count(found.read)},
          {"seconds", found.seconds},
          {"bytes_per_second", rate(found)},
          {"in_use", reader.in_use()},
          {"interrupted", found.stopped}};
}

void print_text(const StoreReader& reader, const Verification& found) {
  const CatalogScan& catalog = reader.catalog();
  print("store      {}{}\n", reader.directory().string(), reader.in_use() ? ", in use by " + describe(reader.owner()) : "");
  print("read       {} in {:.1f} s: {:.2f} GB/s\n", to_string(found.read), found.seconds, rate(found) * giga);
  print("verified   {} of {} blocks\n", found.verified, found.blocks);
  if (found.changed > 0) print("changed    {} blocks, while this was reading\n", found.changed);
  if (found.missing > 0) print("missing    {} blocks, not read\n", found.missing);
  if (!catalog.orphans().empty()) print("orphans    {} further blocks, unusable\n", catalog.orphans().size());
  print("wrong      {} blocks, {} records\n", found.wrong.size(), catalog.damaged().size());
  for (const Verification::Wrong& each : found.wrong) {
    print("  {}\n      {}: {}\n", to_hex(each.block.block.key), place_of(reader, each.block.slot), what_is_wrong(each.why));
  }
  for (const CatalogScan::Damaged& each : catalog.damaged()) {
    print("  {}\n      slot {}: {}\n", each.key ? to_hex(*each.key) : "?", each.slot, what_is_wrong(each.flaw));
  }
}

/// One line about all that is wrong: how much it is, and the first of it.
std::string summary(const StoreReader& reader, const Verification& found) {
  const auto& damaged = reader.catalog().damaged();
  if (found.wrong.empty()) {
    return fmt::format("{} records are damaged; first: slot {}: {}", damaged.size(), damaged.front().slot,
                       what_is_wrong(damaged.front().flaw));
  }
  const Verification::Wrong& first = found.wrong.front();
  return fmt::format("{} blocks and {} records are wrong; first: {}, {}: {}", found.wrong.size(), damaged.size(),
                     to_hex(first.block.block.key), place_of(reader, first.block.slot), what_is_wrong(first.why));
}

}  // namespace

ExitStatus verify_store(const StoreArguments& arguments) {
  NullWaker nobody;
  const Interrupt interrupt{nobody};
  const std::unique_ptr<StoreReader> reader = open_store(arguments.directory, [&] { return !interrupt.requested(); });
  Verification found;
  {
    const std::uint64_t total = reader->catalog().blocks().size();
    std::atomic<std::uint64_t> blocks{0};
    std::atomic<Bytes> bytes{};
    const ProgressLine progress{[&] {
      return ProgressState{blocks, total, fmt::format("{} of {} blocks  {}", blocks.load(), total, to_string(bytes.load()))};
    }};
    const auto go_on = [&](std::uint64_t done, Bytes read) {
      blocks = done;
      bytes = read;
      return !interrupt.requested();
    };
    found = verify_all(*reader, {.threads = arguments.threads, .bandwidth = arguments.bandwidth}, go_on);
  }
  if (arguments.json) {
    print_json(to_object(*reader, found));
  } else {
    print_text(*reader, found);
  }
  if (!found.wrong.empty() || !reader->catalog().damaged().empty()) {
    complain("terrace store", summary(*reader, found));
    return ExitStatus::check_failed;
  }
  if (!reader->missing_directories().empty()) {
    complain("terrace store", what_is_missing(*reader));
    return ExitStatus::check_failed;
  }
  if (found.stopped) {
    complain("terrace store", fmt::format("interrupted after {} of {} blocks", found.done(), found.blocks));
    return ExitStatus::interrupted;
  }
  return ExitStatus::done;
}

}  // namespace terrace::tools
