#pragma once

#include "base/bytes.hpp"
#include "storage/offline/store_reader.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace terrace {

struct VerificationOptions {
  unsigned threads = 4;  ///< at least 1
  /// A second, of all threads together; 0: as fast as the disk goes.
  Bytes bandwidth{};
  /// How long a block beside an owner may stay doubtful (StoreReader) until it is corrupt.
  std::chrono::milliseconds patience{5000};
};

struct Verification {
  struct Wrong {
    CatalogRecord block;
    StoreReader::Verified why;  ///< corrupt, unreadable
  };

  std::uint64_t blocks = 0;  ///< those that a store would serve
  std::uint64_t verified = 0;
  std::uint64_t changed = 0;  ///< given up by the store's owner meanwhile
  std::uint64_t missing = 0;  ///< not read, in directories that are missing
  std::vector<Wrong> wrong;   ///< by slot
  Bytes read{};
  double seconds = 0;
  bool stopped = false;

  [[nodiscard]] std::uint64_t done() const { return verified + changed + missing + wrong.size(); }  ///< all, unless stopped
};

/// Reads and verifies all data, in the order in which they lie. `go_on(blocks done, bytes read)` is called some ten times a
/// second, on the calling thread, which this blocks; where it returns false the rest is left out. Throws std::system_error
/// where a thread is not to be had.
[[nodiscard]] Verification verify_all(const StoreReader& reader, const VerificationOptions& options,
                                      const std::function<bool(std::uint64_t done, Bytes read)>& go_on);

}  // namespace terrace
