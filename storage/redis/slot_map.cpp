#include "storage/redis/slot_map.hpp"

#include <boost/crc.hpp>

#include <charconv>
#include <utility>

namespace terrace {
namespace {

bool is_slot(const RespValue& value) {
  return value.kind == RespItem::Kind::integer && std::cmp_greater_equal(value.integer, 0) &&
         std::cmp_less(value.integer, redis_slot_count);
}

}  // namespace

std::uint32_t redis_slot(std::string_view name) {
  if (const std::size_t open = name.find('{'); open != std::string_view::npos) {
    const std::size_t close = name.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) name = name.substr(open + 1, close - open - 1);
  }
  boost::crc_optimal<16, 0x1021> crc;
  crc.process_bytes(name.data(), name.size());
  return static_cast<std::uint32_t>(crc.checksum() % redis_slot_count);
}

std::optional<std::vector<RedisSlotRange>> parse_slots(const RespValue& reply, const RedisAddress& asked) {
  if (!reply.is_list() || reply.items.size() > redis_slot_count) return std::nullopt;
  std::vector<RedisSlotRange> ranges;
  for (const RespValue& entry : reply.items) {
    if (entry.items.size() < 3 || !is_slot(entry.items[0]) || !is_slot(entry.items[1])) return std::nullopt;
    const std::vector<RespValue>& node = entry.items[2].items;
    if (node.size() < 2 || node[1].kind != RespItem::Kind::integer || !std::in_range<std::uint16_t>(node[1].integer)) {
      return std::nullopt;
    }
    RedisSlotRange range{.first = static_cast<std::uint32_t>(entry.items[0].integer),
                         .last = static_cast<std::uint32_t>(entry.items[1].integer)};
    if (range.first > range.last) return std::nullopt;
    // "?": the node does not know its own name.
    const bool named = node[0].is_text() && !node[0].text.empty() && node[0].text != "?";
    range.master = {.host = named ? node[0].text : asked.host, .port = static_cast<std::uint16_t>(node[1].integer)};
    if (!is_host(range.master.host)) return std::nullopt;
    if (range.master.port != 0) ranges.push_back(std::move(range));
  }
  return ranges;
}

std::optional<RedisRedirection> parse_redirection(std::string_view error, const RedisAddress& asked) {
  RedisRedirection redirection;
  if (error.starts_with("MOVED ")) error.remove_prefix(6);
  else if (error.starts_with("ASK ")) error.remove_prefix(4), redirection.for_good = false;
  else return std::nullopt;
  const char* const end = error.data() + error.size();
  const auto [stop, wrong] = std::from_chars(error.data(), end, redirection.slot);
  if (wrong != std::errc{} || stop == end || *stop != ' ' || redirection.slot >= redis_slot_count) return std::nullopt;
  const std::string_view place{stop + 1, static_cast<std::size_t>(end - stop - 1)};
  // The port follows the last colon, also of an IPv6 address, which has no brackets here.
  const std::size_t colon = place.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::uint16_t port = 0;
  const auto [port_end, bad_port] = std::from_chars(place.data() + colon + 1, end, port);
  if (bad_port != std::errc{} || port_end != end || port == 0) return std::nullopt;
  const std::string_view host = place.substr(0, colon);
  redirection.node = {.host = host.empty() || host == "?" ? asked.host : std::string{host}, .port = port};
  if (!is_host(redirection.node.host)) return std::nullopt;
  return redirection;
}

}  // namespace terrace
