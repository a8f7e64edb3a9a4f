#include "storage/redis/resp_value.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <utility>

namespace terrace {

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
