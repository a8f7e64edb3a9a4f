#pragma once

#include "storage/redis/exchange.hpp"
#include "storage/redis/resp_reader.hpp"

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace terrace {

/// The protocol state of one connection to a server. Commands are sent in order without waiting for replies (pipelining), and
/// replies arrive in the same order. It is a state machine without I/O. It does not copy large payloads: outgoing() returns the
/// memory to send from, incoming() the memory to receive into.
///
/// Exchanges that are no longer wanted do not affect the others: if a command was not begun, it is skipped; a reply is dropped
/// when it arrives. Only a command that was sent partially cannot be skipped; then is_broken() becomes true.
///
/// Threads: one. An exchange may submit() another one while it is called; it must not end() the channel.
class Channel {
 public:
  Channel() : buffer_(buffer_bytes) {}
  Channel(Channel&&) = default;
  Channel& operator=(Channel&&) = default;

  void submit(std::unique_ptr<Exchange> exchange);

  /// Fills `pieces` with the memory to send next, and returns the number of pieces. 0: there is nothing to send, or the channel
  /// is broken.
  [[nodiscard]] std::size_t outgoing(std::span<iovec> pieces);
  /// Reports that this number of bytes of the outgoing pieces has been sent.
  void sent(std::size_t bytes);
  /// Reports that the transport has taken bytes of the first piece; their number is not known yet.
  void begun() { first_begun_ = true; }

  /// Returns the memory for the next bytes from the server, in this order. No other call may be made before received(), because
  /// the memory of an exchange that ends meanwhile becomes invalid.
  [[nodiscard]] std::array<iovec, 2> incoming();
  /// Reports that this number of bytes has arrived in the memory of incoming().
  void received(std::size_t bytes);

  /// Returns true if the connection cannot be used any more: a reply was malformed or had no command, or a command was given up
  /// after its first byte.
  [[nodiscard]] bool is_broken() const;
  /// Calls broken() of each exchange that is still wanted, and resets the channel to its initial state.
  void end();

  /// Returns the number of exchanges that have not ended.
  [[nodiscard]] std::size_t exchanges() const { return unsent_.size() + unanswered_.size(); }
  /// Returns true if the server has a complete command that it has not answered.
  [[nodiscard]] bool owes_answer() const { return !unanswered_.empty(); }
  /// Returns the number of bytes since construction or the last end().
  [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_sent_; }
  [[nodiscard]] std::uint64_t bytes_received() const { return bytes_received_; }
  /// Returns the sum of the `window_bytes` of these exchanges.
  [[nodiscard]] std::size_t window_bytes() const { return window_bytes_; }

 private:
  struct Entry {
    std::unique_ptr<Exchange> exchange;
    std::size_t sent = 0;  ///< bytes of the exchange that have been sent
    std::uint32_t replies_left = 1;
  };

  enum class BulkGoes : std::uint8_t { nowhere, to_builder, to_exchange };

  /// Returns the entry whose reply comes next, or null. The first replies of an exchange may come before its last command is
  /// sent.
  [[nodiscard]] Entry* answering();
  /// Returns the exchange of that entry, or null if it is no longer wanted.
  [[nodiscard]] Exchange* answered();
  void parse();
  [[nodiscard]] std::size_t take_payload(std::span<const std::byte> bytes);
  void handle(const RespItem& item);
  void end_reply(RespValue reply);
  [[nodiscard]] std::span<std::byte> room();
  void landed(std::size_t bytes);
  void leave_out_unwanted();

  static constexpr std::size_t buffer_bytes = RespReader::line_max;
  /// The largest number of payload bytes that arrive before they are reported to their exchange. It reads them again for a
  /// checksum while they are still in the processor's cache.
  static constexpr std::size_t piece_bytes = std::size_t{64} << 10;
  static constexpr std::size_t sink_bytes = std::size_t{64} << 10;

  std::deque<Entry> unsent_;      ///< the first may be sent in part
  std::deque<Entry> unanswered_;  ///< completely sent
  bool first_begun_ = false;
  std::size_t window_bytes_ = 0;
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;

  RespReader reader_;
  RespBuilder builder_;
  bool building_ = false;  ///< the current reply goes to builder_ as a whole
  BulkGoes bulk_goes_ = BulkGoes::nowhere;
  bool malformed_ = false;
  std::vector<std::byte> buffer_;  ///< bytes that have arrived and have not been parsed yet
  std::size_t buffered_ = 0;
  std::vector<std::byte> sink_;
  bool room_is_sink_ = false;  ///< the last room() returned the sink
  std::size_t landing_ = 0;    ///< size of the first piece of the last incoming()
};

}  // namespace terrace
