#include "storage/io/uring_memory.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <functional>

namespace terrace {
namespace {

bool before(const std::byte* a, const std::byte* b) { return std::less<>{}(a, b); }

}  // namespace

UringMemory::UringMemory(unsigned places) {
  free_.reserve(places);
  for (unsigned place = places; place > 0; --place) free_.push_back(place - 1);
}

std::optional<unsigned> UringMemory::free_place() const {
  if (free_.empty()) return std::nullopt;
  return free_.back();
}

void UringMemory::add(std::span<std::byte> memory) {
  TERRACE_CHECK(!free_.empty());
  const auto at = std::ranges::upper_bound(pieces_, memory.data(), before, [](const Piece& p) { return p.memory.data(); });
  pieces_.insert(at, {memory, free_.back()});
  free_.pop_back();
}

std::optional<unsigned> UringMemory::remove(std::span<std::byte> memory) {
  const auto at = std::ranges::find_if(pieces_, [&](const Piece& piece) { return piece.memory.data() == memory.data(); });
  if (at == pieces_.end()) return std::nullopt;
  const unsigned place = at->place;
  free_.push_back(place);
  pieces_.erase(at);
  return place;
}

std::optional<unsigned> UringMemory::find(const std::byte* begin, std::size_t bytes) const {
  auto at = std::ranges::upper_bound(pieces_, begin, before, [](const Piece& p) -> const std::byte* { return p.memory.data(); });
  if (at == pieces_.begin()) return std::nullopt;
  --at;
  const std::byte* const end = at->memory.data() + at->memory.size();
  if (!before(begin, end) || static_cast<std::size_t>(end - begin) < bytes) return std::nullopt;
  return at->place;
}

}  // namespace terrace
