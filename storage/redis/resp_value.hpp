#pragma once

#include "storage/redis/resp_reader.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace terrace {

/// Makes text of a server safe for terminals and JSON: at most 512 characters, only printable ASCII. A `?` replaces each other
/// byte.
[[nodiscard]] std::string readable(std::string_view words);

/// A reply of the Redis protocol as a whole. Plain data.
struct RespValue {
  /// text, error, integer, null, list or bulk. An error that was sent as a bulk has the kind `error`; a text that was sent as a
  /// bulk has the kind `bulk`.
  RespItem::Kind kind = RespItem::Kind::null;
  std::int64_t integer = 0;  ///< for a bulk that was not kept: its length
  std::string text{};        ///< for an error: its readable() text
  std::vector<RespValue> items{};

  [[nodiscard]] bool is_error() const { return kind == RespItem::Kind::error; }
  [[nodiscard]] bool is_text() const { return kind == RespItem::Kind::text || kind == RespItem::Kind::bulk; }
  [[nodiscard]] bool is_list() const { return kind == RespItem::Kind::list; }
  /// Returns true for an error whose first word is this.
  [[nodiscard]] bool is_error(std::string_view word) const;
};

/// Builds a reply from its elements, up to a bound. Threads: one.
class RespBuilder {
 public:
  static constexpr std::size_t bytes_max = std::size_t{8} << 20;

  /// Adds an element that is not aside. Returns false if the reply is too large.
  [[nodiscard]] bool add(const RespItem& item);
  /// Adds the next bytes of the current bulk.
  [[nodiscard]] bool add_payload(std::string_view bytes);
  /// Returns the complete reply. The builder is then empty.
  [[nodiscard]] RespValue take();

 private:
  [[nodiscard]] RespValue& place(std::uint32_t depth);

  RespValue root_;
  std::size_t bytes_ = 0;
};

}  // namespace terrace
