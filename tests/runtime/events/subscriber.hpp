#pragma once

#include "terrace/keys.hpp"
#include "terrace/types.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace terrace::test {

/// An event of a batch, decoded.
struct WireEvent {
  std::string type{};
  std::vector<BlockKey> keys{};
  std::optional<BlockKey> parent{};
  std::vector<TokenId> tokens{};
  std::uint64_t block_tokens = 0;
  std::string adapter{};
  std::string medium{};
  std::uint64_t group = 0;

  friend bool operator==(const WireEvent&, const WireEvent&) = default;
};

struct WireBatch {
  double time = 0;
  std::vector<WireEvent> events{};
  std::uint64_t rank = 0;
};

/// Decodes a batch. Throws std::runtime_error if it is no batch, or has anything else in it.
[[nodiscard]] WireBatch decode_batch(std::string_view payload);

/// A router's knowledge of one engine: which blocks are where, and their tokens. It ignores a block whose parent it has never
/// seen.
class Subscriber {
 public:
  using Place = std::tuple<std::uint64_t, BlockKey, std::string>;  ///< group, key, medium

  /// Takes a batch. Returns false if batches before it are missing, and ignores it then.
  bool take(std::uint64_t sequence, std::string_view payload);
  /// The number of the next batch.
  [[nodiscard]] std::uint64_t next() const { return next_; }
  /// The tokens of each copy.
  [[nodiscard]] const std::map<Place, std::vector<TokenId>>& copies() const { return copies_; }
  [[nodiscard]] std::uint64_t ignored() const { return ignored_; }

 private:
  std::uint64_t next_ = 0;
  std::map<Place, std::vector<TokenId>> copies_;
  std::set<std::pair<std::uint64_t, BlockKey>> seen_;
  std::uint64_t ignored_ = 0;  ///< blocks without a known parent
};

}  // namespace terrace::test
