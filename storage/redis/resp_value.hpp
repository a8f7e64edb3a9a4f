#pragma once

#include "storage/redis/resp_reader.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace terrace {

/// Words of a server for people, who may read them on a terminal or in JSON: at most 512 characters, and no others than printable
/// ones of ASCII. A `?` stands for each other byte.
[[nodiscard]] std::string readable(std::string_view words);

/// A reply of the Redis protocol as a whole. Plain data.
struct RespValue {
  /// text, error, integer, null, list or bulk. An error that was sent as a bulk is an error, and a text that was is a bulk.
  RespItem::Kind kind = RespItem::Kind::null;
  std::int64_t integer = 0;  ///< of a bulk that was not kept: its length
  std::string text{};        ///< of an error: readable()
  std::vector<RespValue> items{};

  [[nodiscard]] bool is_error() const { return kind == RespItem::Kind::error; }
  [[nodiscard]] bool is_text() const { return kind == RespItem::Kind::text || kind == RespItem::Kind::bulk; }
  [[nodiscard]] bool is_list() const { return kind == RespItem::Kind::list; }
  /// True for an error of this kind: its first word.
  [[nodiscard]] bool is_error(std::string_view word) const;
};

/// Builds a reply from its elements, up to a bound. Threads: one.
class RespBuilder {
 public:
  static constexpr std::size_t bytes_max = std::size_t{8} << 20;

  /// Adds an element that is not aside. Returns false if the reply is too large.
  [[nodiscard]] bool add(const RespItem& item);
  /// Adds the next bytes of the present bulk.
  [[nodiscard]] bool add_payload(std::string_view bytes);
  /// The reply, which is complete. The builder is then empty.
  [[nodiscard]] RespValue take();

 private:
  [[nodiscard]] RespValue& place(std::uint32_t depth);

  RespValue root_;
  std::size_t bytes_ = 0;
};

}  // namespace terrace
