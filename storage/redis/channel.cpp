#include "storage/redis/channel.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace terrace {
namespace {

iovec piece_of(const void* data, std::size_t bytes) { return {.iov_base = const_cast<void*>(data), .iov_len = bytes}; }

}  // namespace

void Channel::submit(std::unique_ptr<Exchange> exchange) {
  TERRACE_CHECK(exchange->replies > 0 && exchange->bytes_to_send() > 0);
  window_bytes_ += exchange->window_bytes;
  const std::uint32_t replies = exchange->replies;
  unsent_.push_back({.exchange = std::move(exchange), .replies_left = replies});
}

void Channel::leave_out_unwanted() {
  while (!unsent_.empty() && unsent_.front().sent == 0 && !first_begun_ && !unsent_.front().exchange->wanted()) {
    window_bytes_ -= unsent_.front().exchange->window_bytes;
    unsent_.pop_front();
  }
}

bool Channel::is_broken() const {
  if (malformed_) return true;
  if (unsent_.empty()) return false;
  const Entry& first = unsent_.front();
  if ((first.sent == 0 && !first_begun_) || first.exchange->wanted()) return false;
  return std::ranges::any_of(first.exchange->segments, [](const Exchange::Segment& each) { return !each.payload.empty(); });
}

std::size_t Channel::outgoing(std::span<iovec> pieces) {
  leave_out_unwanted();
  if (is_broken()) return 0;
  std::size_t count = 0;
  for (const Entry& entry : unsent_) {
    const Exchange& exchange = *entry.exchange;
    // An unwanted exchange that has not begun is skipped only when it is the first one; later exchanges wait until then.
    if (&entry != &unsent_.front() && !exchange.wanted()) return count;
    std::size_t skip = entry.sent;
    for (const Exchange::Segment& segment : exchange.segments) {
      for (const iovec piece :
           {piece_of(segment.text.data(), segment.text.size()), piece_of(segment.payload.data(), segment.payload.size())}) {
        const std::size_t skipped = std::min(skip, piece.iov_len);
        skip -= skipped;
        if (skipped == piece.iov_len) continue;
        if (count == pieces.size()) return count;
        pieces[count++] = piece_of(static_cast<const std::byte*>(piece.iov_base) + skipped, piece.iov_len - skipped);
      }
    }
  }
  return count;
}

void Channel::sent(std::size_t bytes) {
  if (bytes > 0) first_begun_ = false;
  bytes_sent_ += bytes;
  while (bytes > 0) {
    TERRACE_CHECK(!unsent_.empty());
    Entry& first = unsent_.front();
    const std::size_t all = first.exchange->bytes_to_send();
    const std::size_t now = std::min(bytes, all - first.sent);
    first.sent += now;
    bytes -= now;
    if (first.sent < all) return;
    unanswered_.push_back(std::move(first));
    unsent_.pop_front();
  }
}

Channel::Entry* Channel::answering() {
  if (!unanswered_.empty()) return &unanswered_.front();
  return !unsent_.empty() && unsent_.front().sent > 0 ? &unsent_.front() : nullptr;
}

Exchange* Channel::answered() {
  const Entry* const entry = answering();
  return entry != nullptr && entry->exchange->wanted() ? entry->exchange.get() : nullptr;
}

std::span<std::byte> Channel::room() {
  std::span<std::byte> room;
  if (bulk_goes_ == BulkGoes::to_exchange) {
    if (Exchange* const exchange = answered()) room = exchange->room();
  }
  room_is_sink_ = room.empty();
  if (room_is_sink_) {
    sink_.resize(sink_bytes);
    room = sink_;
  }
  return room.first(std::min({room.size(), reader_.payload_left(), piece_bytes}));
}

void Channel::landed(std::size_t bytes) {
  reader_.took(bytes);
  if (room_is_sink_) return;
  if (Exchange* const exchange = answered()) exchange->landed(bytes);
}

std::array<iovec, 2> Channel::incoming() {
  std::array<iovec, 2> pieces{};
  landing_ = 0;
  // A bulk that is kept as a whole is short, and goes through the buffer.
  if (reader_.payload_left() > 0 && bulk_goes_ != BulkGoes::to_builder) {
    const std::span<std::byte> there = room();
    pieces[0] = piece_of(there.data(), there.size());
    landing_ = there.size();
    if (landing_ < reader_.payload_left()) return pieces;
  }
  // The bytes after the bulk go through the buffer.
  pieces[1] = piece_of(buffer_.data() + buffered_, buffer_.size() - buffered_);
  return pieces;
}

void Channel::received(std::size_t bytes) {
  bytes_received_ += bytes;
  const std::size_t direct = std::min(bytes, std::exchange(landing_, 0));
  if (direct > 0) landed(direct);
  buffered_ += bytes - direct;
  TERRACE_CHECK(buffered_ <= buffer_.size());
  parse();
}

/// Returns the number of bytes that were consumed.
std::size_t Channel::take_payload(std::span<const std::byte> bytes) {
  if (bulk_goes_ == BulkGoes::to_builder) {
    const std::size_t taken = std::min(bytes.size(), reader_.payload_left());
    if (!builder_.add_payload({reinterpret_cast<const char*>(bytes.data()), taken})) malformed_ = true;
    reader_.took(taken);
    return taken;
  }
  const std::span<std::byte> there = room();
  const std::size_t taken = std::min(bytes.size(), there.size());
  std::memcpy(there.data(), bytes.data(), taken);
  landed(taken);
  return taken;
}

void Channel::parse() {
  std::size_t read = 0;
  while (!malformed_) {
    const std::span<const std::byte> left = std::span{buffer_}.first(buffered_).subspan(read);
    if (reader_.payload_left() > 0) {
      if (left.empty()) break;
      read += take_payload(left);
      continue;
    }
    const RespItem item = reader_.next({reinterpret_cast<const char*>(left.data()), left.size()});
    if (item.kind == RespItem::Kind::more) break;
    read += item.consumed;
    handle(item);
  }
  std::memmove(buffer_.data(), buffer_.data() + read, buffered_ - read);
  buffered_ -= read;
}

void Channel::handle(const RespItem& item) {
  using Kind = RespItem::Kind;
  bulk_goes_ = BulkGoes::nowhere;
  if (item.kind == Kind::malformed) malformed_ = true;
  if (malformed_ || item.aside) return;
  // A reply without a command.
  if (answering() == nullptr) {
    malformed_ = true;
    return;
  }
  const bool bulk = item.kind == Kind::bulk || item.kind == Kind::bulk_error;
  if (item.depth == 0 && item.kind != Kind::bulk_end) {
    Exchange* const exchange = answered();
    building_ = item.kind == Kind::bulk_error || (exchange != nullptr && exchange->whole_replies);
    // The first element determines the kind of the reply, even if the other elements are not kept.
    if (!building_ && !builder_.add(item)) malformed_ = true;
    if (!building_ && bulk && exchange != nullptr) {
      bulk_goes_ = BulkGoes::to_exchange;
      exchange->bulk_begins(static_cast<std::size_t>(item.integer));
    }
  }
  if (building_) {
    if (bulk) bulk_goes_ = BulkGoes::to_builder;
    if (!builder_.add(item)) malformed_ = true;
  }
  if (!malformed_ && item.reply_ends) {
    building_ = false;
    end_reply(builder_.take());
  }
}

void Channel::end_reply(RespValue reply) {
  Entry& first = *answering();
  if (--first.replies_left > 0) {
    if (first.exchange->wanted()) first.exchange->replied(std::move(reply));
    return;
  }
  if (unanswered_.empty()) {
    malformed_ = true;  // the last reply arrived before the last command was sent
    return;
  }
  const Entry ended = std::move(first);
  unanswered_.pop_front();
  window_bytes_ -= ended.exchange->window_bytes;
  if (ended.exchange->wanted()) ended.exchange->replied(std::move(reply));
}

void Channel::end() {
  const Channel ended = std::exchange(*this, Channel{});
  for (const std::deque<Entry>* const entries : {&ended.unanswered_, &ended.unsent_}) {
    for (const Entry& entry : *entries) {
      if (entry.exchange->wanted()) entry.exchange->broken();
    }
  }
}

}  // namespace terrace
