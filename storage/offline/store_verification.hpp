#pragma once

#include "storage/offline/store_reader.hpp"
#include "terrace/types.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace terrace {

struct VerificationOptions {
  unsigned threads = 4;  ///< at least 1
  /// The limit for all threads together, in bytes per second; 0 is no limit.
  BytesPerSecond bandwidth{};
  /// How long a block may stay `doubtful` while the store has an owner (StoreReader). After that it is `corrupt`.
  std::chrono::milliseconds patience{5000};
};

struct Verification {
  struct Wrong {
    CatalogRecord block;
    StoreReader::Verified why;  ///< `corrupt` or `unreadable`
  };

  std::uint64_t blocks = 0;  ///< blocks that a store would serve
  std::uint64_t verified = 0;
  std::uint64_t changed = 0;  ///< blocks that the store's owner evicted meanwhile
  std::uint64_t missing = 0;  ///< blocks in missing directories, which are not read
  std::vector<Wrong> wrong;   ///< sorted by slot
  Bytes read{};
  double seconds = 0;
  bool stopped = false;

  /// equal to `blocks`, unless stopped
  [[nodiscard]] std::uint64_t done() const { return verified + changed + missing + wrong.size(); }
};

/// Reads and verifies the data of all blocks, in the order of their slots. Blocks until it is done. About ten times a second it
/// calls `go_on(blocks done, bytes read)` on the calling thread; if that returns false, the remaining blocks are left out. Throws
/// std::system_error if a thread cannot be started.
[[nodiscard]] Verification verify_all(const StoreReader& reader, const VerificationOptions& options,
                                      const std::function<bool(std::uint64_t done, Bytes read)>& go_on);

}  // namespace terrace
