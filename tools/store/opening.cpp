#include "tools/store/opening.hpp"

#include "tools/interrupted.hpp"
#include "tools/text.hpp"

#include <fmt/format.h>

#include <cctype>
#include <cstring>
#include <system_error>

namespace terrace::tools {

std::string sentence_of(const std::system_error& error) {
  const std::string text = error.what();
  const std::string code = ": " + error.code().message();
  const bool ours = error.code().category() == static_cast<const std::error_category&>(terrace_category());
  return ours && text.ends_with(code) ? text.substr(0, text.size() - code.size()) : text;
}

std::unique_ptr<StoreReader> open_store(const std::filesystem::path& directory, const std::function<bool()>& go_on) {
  try {
    return std::make_unique<StoreReader>(directory, PosixCalls::system(), go_on);
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::operation_canceled) throw Interrupted{};
    throw UsageError{sentence_of(error)};
  }
}

std::optional<std::string> hex_digits(const std::string& text, std::size_t most) {
  std::string digits = text;
  for (char& c : digits) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (digits.size() > most || digits.find_first_not_of("0123456789abcdef") != std::string::npos) return std::nullopt;
  return digits;
}

const CatalogRecord& find_block(const StoreReader& reader, const std::string& digits) {
  constexpr std::size_t key_digits = 64;
  const std::optional<std::string> wanted = hex_digits(digits, key_digits);
  if (!wanted || wanted->empty()) {
    throw UsageError{fmt::format("{}: not a key; give its 64 hexadecimal digits, or the first few", digits)};
  }
  const std::string where = reader.directory().string();
  if (wanted->size() == key_digits) {
    const CatalogRecord* const exactly = reader.find(*parse_block_key(*wanted));
    if (exactly != nullptr) return *exactly;
  }
  const CatalogRecord* found = nullptr;
  std::uint64_t matches = 0;
  for (const auto* records : {&reader.catalog().blocks(), &reader.catalog().orphans()}) {
    for (const CatalogRecord& record : *records) {
      if (!to_hex(record.block.key).starts_with(*wanted)) continue;
      ++matches;
      found = &record;
    }
  }
  if (matches == 0) throw UsageError{fmt::format("no block in {} has a key that begins with {}", where, digits)};
  if (matches > 1) {
    throw UsageError{fmt::format("{} blocks in {} have keys that begin with {}: give more digits", matches, where, digits)};
  }
  return *found;
}

std::string namespace_hex(TenantId tenant) {
  const std::uint64_t number = tenant.value();
  BlockKey key;
  std::memcpy(key.bytes.data(), &number, sizeof number);
  return to_hex(key).substr(0, 16);
}

std::string what_is_wrong(const StoreReader::Verified& verified) {
  if (verified.verdict == StoreReader::Verdict::corrupt) return "does not match its checksum";
  if (verified.verdict == StoreReader::Verdict::missing) return "lies in a directory that is missing";
  return fmt::format("cannot be read: {}",
                     verified.error == 0 ? "the file is too short" : std::generic_category().message(verified.error));
}

const char* what_is_wrong(CatalogScan::Flaw flaw) {
  switch (flaw) {
    case CatalogScan::Flaw::unreadable: return "record does not match its checksum";
    case CatalogScan::Flaw::misplaced: return "record of another slot, block size or store";
    case CatalogScan::Flaw::no_data: return "data file ends before the block";
  }
  return "?";
}

std::string damage_in(const StoreReader& reader) {
  const std::size_t blocks = reader.catalog().damaged().size();
  if (blocks == 0) return "no block";
  return fmt::format("{} block{}: never served, and computed again when asked for; look at the disk, and read all with `terrace "
                     "store verify {}`",
                     blocks, blocks == 1 ? "" : "s", printable(reader.directory().string()));
}

std::string what_is_missing(const StoreReader& reader) {
  const std::vector<std::filesystem::path> missing = reader.missing_directories();
  std::string names;
  for (const std::filesystem::path& each : missing) {
    if (!names.empty()) names += &each == &missing.back() ? " and " : ", ";
    names += each.string();
  }
  const bool one = missing.size() == 1;
  return fmt::format("{} of {} directories of the store {} missing, with {} blocks: {}; mount {}", missing.size(),
                     reader.layout().directories, one ? "is" : "are", reader.missing_blocks(), names,
                     one ? "its disk" : "their disks");
}

}  // namespace terrace::tools
