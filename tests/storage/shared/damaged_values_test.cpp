// Damages values in every way that a seed thinks of. None may be taken for the block.

#include "base/random.hpp"
#include "storage/io/little_endian.hpp"
#include "tests/seed.hpp"
#include "tests/storage/shared/values.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

constexpr std::size_t kinds = 4;

/// Values of one block, and those of other blocks, writes, weights and secrets from which a damaged value may get its bytes.
struct Specimen {
  Specimen(bool seals, std::size_t bytes) : secret{seals ? secret_of() : nullptr}, content(bytes) {
    fill(content, block.key);
    SharedValueWriter writer{secret};
    values = values_of(writer, block, fingerprint_of(1), content, write_id_of(1));
    const auto add = [&](SharedValueWriter& by, const StoredBlock& of, std::uint8_t fingerprint, std::size_t size) {
      std::vector<std::byte> other(size);
      fill(other, of.key);
      others.push_back(values_of(by, of, fingerprint_of(fingerprint), other, write_id_of(2)));
    };
    SharedValueWriter stranger{seals ? nullptr : secret_of()};
    StoredBlock other = block;
    other.key = with_prefix64_of(block.key, 9);
    add(writer, block, 1, bytes);
    add(writer, block, 2, bytes);
    add(writer, other, 1, bytes);
    add(writer, block, 1, bytes + 8);
    add(stranger, block, 1, bytes);
    ++other.depth;
    other.key = block.key;
    add(writer, other, 1, bytes);
  }

  StoredBlock block = child_of(root_block(1), 2);
  std::shared_ptr<const SharedSecret> secret;
  std::vector<std::byte> content;
  std::vector<Value> values;
  std::vector<std::vector<Value>> others;
};

void damage(Random& random, std::vector<Value>& values, const Specimen& good) {
  const std::size_t part = random.below(values.size());
  Value& value = values[part];
  const std::vector<Value>& other = good.others[random.below(good.others.size())];
  const Value& source = other[part % other.size()];
  if (value.empty()) return;
  const std::size_t from = random.below(value.size());
  const std::size_t to = from + random.between(1, std::min<std::size_t>(value.size() - from, 600));
  const auto range = std::span{value}.subspan(from, to - from);
  switch (random.below(10)) {
    case 0: value[from] ^= static_cast<std::byte>(1U << random.below(8)); break;
    case 1:
      value[random.below(std::min(value.size(), shared_header_bytes))] ^= static_cast<std::byte>(random.between(1, 255));
      break;
    case 2: value[from] = static_cast<std::byte>(random.below(256)); break;
    case 3: std::ranges::fill(range, std::byte{}); break;
    case 4: value.resize(random.below(2 * value.size())); break;
    case 5: value = source; break;
    case 6:
      if (to <= source.size()) std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), range.size(), range.begin());
      break;
    case 7: std::ranges::rotate(range, range.begin() + static_cast<std::ptrdiff_t>(random.below(range.size()))); break;
    case 8: std::copy_n(source.begin(), std::min({value.size(), source.size(), shared_header_bytes}), value.begin()); break;
    default: value.clear();
  }
}

/// Changes a header and corrects its checksum, but not that of the payload.
void correct_header(std::vector<Value>& values) {
  for (Value& value : values) {
    if (value.size() >= shared_header_bytes) store_le64(&value[120], plain_checksum(std::span{value}.first(120)));
  }
}

TEST(DamagedValues, are_never_taken_for_the_block) {
  const std::uint64_t first = seed_from_env_or(1);
  const std::uint64_t seeds = seeds_from_env_or(20'000, 20'000);
  const std::array<Specimen, kinds> specimens{Specimen{false, 512}, Specimen{true, 512}, Specimen{false, 16'384},
                                              Specimen{true, 16'384}};
  std::array<std::uint64_t, shared_mismatch_count> found{};
  std::uint64_t damaged = 0;
  std::uint64_t whole = 0;
  std::vector<std::byte> into;
  std::vector<std::unique_ptr<SharedValueReader>> readers;
  for (const Specimen& specimen : specimens) readers.push_back(std::make_unique<SharedValueReader>(specimen.secret));
  for (std::uint64_t seed = first; damaged < seeds; ++seed) {
    Random random{seed};
    const std::size_t kind = random.below(kinds);
    const Specimen& good = specimens[kind];
    std::vector<Value> values = good.values;
    for (std::uint64_t n = random.between(1, 3); n > 0; --n) damage(random, values, good);
    if (good.secret == nullptr && random.chance(0.3)) correct_header(values);
    if (values == good.values) continue;
    ++damaged;
    into.assign(good.content.size(), std::byte{});
    const auto why = read_values(*readers[kind], good.block, fingerprint_of(1), values, into);
    if (why) {
      ++found[static_cast<std::size_t>(*why)];
    } else {
      // Another id of the write, or all values of another write: these are the bytes of the block all the same.
      ++whole;
      ASSERT_EQ(into, good.content) << "a wrong block was served: TERRACE_SEED=" << seed;
    }
  }
  EXPECT_LT(whole, damaged / 20);
  for (std::size_t i = 0; i < shared_mismatch_count; ++i) {
    EXPECT_TRUE(found[i] > 0 || seeds < 1000) << to_string(static_cast<SharedMismatch>(i));
  }
  std::string text =
      std::to_string(damaged) + " damaged values, 0 wrong blocks, " + std::to_string(whole) + " whole all the same";
  for (std::size_t i = 0; i < shared_mismatch_count; ++i) {
    text += std::string{", "} + to_string(static_cast<SharedMismatch>(i)) + " " + std::to_string(found[i]);
  }
  RecordProperty("damaged", text);
}

}  // namespace
}  // namespace terrace::test
