#pragma once

#include "storage/redis/resp_value.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace terrace {

/// One or more commands that are sent together, and their replies. A Channel owns it from submit() on, and destroys it after the
/// last reply, after broken(), or unsent once nobody wants it. Threads: that of the channel.
class Exchange {
 public:
  Exchange() = default;
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  struct Segment {
    std::string text{};
    std::span<const std::byte> payload{};  ///< sent after the text, from where it lies. It is used only while wanted() is true
  };

  std::array<Segment, 3> segments{};  ///< what is sent, in this order
  std::uint32_t replies = 1;          ///< at least 1
  std::size_t window_bytes = 0;       ///< what it counts in the window of a channel: the bytes that it sends and expects, about
  /// The content of lists and bulks is passed to replied(). Otherwise that of bulks goes to room(), and that of lists nowhere.
  bool whole_replies = false;

  [[nodiscard]] std::size_t bytes_to_send() const {
    std::size_t all = 0;
    for (const Segment& segment : segments) all += segment.text.size() + segment.payload.size();
    return all;
  }

  /// Fills `segments` and `replies`, unless they were filled before. Called directly before submit().
  virtual void prepare() {}
  /// False once nobody waits for it. What is not sent is then left out. What was sent is answered, and the answers are dropped
  /// without a further call.
  [[nodiscard]] virtual bool wanted() const { return true; }
  /// The reply is a bulk of so many bytes. They go to room() one after the other; landed() reports how many are there. An empty
  /// room drops what comes next of the bulk.
  virtual void bulk_begins(std::size_t /*bytes*/) {}
  [[nodiscard]] virtual std::span<std::byte> room() { return {}; }
  virtual void landed(std::size_t /*bytes*/) {}
  /// The next reply is complete.
  virtual void replied(RespValue reply) = 0;
  /// The connection ended before the last reply.
  virtual void broken() = 0;
};

}  // namespace terrace
