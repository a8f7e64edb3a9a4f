#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace terrace {

/// One element of a reply of the Redis protocol.
struct RespItem {
  enum class Kind : std::uint8_t {
    more,        ///< the element is incomplete; pass the bytes again together with the following ones
    malformed,   ///< not a reply of the protocol, or beyond the limits; the connection cannot be used any more
    text,        ///< `text`: a simple string, or a number that is not an integer
    error,       ///< `text`: an error, "MOVED 7 host:port"
    integer,     ///< `integer`; a boolean is 0 or 1
    null,        ///< null, in any of its encodings
    bulk,        ///< `integer` bytes follow; payload_left() and took() say which of them have not been taken yet
    bulk_error,  ///< the same, but the bytes are the text of an error
    bulk_end,    ///< a bulk has ended
    list,        ///< `integer` elements follow; for a map, keys and values are counted
  };

  Kind kind = Kind::more;
  std::size_t consumed = 0;  ///< bytes that belong to the element; do not pass them again
  std::int64_t integer = 0;
  std::string_view text{};  ///< refers to the bytes that were passed
  std::uint32_t depth = 0;  ///< the number of lists that contain the element
  bool aside = false;       ///< the element is part of a push or an attribute, which is not a reply to a command
  bool reply_ends = false;  ///< this element completes a reply
};

/// Reads replies of the Redis protocol, versions 2 and 3, element by element, from bytes that arrive in pieces. The payload of a
/// bulk is not passed to next(): the caller copies it to its destination, and reports it by took(). A state machine without I/O;
/// it keeps no bytes.
///
/// Limits: a line has at most `line_max` bytes, a bulk `bulk_max`, a list `list_max` elements, and lists are nested at most
/// `depth_max` deep. Streamed strings and lists of unknown length, which no server sends without a request, are malformed.
/// Threads: one.
class RespReader {
 public:
  static constexpr std::size_t line_max = 4096;
  static constexpr std::int64_t bulk_max = std::int64_t{512} << 20;
  static constexpr std::int64_t list_max = 1 << 20;
  static constexpr std::size_t depth_max = 8;

  /// Reads the element at the start of `bytes`. Requires that payload_left() is 0. After `malformed` it is not called again.
  [[nodiscard]] RespItem next(std::string_view bytes);

  /// Returns the bytes of the current bulk that have not been taken.
  [[nodiscard]] std::size_t payload_left() const { return payload_left_; }
  /// Reports that the next bytes of the bulk have been taken; at most payload_left().
  void took(std::size_t bytes);

 private:
  struct Level {
    std::int64_t left = 0;
    bool aside = false;      ///< a push or an attribute, or in one
    bool attribute = false;  ///< an attribute: the element that it describes follows
  };

  [[nodiscard]] RespItem read_line(char type, std::string_view line);
  [[nodiscard]] RespItem begin_list(char type, std::int64_t elements);
  [[nodiscard]] bool aside() const { return !levels_.empty() && levels_.back().aside; }
  /// Handles the end of an element. Returns true if it completes a reply.
  [[nodiscard]] bool element_ends();

  std::vector<Level> levels_;
  std::size_t payload_left_ = 0;
  bool in_bulk_ = false;
};

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
