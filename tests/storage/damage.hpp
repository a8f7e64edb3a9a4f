#pragma once

#include "storage/format/format.hpp"
#include "storage/io/aligned_buffer.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <tuple>

namespace terrace::test {

// Changes to the files of a stopped store.

inline void write_at(const std::filesystem::path& file, std::uint64_t offset, std::span<const std::byte> bytes) {
  std::fstream out{file, std::ios::in | std::ios::out | std::ios::binary};
  out.seekp(static_cast<std::streamoff>(offset));
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.close();
  ASSERT_TRUE(out.good()) << file;
}

inline void flip(const std::filesystem::path& file, std::uint64_t offset, unsigned bits) {
  std::ifstream in{file, std::ios::binary};
  in.seekg(static_cast<std::streamoff>(offset));
  const std::byte byte{static_cast<unsigned char>(static_cast<unsigned>(in.get()) ^ bits)};
  ASSERT_TRUE(in.good()) << file;
  write_at(file, offset, {&byte, 1});
}

inline void write_superblock(const std::filesystem::path& directory, const Superblock& superblock) {
  AlignedBuffer page{catalog_page_bytes};
  encode(superblock, page.span());
  write_at(directory / "catalog", 0, page.span());
}

inline void write_record(const std::filesystem::path& directory, std::uint32_t slot, const CatalogRecord& record) {
  std::array<std::byte, record_bytes> bytes;
  encode(record, bytes);
  write_at(directory / "catalog", catalog_page_bytes + std::uint64_t{slot} * record_bytes, bytes);
}

/// The content of each file, and the time of its last change.
using Snapshot = std::map<std::string, std::tuple<std::string, std::filesystem::file_time_type>>;
inline Snapshot snapshot(const std::filesystem::path& directory) {
  Snapshot all;
  for (const auto& entry : std::filesystem::directory_iterator{directory}) {
    std::ifstream in{entry.path(), std::ios::binary};
    all[entry.path().filename()] = {std::string(std::istreambuf_iterator<char>{in}, {}), entry.last_write_time()};
  }
  return all;
}

}  // namespace terrace::test
