#include "transfer/host/numa.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace terrace {
namespace {

constexpr int policy_preferred = 1;  // MPOL_PREFERRED of linux/mempolicy.h
constexpr unsigned nodes_max = 1024;
constexpr unsigned word_bits = 64;

}  // namespace

bool prefer_node(std::span<std::byte> bytes, unsigned node) {
  if (bytes.empty() || node >= nodes_max) return false;
  std::array<std::uint64_t, nodes_max / word_bits> mask{};
  mask[node / word_bits] = std::uint64_t{1} << (node % word_bits);
  // (The number is one more than the bits of the mask, because the kernel takes it for an exclusive bound.)
  return ::syscall(SYS_mbind, bytes.data(), bytes.size(), policy_preferred, mask.data(), nodes_max + 1, 0U) == 0;
}

std::optional<double> share_on_node(std::span<std::byte> bytes, unsigned node) {
  constexpr std::size_t samples = 64;
  if (bytes.empty()) return std::nullopt;
  std::array<void*, samples> pages{};
  std::array<int, samples> found{};
  const std::size_t stride = bytes.size() / samples;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t i = 0; i < samples; ++i) {
    const auto at = reinterpret_cast<std::uintptr_t>(bytes.data()) + i * stride;
    pages[i] = reinterpret_cast<void*>(at / page * page);
  }
  // If it is given no target nodes, move_pages() moves nothing and reports the node of each page.
  if (::syscall(SYS_move_pages, 0, samples, pages.data(), nullptr, found.data(), 0) != 0) return std::nullopt;
  const auto there = std::ranges::count_if(found, [](int at) { return at >= 0; });
  if (there == 0) return std::nullopt;
  return static_cast<double>(std::ranges::count(found, static_cast<int>(node))) / static_cast<double>(there);
}

}  // namespace terrace
