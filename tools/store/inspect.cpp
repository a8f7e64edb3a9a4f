// The commands that only read a store: stat, list, show and verify.
#include "storage/offline/store_verification.hpp"
#include "tools/output.hpp"
#include "tools/replay/engine/interrupt.hpp"
#include "tools/store/command_line.hpp"
#include "tools/store/opening.hpp"

#include <boost/json.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

namespace json = boost::json;

constexpr std::chrono::seconds patience{5};  ///< the same as in `verify` for a store that is in use
constexpr std::size_t namespaces_shown = 20;

json::value to_value(const StoreReader& reader) {
  if (!reader.in_use()) return nullptr;
  const std::optional<StoreOwner> owner = reader.owner();
  if (!owner) return json::object{{"pid", nullptr}};
  return json::object{{"pid", owner->pid}, {"program", owner->program}, {"host", owner->host}, {"since", owner->since}};
}

std::string last_written(const StoreReader& reader) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::chrono::system_clock::to_time_t(reader.last_written())));
}

struct Namespace {
  TenantId tenant;
  std::uint64_t blocks = 0;
  std::optional<std::string> label{};  ///< under which its blocks were written
};

/// The largest first.
std::vector<Namespace> namespaces_of(const StoreReader& reader) {
  std::map<TenantId, Namespace> counts;
  for (const CatalogRecord& record : reader.catalog().blocks()) ++counts[record.block.tenant].blocks;
  for (const StoreLabel& label : reader.labels()) {
    if (const auto at = counts.find(tenant_of(label.text)); at != counts.end() && !at->second.label)
      at->second.label = label.text;
  }
  std::vector<Namespace> sorted;
  sorted.reserve(counts.size());
  for (auto& [tenant, each] : counts) sorted.push_back({tenant, each.blocks, std::move(each.label)});
  std::ranges::stable_sort(sorted, std::greater{}, &Namespace::blocks);
  return sorted;
}

json::array to_array(const std::vector<std::filesystem::path>& paths) {
  json::array all;
  for (const std::filesystem::path& each : paths) all.push_back(json::string{each.string()});
  return all;
}

json::object to_object(const StoreReader& reader, const CatalogRecord& record, bool orphan) {
  return {{"key", to_hex(record.block.key)},
          {"depth", record.block.depth},
          {"namespace", namespace_hex(record.block.tenant)},
          {"group", record.block.group.value()},
          {"generation", record.generation},
          {"slot", record.slot},
          {"orphan", orphan},
          {"missing", reader.missing(record)}};
}

/// The blocks from the root, or from the last ancestor that exists, down to the block itself.
std::vector<const CatalogRecord*> path_to(const StoreReader& reader, const CatalogRecord& block) {
  std::vector<const CatalogRecord*> path{&block};
  while (path.back()->block.depth > 0) {
    const CatalogRecord* const parent = reader.find(path.back()->block.parent);
    // The depth falls by one in each step, so the loop ends whatever the files contain.
    if (parent == nullptr || parent->block.depth + 1 != path.back()->block.depth) break;
    path.push_back(parent);
  }
  std::ranges::reverse(path);
  return path;
}

std::uint64_t children_of(const StoreReader& reader, const BlockKey& key) {
  const auto is_child = [&](const CatalogRecord& record) { return record.block.depth > 0 && record.block.parent == key; };
  return static_cast<std::uint64_t>(std::ranges::count_if(reader.catalog().blocks(), is_child));
}

bool is_orphan(const StoreReader& reader, const CatalogRecord& record) {
  const auto& orphans = reader.catalog().orphans();
  return !orphans.empty() && &record >= orphans.data() && &record < orphans.data() + orphans.size();
}

const char* to_text(StoreReader::Verdict verdict) {
  switch (verdict) {
    case StoreReader::Verdict::verified: return "verified";
    case StoreReader::Verdict::changed: return "changed";
    case StoreReader::Verdict::doubtful: return "doubtful";
    case StoreReader::Verdict::corrupt: return "corrupt";
    case StoreReader::Verdict::unreadable: return "unreadable";
    case StoreReader::Verdict::missing: return "missing";
  }
  return "?";
}

/// Free slots that must not hold a block, because the store was made smaller while it served.
std::uint64_t closed_slots(const StoreReader& reader) {
  const std::uint64_t open = reader.superblock().open_slots;
  if (open == 0) return 0;
  const std::uint64_t slots = reader.layout().slots;
  return std::min<std::uint64_t>(slots - std::min(open, slots), reader.catalog().free_slots());
}

void print_stat_text(const StoreReader& reader) {
  const CatalogScan& catalog = reader.catalog();
  const StoreLayout& layout = reader.layout();
  print("store        {}\n", reader.directory().string());
  print("format       version {}; opened {} time{}\n", reader.superblock().version, reader.superblock().generation,
        reader.superblock().generation == 1 ? "" : "s");
  print("blocks of    {}, for the model and geometry {}...\n", to_string(Bytes{layout.block_bytes}),
        to_hex(BlockKey{reader.superblock().fingerprint}).substr(0, 16));
  print("capacity     {} blocks, {} in {} data file{}; {} of the disk in use now\n", layout.slots,
        to_string(layout.total_bytes()), layout.data_files(), layout.data_files() == 1 ? "" : "s", to_string(reader.allocated()));
  if (layout.directories > 1) {
    print("striped      over {} directories, {} side by side in each\n", layout.directories,
          to_string(Bytes{layout.stripe_slots * layout.block_bytes}));
    for (const std::filesystem::path& more : reader.more_directories()) print("  {}\n", more.string());
  }
  if (!reader.missing_directories().empty()) print("missing      {}\n", what_is_missing(reader));
  const std::uint64_t closed = closed_slots(reader);
  print("slots        {} with blocks, {} free{}\n", catalog.blocks().size(), catalog.free_slots() - closed,
        closed > 0 ? fmt::format(", {} closed (made smaller while it served)", closed) : "");
  print("unusable     {} orphans, {} superseded\n", catalog.orphans().size(), catalog.superseded().size());
  print("damaged      {}\n", damage_in(reader));
  const bool in_use = reader.in_use();
  print("in use       {}\n", in_use ? "by " + describe(reader.owner()) : "no");
  print("last write   {}\n", last_written(reader));
  print("deletable    {}\n",
        in_use ? "no: stop the process that has it first" : "yes: nothing has it open, and what it holds can be computed again");
  const std::vector<StoreLabel> labels = reader.labels();
  if (labels.empty()) print("used by      not recorded\n");
  for (const StoreLabel& label : labels) {
    print("{}{}; opened {}\n", &label == labels.data() ? "used by      " : "             ", label.text, label.opened);
  }
  const std::vector<Namespace> namespaces = namespaces_of(reader);
  print("namespaces   {}\n", namespaces.size());
  for (std::size_t n = 0; n < std::min(namespaces.size(), namespaces_shown); ++n) {
    const auto& [tenant, blocks, label] = namespaces[n];
    print("  {}  {} blocks{}\n", namespace_hex(tenant), blocks, label ? "  " + *label : "");
  }
  if (namespaces.size() > namespaces_shown) print("  ... and {} more\n", namespaces.size() - namespaces_shown);
}

json::object stat_of(const StoreReader& reader) {
  const CatalogScan& catalog = reader.catalog();
  json::array namespaces;
  for (const auto& [tenant, blocks, label] : namespaces_of(reader)) {
    namespaces.push_back(json::object{
        {"namespace", namespace_hex(tenant)}, {"blocks", blocks}, {"label", label ? json::value(*label) : json::value(nullptr)}});
  }
  json::array labels;
  for (const StoreLabel& label : reader.labels()) {
    labels.push_back(json::object{{"label", label.text}, {"opened", label.opened}});
  }
  json::object slots{{"total", reader.layout().slots},
                     {"blocks", catalog.blocks().size()},
                     {"free", catalog.free_slots() - closed_slots(reader)},
                     {"closed", closed_slots(reader)},
                     {"orphans", catalog.orphans().size()},
                     {"superseded", catalog.superseded().size()},
                     {"damaged", catalog.damaged().size()},
                     {"missing", reader.missing_blocks()}};  // counted in "blocks" too
  return {{"directory", reader.directory().string()},
          {"more_directories", to_array(reader.more_directories())},
          {"missing_directories", to_array(reader.missing_directories())},
          {"stripe_bytes", reader.layout().stripe_slots * reader.layout().block_bytes},
          {"version", reader.superblock().version},
          {"generation", reader.superblock().generation},
          {"fingerprint", to_hex(BlockKey{reader.superblock().fingerprint})},
          {"block_bytes", reader.layout().block_bytes},
          {"capacity_bytes", count(reader.layout().total_bytes())},
          {"allocated_bytes", count(reader.allocated())},
          {"data_files", reader.layout().data_files()},
          {"slots", std::move(slots)},
          {"namespaces", std::move(namespaces)},
          {"labels", std::move(labels)},
          {"last_write", last_written(reader)},
          {"deletable", !reader.in_use()},
          {"owner", to_value(reader)}};
}

/// Lists the stores in and below a folder, a line each.
void list_stores(const std::vector<std::filesystem::path>& stores, bool as_json) {
  json::array all;
  for (const std::filesystem::path& each : stores) {
    std::unique_ptr<StoreReader> reader;
    std::string error;
    try {
      reader = open_store(each);
    } catch (const UsageError& refused) {
      error = refused.what();
    }
    const std::vector<StoreLabel> labels = reader ? reader->labels() : std::vector<StoreLabel>{};
    const std::string label = labels.empty() ? "not recorded" : labels.front().text;
    if (as_json) {
      json::object object{{"directory", each.string()}};
      if (reader) {
        object["label"] = labels.empty() ? json::value(nullptr) : json::value(label);
        object["blocks"] = reader->catalog().blocks().size();
        object["allocated_bytes"] = count(reader->allocated());
        object["last_write"] = last_written(*reader);
        object["owner"] = to_value(*reader);
      } else {
        object["error"] = error;
      }
      all.push_back(std::move(object));
    } else if (reader) {
      print("{}  {} blocks, {} of disk, last write {}, {}; used by: {}\n", each.string(), reader->catalog().blocks().size(),
            to_string(reader->allocated()), last_written(*reader),
            reader->in_use() ? "in use by " + describe(reader->owner()) : "not in use", label);
    } else {
      print("{}  cannot be read: {}\n", each.string(), error);
    }
  }
  if (as_json) print_json({{"stores", std::move(all)}});
}

// ---- verify

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

ExitStatus print_stat(const StoreArguments& arguments) {
  const std::unique_ptr<StoreReader> reader = open_store(arguments.directory);
  if (arguments.json) print_json(stat_of(*reader));
  else print_stat_text(*reader);
  return ExitStatus::done;
}

ExitStatus print_list(const StoreArguments& arguments) {
  const std::optional<std::string> wanted = hex_digits(arguments.wanted_namespace, 16);
  if (!wanted) {
    throw UsageError{
        fmt::format("--namespace {}: not a namespace; give up to 16 hexadecimal digits", arguments.wanted_namespace)};
  }
  // A folder that is no store itself, and has more than the one with the default name.
  const std::vector<std::filesystem::path> stores = stores_below(arguments.directory);
  if (!stores.empty() && stores != std::vector{arguments.directory} &&
      stores != std::vector{arguments.directory / default_store_name}) {
    list_stores(stores, arguments.json);
    return ExitStatus::done;
  }
  const std::unique_ptr<StoreReader> reader = open_store(arguments.directory);
  std::uint64_t matching = 0;
  std::uint64_t orphans = 0;
  const std::uint64_t limit = arguments.limit.value_or(~std::uint64_t{0});
  json::array blocks;
  if (!arguments.json) print("{:<24}  {:>8}  {:<16}  {:>12}\n", "key begins", "depth", "namespace", "generation");
  const std::array lists{std::pair{&reader->catalog().blocks(), false}, std::pair{&reader->catalog().orphans(), true}};
  for (const auto& [records, orphan] : lists) {
    for (const CatalogRecord& record : *records) {
      if (!namespace_hex(record.block.tenant).starts_with(*wanted)) continue;
      orphans += orphan;
      if (++matching > limit) continue;
      if (arguments.json) {
        blocks.push_back(to_object(*reader, record, orphan));
      } else {
        print("{:.24}  {:>8}  {}  {:>12}{}{}\n", to_hex(record.block.key), record.block.depth, namespace_hex(record.block.tenant),
              record.generation, orphan ? "  orphan" : "", reader->missing(record) ? "  missing" : "");
      }
    }
  }
  if (arguments.json) {
    print_json({{"matching", matching}, {"orphans", orphans}, {"blocks", std::move(blocks)}});
    return ExitStatus::done;
  }
  if (matching > limit) print("... and {} more\n", matching - limit);
  if (!reader->missing_directories().empty()) complain("terrace store", what_is_missing(*reader));
  return ExitStatus::done;
}

ExitStatus show_block(const StoreArguments& arguments) {
  const std::unique_ptr<StoreReader> reader = open_store(arguments.directory);
  const CatalogRecord& block = find_block(*reader, arguments.key);
  const StoreReader::Verified verified = reader->verify(block, patience);
  const StoreReader::Location at = reader->location(block.slot);
  const std::vector<const CatalogRecord*> path = path_to(*reader, block);
  const bool orphan = is_orphan(*reader, block);
  if (arguments.json) {
    json::array chain;
    for (const CatalogRecord* const each : path) chain.push_back(json::string{to_hex(each->block.key)});
    json::object object = to_object(*reader, block, orphan);
    object["parent"] = block.block.depth == 0 ? json::value(nullptr) : json::value(to_hex(block.block.parent));
    object["checksum"] = fmt::format("{:016x}", block.checksum);
    object["length"] = block.length;
    object["file"] = at.file.string();
    object["offset"] = at.offset;
    object["data"] = to_text(verified.verdict);
    object["children"] = children_of(*reader, block.block.key);
    object["path"] = std::move(chain);
    print_json(object);
  } else {
    print("key          {}\n", to_hex(block.block.key));
    print("depth        {}, group {}, namespace {}{}\n", block.block.depth, block.block.group.value(),
          namespace_hex(block.block.tenant), orphan ? "; an orphan: its parent is missing" : "");
    print("generation   {}\n", block.generation);
    print("bytes        {} at offset {} of {} (slot {})\n", block.length, at.offset, at.file.string(), block.slot);
    print("checksum     {:016x}: {}\n", block.checksum, to_text(verified.verdict));
    print("children     {}\n", children_of(*reader, block.block.key));
    print("path         root first{}\n", path.front()->block.depth > 0 ? ", without missing ancestors" : "");
    for (const CatalogRecord* const each : path) print("  {:>6}  {}\n", each->block.depth, to_hex(each->block.key));
  }
  if (verified.verdict == StoreReader::Verdict::verified || verified.verdict == StoreReader::Verdict::changed) {
    return ExitStatus::done;
  }
  return complain("terrace store", fmt::format("block {} {}", to_hex(block.block.key), what_is_wrong(verified)),
                  ExitStatus::check_failed);
}

ExitStatus verify_store(const StoreArguments& arguments) {
  const Interrupt interrupt;
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
  const auto fail = [](const std::string& what, ExitStatus status) { return complain("terrace store", what, status); };
  const bool is_damaged = !found.wrong.empty() || !reader->catalog().damaged().empty();
  if (is_damaged) return fail(summary(*reader, found), ExitStatus::check_failed);
  if (!reader->missing_directories().empty()) return fail(what_is_missing(*reader), ExitStatus::check_failed);
  if (!found.stopped) return ExitStatus::done;
  return fail(fmt::format("interrupted after {} of {} blocks", found.done(), found.blocks), ExitStatus::interrupted);
}

}  // namespace terrace::tools
