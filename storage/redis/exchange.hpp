#pragma once

#include "storage/redis/resp_reader.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace terrace {

/// Appends "<type><number>\r\n".
inline void append_count(std::string& out, char type, std::uint64_t number) {
  out += type;
  out += std::to_string(number);
  out += "\r\n";
}

inline void append_word(std::string& out, std::string_view word) {
  append_count(out, '$', word.size());
  out += word;
  out += "\r\n";
}

/// Appends a command of the Redis protocol.
inline void append_command(std::string& out, std::initializer_list<std::string_view> words) {
  append_count(out, '*', words.size());
  for (const std::string_view word : words) append_word(out, word);
}

/// One or more commands that are sent together, and their replies. A Channel owns it from submit() on, and destroys it after the
/// last reply, after broken(), or before it is sent if it is no longer wanted. Threads: the thread of the channel.
class Exchange {
 public:
  Exchange() = default;
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  struct Segment {
    std::string text{};
    std::span<const std::byte> payload{};  ///< sent after the text, without a copy. It is used only while wanted() is true
  };

  std::array<Segment, 3> segments{};  ///< the data to send, in this order
  std::uint32_t replies = 1;          ///< at least 1
  std::size_t window_bytes = 0;       ///< its share of a channel's window: approximately the bytes that it sends and expects
  /// If true, the content of lists and bulks is passed to replied(). Otherwise the content of bulks goes to room(), and the
  /// content of lists is dropped.
  bool whole_replies = false;

  [[nodiscard]] std::size_t bytes_to_send() const {
    std::size_t all = 0;
    for (const Segment& segment : segments) all += segment.text.size() + segment.payload.size();
    return all;
  }

  /// Fills `segments` and `replies`, unless they were filled before. Called directly before submit().
  virtual void prepare() {}
  /// Returns false if the exchange is no longer wanted. Then an unsent exchange is skipped, and replies to sent commands are
  /// dropped without a further call.
  [[nodiscard]] virtual bool wanted() const { return true; }
  /// The reply is a bulk of this number of bytes. They are written to room() in order; landed() reports how many have arrived. If
  /// room() is empty, the next bytes of the bulk are dropped.
  virtual void bulk_begins(std::size_t /*bytes*/) {}
  [[nodiscard]] virtual std::span<std::byte> room() { return {}; }
  virtual void landed(std::size_t /*bytes*/) {}
  /// The next reply is complete.
  virtual void replied(RespValue reply) = 0;
  /// The connection ended before the last reply.
  virtual void broken() = 0;
};

}  // namespace terrace
