#pragma once

#include "terrace/event_publisher.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace::events {

/// The queue between the threads of an engine and the thread of the publisher. The lock is held only to copy a call's arguments
/// in and to swap the whole content out; memory is reused.
///
/// Threads: any.
class Inbox {
 public:
  /// Everything that has come since the last take().
  struct Content {
    struct Header {
      std::size_t keys = 0;
      std::uint32_t block_tokens = 0;
      std::optional<BlockKey> parent{};
      GroupId group{};
      std::string adapter{};
    };
    std::vector<Header> descriptions{};
    std::vector<BlockKey> keys{};   ///< of all descriptions
    std::vector<TokenId> tokens{};  ///< likewise
    bool lost = false;              ///< events before those of `events` were refused
    std::vector<KvEvent> events{};
    std::uint64_t descriptions_refused = 0;  ///< blocks

    /// Calls visit(BlockTokens) for each description.
    template <class Visit>
    void for_each_description(const Visit& visit) const {
      std::span<const BlockKey> keys_left = keys;
      std::span<const TokenId> tokens_left = tokens;
      for (const Header& header : descriptions) {
        const std::size_t token_count = header.keys * header.block_tokens;
        visit(BlockTokens{.keys = keys_left.first(header.keys),
                          .tokens = tokens_left.first(token_count),
                          .block_tokens = header.block_tokens,
                          .parent = header.parent,
                          .group = header.group,
                          .adapter = header.adapter});
        keys_left = keys_left.subspan(header.keys);
        tokens_left = tokens_left.subspan(token_count);
      }
    }
    void clear() {
      descriptions.clear();
      keys.clear();
      tokens.clear();
      lost = false;
      events.clear();
      descriptions_refused = 0;
    }
  };

  explicit Inbox(std::size_t size_max) : size_max_{size_max} {}

  /// Returns false, and adds nothing, if the queue is full.
  [[nodiscard]] bool describe(const BlockTokens& blocks) {
    const std::lock_guard lock{mutex_};
    if (!content_.keys.empty() && content_.keys.size() + blocks.keys.size() > size_max_) {
      content_.descriptions_refused += blocks.keys.size();
      return false;
    }
    content_.descriptions.push_back(
        {blocks.keys.size(), blocks.block_tokens, blocks.parent, blocks.group, std::string{blocks.adapter}});
    content_.keys.insert(content_.keys.end(), blocks.keys.begin(), blocks.keys.end());
    content_.tokens.insert(content_.tokens.end(), blocks.tokens.begin(), blocks.tokens.end());
    return true;
  }
  /// Returns false, and drops all events that wait, if the queue is full.
  [[nodiscard]] bool publish(std::span<const KvEvent> events) {
    const std::lock_guard lock{mutex_};
    if (!content_.events.empty() && content_.events.size() + events.size() > size_max_) {
      content_.lost = true;
      content_.events.clear();
      return false;
    }
    content_.events.insert(content_.events.end(), events.begin(), events.end());
    return true;
  }
  /// Swaps the content with `content`, which is cleared before.
  void take(Content& content) {
    content.clear();
    const std::lock_guard lock{mutex_};
    std::swap(content_, content);
  }

 private:
  std::size_t size_max_;
  std::mutex mutex_;
  Content content_;
};

}  // namespace terrace::events
