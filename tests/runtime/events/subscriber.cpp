#include "tests/runtime/events/subscriber.hpp"

#include <bit>
#include <cstring>
#include <functional>
#include <stdexcept>

namespace terrace::test {
namespace {

/// Reads MessagePack.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_{bytes} {}

  std::size_t array() { return header(0x90, 0xdd); }
  std::size_t map() { return header(0x80, 0xdf); }
  std::string text() { return std::string{take(header(0xa0, 0xdb))}; }
  std::optional<std::string> text_or_nil() {
    if (is_nil()) return std::nullopt;
    return text();
  }
  std::optional<BlockKey> key_or_nil() {
    if (is_nil()) return std::nullopt;
    return key();
  }
  BlockKey key() {
    expect(number(1) == 0xc4 && number(1) == sizeof(BlockKey), "a key of 32 bytes");
    BlockKey key;
    std::memcpy(key.bytes.data(), take(sizeof key.bytes).data(), sizeof key.bytes);
    return key;
  }
  std::uint64_t unsigned_number() {
    const auto first = number(1);
    if (first < 0x80) return first;
    expect(first >= 0xcc && first <= 0xcf, "a number");
    return number(1U << (first - 0xcc));
  }
  double real() {
    expect(number(1) == 0xcb, "a double");
    return std::bit_cast<double>(number(8));
  }
  void nil() { expect(is_nil(), "nil"); }
  void end() const { expect(bytes_.empty(), "the end"); }

 private:
  static void expect(bool condition, const char* what) {
    if (!condition) throw std::runtime_error{std::string{"expected "} + what};
  }
  std::string_view take(std::size_t count) {
    expect(count <= bytes_.size(), "more bytes");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    for (const char byte : take(bytes)) value = value << 8U | static_cast<unsigned char>(byte);
    return value;
  }
  std::size_t header(unsigned small, unsigned large) {
    const auto first = number(1);
    if (first == large) return number(4);
    expect((first & 0xF0U) == small, "another type");
    return first & 0xFU;
  }
  bool is_nil() {
    if (bytes_.empty() || bytes_.front() != '\xc0') return false;
    (void)take(1);
    return true;
  }

  std::string_view bytes_;
};

WireEvent decode_event(Reader& in) {
  WireEvent event;
  const std::map<std::string, std::function<void()>> fields{
      {"type", [&] { event.type = in.text(); }},
      {"block_hashes",
       [&] {
         for (std::size_t left = in.array(); left > 0; --left) event.keys.push_back(in.key());
       }},
      {"parent_block_hash", [&] { event.parent = in.key_or_nil(); }},
      {"token_ids",
       [&] {
         for (std::size_t left = in.array(); left > 0; --left) event.tokens.push_back(static_cast<TokenId>(in.unsigned_number()));
       }},
      {"block_size", [&] { event.block_tokens = in.unsigned_number(); }},
      {"lora_id", [&] { in.nil(); }},
      {"lora_name", [&] { event.adapter = in.text_or_nil().value_or(""); }},
      {"medium", [&] { event.medium = in.text(); }},
      {"group_idx", [&] { event.group = in.unsigned_number(); }},
  };
  std::set<std::string> names;
  for (std::size_t left = in.map(); left > 0; --left) {
    const std::string name = in.text();
    if (!names.insert(name).second) throw std::runtime_error{name + " twice"};
    fields.at(name)();
  }
  const std::size_t wanted = event.type == "BlockStored" ? 9 : event.type == "BlockRemoved" ? 4 : 1;
  if (names.size() != wanted) throw std::runtime_error{event.type + " with " + std::to_string(names.size()) + " fields"};
  return event;
}

}  // namespace

WireBatch decode_batch(std::string_view payload) {
  Reader in{payload};
  if (in.array() != 3) throw std::runtime_error{"a batch has three parts"};
  WireBatch batch;
  batch.time = in.real();
  for (std::size_t left = in.array(); left > 0; --left) batch.events.push_back(decode_event(in));
  batch.rank = in.unsigned_number();
  in.end();
  return batch;
}

bool Subscriber::take(std::uint64_t sequence, std::string_view payload) {
  if (sequence != next_) return sequence < next_;
  ++next_;
  for (const WireEvent& event : decode_batch(payload).events) {
    if (event.type == "AllBlocksCleared") copies_.clear();
    std::optional<BlockKey> parent = event.parent;
    for (std::size_t i = 0; i < event.keys.size(); ++i) {
      const BlockKey& key = event.keys[i];
      const Place place{event.group, key, event.medium};
      if (event.type == "BlockRemoved") {
        copies_.erase(place);
        continue;
      }
      if (parent && !seen_.contains({event.group, *parent})) {
        ++ignored_;
        continue;
      }
      seen_.insert({event.group, key});
      const auto first = event.tokens.begin() + static_cast<std::ptrdiff_t>(i * event.block_tokens);
      copies_[place] = {first, first + static_cast<std::ptrdiff_t>(event.block_tokens)};
      parent = key;
    }
  }
  return true;
}

}  // namespace terrace::test
