#pragma once

#include "storage/offline/store_reader.hpp"
#include "tools/usage_error.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

namespace terrace::tools {

/// What the error says, without the name of a code of our own that follows the sentence; an errno's stays.
[[nodiscard]] std::string sentence_of(const std::system_error& error);

/// Looks into the store. Throws UsageError where there is none that can be read: a directory is an argument. Throws Interrupted
/// where `go_on`, asked from time to time, returns false.
[[nodiscard]] std::unique_ptr<StoreReader> open_store(
    const std::filesystem::path& directory, const std::function<bool()>& go_on = [] { return true; });

/// The text in lower case, where it is at most so many hexadecimal digits.
[[nodiscard]] std::optional<std::string> hex_digits(const std::string& text, std::size_t most);

/// The one block, or orphan, whose key begins with these hexadecimal digits. Throws UsageError where there is none, or several.
[[nodiscard]] const CatalogRecord& find_block(const StoreReader& reader, const std::string& digits);

/// What a person can find the block by: as the first 16 digits of the root's key.
[[nodiscard]] std::string namespace_hex(TenantId tenant);

/// "does not verify", "cannot be read: Input/output error": of what verify() called wrong.
[[nodiscard]] std::string what_is_wrong(const StoreReader::Verified& verified);
[[nodiscard]] const char* what_is_wrong(CatalogScan::Flaw flaw);
/// "/mnt/b/store and /mnt/c/store, of a store over 4 directories, are not there, and 352 blocks in them: mount their disks"
[[nodiscard]] std::string what_is_missing(const StoreReader& reader);

}  // namespace terrace::tools
