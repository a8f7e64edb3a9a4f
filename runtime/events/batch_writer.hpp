#pragma once

#include "terrace/keys.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace::events {

/// Everything that a subscriber needs to know of a block beside its key.
struct Description {
  std::vector<TokenId> tokens{};
  std::optional<BlockKey> parent{};
  std::shared_ptr<const std::string> adapter{};  ///< null: none
};

/// Writes batches of events in the format of vLLM: an array of a time, the events and the data-parallel rank. An event is a map
/// with its class under "type". Consecutive blocks of a prefix become one event, as do consecutive removals.
///
/// Threads: one.
class BatchWriter {
 public:
  explicit BatchWriter(std::uint32_t data_parallel_rank) : rank_{data_parallel_rank} {}

  void stored(const BlockKey& key, GroupId group, Tier tier, const Description& description);
  void removed(const BlockKey& key, GroupId group, Tier tier);
  void cleared();

  /// Returns the number of added events: blocks that were stored or removed, and clears.
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Returns the batch, and begins the next one. `time` is in seconds since 1970.
  [[nodiscard]] std::string finish(double time);

 private:
  enum class Kind : unsigned char { none, stored, removed };

  [[nodiscard]] bool continues(Kind kind, GroupId group, Tier tier) const;
  void begin(Kind kind, GroupId group, Tier tier);
  /// Writes the event that is being collected.
  void end();

  std::uint32_t rank_;
  std::string events_;
  std::size_t event_count_ = 0;
  std::size_t size_ = 0;

  // The event that is being collected.
  Kind kind_ = Kind::none;
  GroupId group_{};
  Tier tier_{};
  std::vector<BlockKey> keys_;
  std::vector<TokenId> tokens_;
  std::size_t block_tokens_ = 0;
  std::optional<BlockKey> parent_;
  std::shared_ptr<const std::string> adapter_;
};

}  // namespace terrace::events
