#include "tests/fuzz/fuzzed.hpp"

#include "base/check.hpp"
#include "storage/io/little_endian.hpp"
#include "storage/shared/shared_value.hpp"
#include "tests/storage/shared/values.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

constexpr std::size_t value_change_bytes = 8;
constexpr std::size_t small = 600;
constexpr std::size_t large = std::size_t{16} << 10;

enum Flag : unsigned { sealed = 1, two_values = 2, corrected = 4, byte_by_byte = 8 };

/// Good values of one block, and of those with which it may be mixed up. They are made once.
struct GoodValues {
  explicit GoodValues(bool seals, std::size_t bytes) : secret{seals ? secret_of() : nullptr}, content(bytes) {
    fill(content, block.key);
    SharedValueWriter writer{secret};
    SharedValueWriter other_writer{seals ? secret_of("another secret, of another deployment") : nullptr};
    StoredBlock other = block;
    other.key = with_prefix64_of(block.key, 9);
    values = values_of(writer, block, fingerprint, content, write_id_of(1));
    others = {values_of(writer, block, fingerprint, content, write_id_of(2)),
              values_of(writer, other, fingerprint, content, write_id_of(1)),
              values_of(writer, block, fingerprint_of(2), content, write_id_of(1)),
              values_of(other_writer, other, fingerprint, content, write_id_of(1))};
  }

  StoredBlock block = child_of(root_block(1), 2);
  Fingerprint fingerprint = fingerprint_of(1);
  std::shared_ptr<const SharedSecret> secret;
  std::vector<std::byte> content;
  std::vector<Value> values;
  std::array<std::vector<Value>, 4> others;
};

const GoodValues& good_values(unsigned flags) {
  static const std::array<GoodValues, 4> all{GoodValues{false, small}, GoodValues{true, small}, GoodValues{false, large},
                                             GoodValues{true, large}};
  return all[flags % 4];
}

void change(std::vector<Value>& values, const GoodValues& good, std::span<const std::byte> input) {
  const auto kind = static_cast<ValueChange>(std::to_integer<unsigned>(input[0]) % 6);
  Value& value = values[std::to_integer<std::size_t>(input[1]) % values.size()];
  const std::size_t part = static_cast<std::size_t>(&value - values.data());
  const std::uint32_t number = load_le32(&input[4]);
  const std::size_t offset = value.empty() ? 0 : (load_le32(&input[2]) & 0xffff) % value.size();
  switch (kind) {
    case ValueChange::flipped:
      for (std::size_t i = 0; i < 4 && offset + i < value.size(); ++i) value[offset + i] ^= input[4 + i];
      break;
    case ValueChange::resized: value.resize(number % (2 * value.size() + 1)); break;
    case ValueChange::mixed: {
      const Value& other = good.others[number % good.others.size()][part];
      const std::size_t end = std::min(value.size(), other.size());
      if (offset < end)
        std::copy(other.begin() + static_cast<std::ptrdiff_t>(offset), other.begin() + static_cast<std::ptrdiff_t>(end),
                  value.begin() + static_cast<std::ptrdiff_t>(offset));
      break;
    }
    case ValueChange::swapped: std::swap(values.front(), values.back()); break;
    case ValueChange::removed: value.clear(); break;
    case ValueChange::raw: {
      const auto rest = input.subspan(value_change_bytes);
      std::copy_n(rest.begin(), std::min(rest.size(), value.size() - offset),
                  value.begin() + static_cast<std::ptrdiff_t>(offset));
    }
  }
}

/// The checksum of the payload stays that of the good value: a fuzzer could find those of other bytes, for it is no protection
/// against people.
void correct(std::vector<Value>& values, const GoodValues& good, bool headers_too) {
  for (std::size_t part = 0; part < values.size(); ++part) {
    Value& value = values[part];
    if (value.size() < shared_header_bytes) continue;
    std::memcpy(&value[112], &good.values[part][112], 8);
    if (headers_too) store_le64(&value[120], plain_checksum(std::span{value}.first(120)));
  }
}

}  // namespace

void run_shared_values(std::string_view bytes) {
  const auto input = std::as_bytes(std::span{bytes});
  const unsigned flags = input.empty() ? 0 : std::to_integer<unsigned>(input[0]);
  const GoodValues& good = good_values(flags);
  std::vector<Value> values = good.values;
  for (auto rest = input.subspan(std::min<std::size_t>(1, input.size())); rest.size() >= value_change_bytes;) {
    change(values, good, rest);
    const bool is_last = static_cast<ValueChange>(std::to_integer<unsigned>(rest[0]) % 6) == ValueChange::raw;
    rest = is_last ? rest.first(0) : rest.subspan(value_change_bytes);
  }
  if ((flags & sealed) == 0) correct(values, good, (flags & corrected) != 0);
  SharedValueReader reader{good.secret};
  std::vector<std::byte> into(good.content.size());
  const std::size_t piece_bytes = (flags & byte_by_byte) != 0 ? 1 : 4096;
  const auto why = read_values(reader, good.block, good.fingerprint, values, into, piece_bytes);
  TERRACE_CHECK(why || into == good.content);
  TERRACE_CHECK(values != good.values || !why);
}

}  // namespace terrace::test
