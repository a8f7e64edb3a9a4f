#pragma once

#include "storage/redis/exchange.hpp"
#include "storage/redis/resp_reader.hpp"
#include "storage/redis/resp_value.hpp"

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace terrace {

/// The two directions of one connection to a server: commands go out in order, one after the other without waiting, and replies
/// come back in the same order. It is a state machine without I/O, and without a copy of what is large: outgoing() says which
/// memory to send from, incoming() which memory to receive into.
///
/// Exchanges that nobody wants any more do not disturb the others: a command that was not begun is left out, and a reply is
/// dropped as it arrives. Only a command that was sent in part cannot be given up alone: then is_broken() is true.
///
/// Threads: one. An exchange may submit() another one while it is called; it must not end() the channel.
class Channel {
 public:
  Channel();
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void submit(std::unique_ptr<Exchange> exchange);

  /// Fills `pieces` with what is to be sent next, and returns how many there are; 0: nothing, or broken.
  [[nodiscard]] std::size_t outgoing(std::span<iovec> pieces);
  /// So many of these bytes have been sent.
  void sent(std::size_t bytes);
  /// The transport has taken bytes of the first piece, and does not say yet how many.
  void begun() { first_begun_ = true; }

  /// Returns where the next bytes from the server go, in this order. Until received() nothing else may happen: an exchange that
  /// is given up takes its memory along.
  [[nodiscard]] std::array<iovec, 2> incoming();
  /// So many bytes have arrived there.
  void received(std::size_t bytes);

  /// The connection is of no more use: a reply was malformed or unasked, or a command was given up after its first byte.
  [[nodiscard]] bool is_broken() const;
  /// Calls broken() of each exchange that is wanted. The channel is then as new.
  void end();

  /// Exchanges that have not ended.
  [[nodiscard]] std::size_t exchanges() const { return unsent_.size() + unanswered_.size(); }
  /// The server has a whole command that it has not answered.
  [[nodiscard]] bool owes_answer() const { return !unanswered_.empty(); }
  /// Since construction.
  [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_sent_; }
  [[nodiscard]] std::uint64_t bytes_received() const { return bytes_received_; }
  /// The sum of their `window_bytes`.
  [[nodiscard]] std::size_t window_bytes() const { return window_bytes_; }

 private:
  struct Entry {
    std::unique_ptr<Exchange> exchange;
    std::size_t sent = 0;  ///< bytes of it
    std::uint32_t replies_left = 1;
  };

  enum class BulkGoes : std::uint8_t { nowhere, to_builder, to_exchange };

  /// The entry whose reply comes next, or null. The first replies of several commands may come before the last one is sent.
  [[nodiscard]] Entry* answering();
  /// Its exchange, or null if nobody wants it.
  [[nodiscard]] Exchange* answered();
  void parse();
  [[nodiscard]] std::size_t take_payload(std::span<const std::byte> bytes);
  void handle(const RespItem& item);
  void end_reply(RespValue reply);
  [[nodiscard]] std::span<std::byte> room();
  void landed(std::size_t bytes);
  void leave_out_unwanted();

  static constexpr std::size_t buffer_bytes = RespReader::line_max;
  /// At most so many bytes of a payload arrive before their exchange hears of them: it reads them again, for a checksum, and they
  /// shall still be in the processor's cache.
  static constexpr std::size_t piece_bytes = std::size_t{64} << 10;
  static constexpr std::size_t sink_bytes = std::size_t{64} << 10;

  std::deque<Entry> unsent_;      ///< the first may be sent in part
  std::deque<Entry> unanswered_;  ///< sent
  bool first_begun_ = false;
  std::size_t window_bytes_ = 0;
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;

  RespReader reader_;
  RespBuilder builder_;
  bool building_ = false;  ///< the present reply goes to builder_ as a whole
  BulkGoes bulk_goes_ = BulkGoes::nowhere;
  bool malformed_ = false;
  std::vector<std::byte> buffer_;  ///< bytes that have arrived and are not read yet
  std::size_t buffered_ = 0;
  std::vector<std::byte> sink_;
  bool room_is_sink_ = false;  ///< what room() returned last
  std::size_t landing_ = 0;    ///< size of the first piece that incoming() returned last
};

}  // namespace terrace
