#pragma once

#include "storage/shared/shared_value.hpp"
#include "tests/storage/blocks.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace terrace::test {

using Value = std::vector<std::byte>;

inline std::shared_ptr<const SharedSecret> secret_of(std::string_view text = "a secret of this deployment: 0123456789") {
  return std::make_shared<const SharedSecret>(std::as_bytes(std::span{text}));
}

inline Fingerprint fingerprint_of(std::uint8_t n) {
  Fingerprint fingerprint;
  for (std::size_t i = 0; i < fingerprint.size(); ++i) fingerprint[i] = static_cast<std::byte>(n + 7 * i);
  return fingerprint;
}

inline SharedWriteId write_id_of(std::uint8_t n) {
  SharedWriteId id{};
  id.fill(static_cast<std::byte>(n));
  return id;
}

/// The values of a block, one for each part, as they are sent.
inline std::vector<Value> values_of(SharedValueWriter& writer, const StoredBlock& block, const Fingerprint& fingerprint,
                                    std::span<const std::byte> content, const SharedWriteId& id) {
  std::vector<std::byte> scratch(content.size());
  std::vector<Value> values;
  writer.begin(block, fingerprint, content, id);
  for (std::uint32_t part = 0; part < writer.parts().count; ++part) {
    const SharedValueWriter::Part made = writer.make(part, scratch);
    Value value{made.header.begin(), made.header.end()};
    value.insert(value.end(), made.payload.begin(), made.payload.end());
    values.push_back(std::move(value));
  }
  return values;
}

/// Gives the values to the reader as an engine would, in pieces. Returns what is wrong with them; `into` has the block if
/// nothing is. An empty value is one that the engine does not have.
inline SharedValueReader::Mismatch read_values(SharedValueReader& reader, const StoredBlock& wanted,
                                               const Fingerprint& fingerprint, std::span<const Value> values,
                                               std::span<std::byte> into, std::size_t piece_bytes = 4096) {
  reader.begin(wanted, fingerprint, into.size());
  for (std::uint32_t part = 0; part < reader.parts().count && part < values.size(); ++part) {
    const std::span<const std::byte> value{values[part]};
    if (value.empty()) continue;
    const auto header = value.first(std::min(value.size(), shared_header_bytes));
    if (const auto why = reader.begin_part(part, value.size(), header)) return why;
    const std::span<std::byte> place = into.subspan(reader.parts().offset(part), reader.parts().bytes[part]);
    for (std::size_t at = 0; at < place.size(); at += piece_bytes) {
      const std::span<std::byte> piece = place.subspan(at, std::min(piece_bytes, place.size() - at));
      std::memcpy(piece.data(), value.data() + shared_header_bytes + at, piece.size());
      reader.add(piece);
    }
    if (const auto why = reader.end_part()) return why;
  }
  return reader.finish();
}

}  // namespace terrace::test
