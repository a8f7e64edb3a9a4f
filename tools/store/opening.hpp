#pragma once

#include "storage/offline/store_reader.hpp"
#include "tools/usage_error.hpp"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

namespace terrace::tools {

/// Returns the text of the error. If the code is one of ours, the text is without the code's name; the text of an errno stays.
[[nodiscard]] std::string sentence_of(const std::system_error& error);

/// Opens the store for reading. Throws UsageError if no store can be read there, because the directory is an argument of the
/// user. Throws Interrupted if `go_on`, which is called from time to time, returns false.
[[nodiscard]] std::unique_ptr<StoreReader> open_store(
    const std::filesystem::path& directory, const std::function<bool()>& go_on = [] { return true; });

/// Returns the text in lower case if it consists of at most `most` hexadecimal digits, else nothing.
[[nodiscard]] std::optional<std::string> hex_digits(const std::string& text, std::size_t most);

/// Returns the block or orphan whose key begins with these hexadecimal digits. Throws UsageError if none or several match.
[[nodiscard]] const CatalogRecord& find_block(const StoreReader& reader, const std::string& digits);

/// The namespace as shown to people: the first 16 hexadecimal digits of the root key.
[[nodiscard]] std::string namespace_hex(TenantId tenant);

/// A verdict that verify() reported as wrong, in words: "does not match its checksum", "cannot be read: Input/output error".
[[nodiscard]] std::string what_is_wrong(const StoreReader::Verified& verified);
[[nodiscard]] const char* what_is_wrong(CatalogScan::Flaw flaw);
/// Says how many blocks of the store are damaged, what happens to them, and what to do. A damaged record is one block.
[[nodiscard]] std::string damage_in(const StoreReader& reader);
/// Returns for example "2 of 4 directories of the store are missing, with 352 blocks: /mnt/b/store and /mnt/c/store; mount their
/// disks".
[[nodiscard]] std::string what_is_missing(const StoreReader& reader);

}  // namespace terrace::tools
