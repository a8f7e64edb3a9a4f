#include "tests/fuzz/fuzzed.hpp"

#include "base/check.hpp"
#include "storage/redis/channel.hpp"
#include "storage/redis/slot_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

constexpr std::size_t room_bytes = 300;

std::string described(const RespValue& value) {
  std::string items;
  for (const RespValue& item : value.items) items += described(item);
  return fmt::format("{}:{}:{}({})", static_cast<int>(value.kind), value.integer, value.text, items);
}

/// All that an exchange hears.
struct Heard {
  std::string text{};
  std::array<std::byte, room_bytes> memory{};
  std::size_t landed = 0;
};

class Hearing final : public Exchange {
 public:
  Hearing(Heard& heard, bool is_wanted, bool whole) : heard_{heard}, wanted_{is_wanted} {
    segments[0].text.push_back('x');
    whole_replies = whole;
    replies = 2;
  }
  [[nodiscard]] bool wanted() const override { return wanted_; }
  void bulk_begins(std::size_t bytes) override {
    TERRACE_CHECK(!whole_replies && wanted_);
    heard_.text += fmt::format("bulk {};", bytes);
    heard_.landed = 0;
  }
  [[nodiscard]] std::span<std::byte> room() override { return std::span{heard_.memory}.subspan(heard_.landed); }
  void landed(std::size_t bytes) override {
    TERRACE_CHECK(bytes <= room_bytes - heard_.landed);
    heard_.landed += bytes;
  }
  void replied(RespValue reply) override {
    TERRACE_CHECK(wanted_);
    const RedisAddress asked{.host = "asked", .port = 1};
    if (const auto redirection = parse_redirection(reply.text, asked)) {
      TERRACE_CHECK(redirection->slot < redis_slot_count && redirection->node.port != 0 && !redirection->node.host.empty());
    }
    if (const auto ranges = parse_slots(reply, asked)) {
      for (const RedisSlotRange& range : *ranges) {
        TERRACE_CHECK(range.first <= range.last && range.last < redis_slot_count && range.master.port != 0);
      }
    }
    heard_.text += fmt::format("{};", described(reply));
  }
  void broken() override { heard_.text += "broken;"; }

 private:
  Heard& heard_;
  const bool wanted_;
};

/// The replies that all three readers hear when so many bytes arrive at once.
std::string outcome(std::string_view bytes, std::size_t at_once) {
  std::array<Heard, 3> heard;
  Channel channel;
  for (std::size_t n = 0; n < heard.size(); ++n) channel.submit(std::make_unique<Hearing>(heard[n], n != 2, n == 1));
  channel.sent(heard.size());
  while (!bytes.empty() && !channel.is_broken()) {
    std::size_t now = 0;
    for (const iovec& piece : channel.incoming()) {
      const std::size_t part = std::min({piece.iov_len, bytes.size(), at_once - now});
      if (part > 0) std::memcpy(piece.iov_base, bytes.data(), part);
      bytes.remove_prefix(part);
      now += part;
    }
    TERRACE_CHECK(now > 0);
    channel.received(now);
  }
  std::string text = channel.is_broken() ? "malformed;" : "";
  channel.end();
  TERRACE_CHECK(channel.exchanges() == 0 && channel.window_bytes() == 0);
  for (const Heard& each : heard) {
    text += each.text + "|";
    text.append(reinterpret_cast<const char*>(each.memory.data()), each.landed);
  }
  return text;
}

}  // namespace

void run_redis_replies(std::string_view bytes) {
  const std::string all_at_once = outcome(bytes, bytes.size() + 1);
  for (const std::size_t at_once : {1U, 2U, 61U}) TERRACE_CHECK(outcome(bytes, at_once) == all_at_once);
}

}  // namespace terrace::test
