#include "storage/redis/resp_reader.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace terrace {
namespace {

bool read_integer(std::string_view text, std::int64_t& value) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && stop == end && !text.empty();
}

constexpr RespItem malformed{.kind = RespItem::Kind::malformed};

}  // namespace

void RespReader::took(std::size_t bytes) {
  TERRACE_CHECK(bytes <= payload_left_);
  payload_left_ -= bytes;
}

RespItem RespReader::next(std::string_view bytes) {
  TERRACE_CHECK(payload_left_ == 0);
  if (in_bulk_) {
    if (bytes.size() < 2) return bytes.empty() || bytes[0] == '\r' ? RespItem{} : malformed;
    if (!bytes.starts_with("\r\n")) return malformed;
    in_bulk_ = false;
    const auto depth = static_cast<std::uint32_t>(levels_.size());
    RespItem item{.kind = RespItem::Kind::bulk_end, .consumed = 2, .depth = depth, .aside = aside()};
    item.reply_ends = element_ends();
    return item;
  }
  const std::string_view start = bytes.substr(0, line_max);
  const std::size_t end = start.find('\r');
  if (end == std::string_view::npos) return start.size() < line_max ? RespItem{} : malformed;
  if (end + 1 == bytes.size()) return {};
  if (end == 0 || bytes[end + 1] != '\n') return malformed;
  RespItem item = read_line(bytes[0], bytes.substr(1, end - 1));
  item.consumed = end + 2;
  return item;
}

RespItem RespReader::read_line(char type, std::string_view line) {
  using Kind = RespItem::Kind;
  RespItem item{.depth = static_cast<std::uint32_t>(levels_.size()), .aside = aside()};
  switch (type) {
    case '+':  // text
    case ',':  // a floating-point number
    case '(':  // a large integer
    case '-':  // an error
      item.kind = type == '-' ? Kind::error : Kind::text;
      item.text = line;
      break;
    case ':':
      item.kind = Kind::integer;
      if (!read_integer(line, item.integer)) return malformed;
      break;
    case '#':
      item.kind = Kind::integer;
      item.integer = line == "t" ? 1 : 0;
      if (line != "t" && line != "f") return malformed;
      break;
    case '_':
      item.kind = Kind::null;
      if (!line.empty()) return malformed;
      break;
    case '$':
    case '=':    // text with its format
    case '!': {  // an error
      std::int64_t length = 0;
      if (!read_integer(line, length) || length < -1 || length > bulk_max) return malformed;
      if (length == -1) {
        if (type != '$') return malformed;
        item.kind = Kind::null;
        break;
      }
      item.kind = type == '!' ? Kind::bulk_error : Kind::bulk;
      item.integer = length;
      payload_left_ = static_cast<std::size_t>(length);
      in_bulk_ = true;
      return item;
    }
    case '*':
    case '~':
    case '%':
    case '>':
    case '|': {
      std::int64_t elements = 0;
      if (!read_integer(line, elements) || elements < -1 || elements > list_max) return malformed;
      if (elements >= 0) return begin_list(type, elements);
      if (type != '*') return malformed;
      item.kind = Kind::null;
      break;
    }
    default: return malformed;
  }
  item.reply_ends = element_ends();
  return item;
}

RespItem RespReader::begin_list(char type, std::int64_t elements) {
  // A push comes between replies.
  if (levels_.size() == depth_max || (type == '>' && !levels_.empty())) return malformed;
  RespItem item{.kind = RespItem::Kind::list, .depth = static_cast<std::uint32_t>(levels_.size())};
  item.integer = type == '%' || type == '|' ? 2 * elements : elements;
  item.aside = aside() || type == '>' || type == '|';
  if (item.integer > 0) levels_.push_back({.left = item.integer, .aside = item.aside, .attribute = type == '|'});
  else if (type != '|') item.reply_ends = element_ends() && !item.aside;
  return item;
}

bool RespReader::element_ends() {
  bool push = false;
  while (!levels_.empty()) {
    Level& level = levels_.back();
    if (--level.left > 0) return false;
    const Level ended = level;
    levels_.pop_back();
    // The element that the attribute describes is still to come, so none has ended.
    if (ended.attribute) return false;
    push = ended.aside;
  }
  return !push;
}

// ---- whole replies ---------------------------------------------------------------------------------------------------------

std::string readable(std::string_view words) {
  constexpr std::size_t bytes_max = 512;
  std::string text{words.substr(0, bytes_max)};
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

bool RespValue::is_error(std::string_view word) const {
  return is_error() && text.starts_with(word) && (text.size() == word.size() || text[word.size()] == ' ');
}

RespValue& RespBuilder::place(std::uint32_t depth) {
  if (depth == 0) return root_;
  RespValue* list = &root_;
  for (std::uint32_t level = 1; level < depth; ++level) {
    TERRACE_CHECK(!list->items.empty());
    list = &list->items.back();
  }
  return list->items.emplace_back();
}

bool RespBuilder::add(const RespItem& item) {
  using Kind = RespItem::Kind;
  if (item.kind == Kind::bulk_end) return true;
  bytes_ += sizeof(RespValue) + item.text.size();
  if (bytes_ > bytes_max) return false;
  RespValue& value = place(item.depth);
  value.kind = item.kind == Kind::bulk_error ? Kind::error : item.kind;
  value.integer = item.integer;
  value.text = item.text;
  return true;
}

bool RespBuilder::add_payload(std::string_view bytes) {
  bytes_ += bytes.size();
  if (bytes_ > bytes_max) return false;
  RespValue* value = &root_;
  while (!value->items.empty()) value = &value->items.back();
  value->text += bytes;
  return true;
}

RespValue RespBuilder::take() {
  bytes_ = 0;
  if (root_.is_error()) root_.text = readable(root_.text);
  return std::exchange(root_, RespValue{});
}

}  // namespace terrace
