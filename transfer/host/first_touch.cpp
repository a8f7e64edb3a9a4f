#include "transfer/host/first_touch.hpp"

#include "base/large_memory.hpp"
#include "base/thread.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace terrace {
namespace {

/// The number of bytes that a thread touches at a time. It is a multiple of a huge page, and small, so that a thread soon checks
/// `cancel`.
constexpr std::size_t slice_bytes = std::size_t{8} << 20;
constexpr unsigned threads_most = 8;

/// Touches the pages and returns 0 or an errno. MADV_POPULATE_WRITE does this in one call and reports missing memory. Older
/// kernels do not have it.
int touch(std::span<std::byte> bytes) {
#ifdef MADV_POPULATE_WRITE
  if (::madvise(bytes.data(), bytes.size(), MADV_POPULATE_WRITE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
#endif
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < bytes.size(); at += page) *const_cast<volatile std::byte*>(&bytes[at]) = std::byte{0};
  return 0;
}

/// Returns how many of the bytes are in huge pages. If the kernel has joined neighbouring mappings to one area, the result is an
/// estimate: the area's huge pages in proportion to the overlap.
Bytes in_huge_pages(std::span<const std::byte> bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t end = begin + bytes.size();
  std::ifstream in{"/proc/self/smaps"};
  double huge = 0;
  std::uintptr_t overlap = 0;
  std::uintptr_t area = 0;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words{line};
    std::uintptr_t from = 0;
    std::uintptr_t to = 0;
    char dash = 0;
    if (words >> std::hex >> from >> dash >> to && dash == '-') {
      area = to - from;
      overlap = from < end && begin < to ? std::min(to, end) - std::max(from, begin) : 0;
    } else if (overlap > 0 && line.starts_with("AnonHugePages:")) {
      std::istringstream number{line.substr(line.find(':') + 1)};
      double kilobytes = 0;
      number >> kilobytes;
      huge += kilobytes * 1024 * static_cast<double>(overlap) / static_cast<double>(area);
    }
  }
  return Bytes{static_cast<std::uint64_t>(huge)};
}

constexpr int policy_preferred = 1;  // MPOL_PREFERRED of linux/mempolicy.h
constexpr unsigned nodes_max = 1024;
constexpr unsigned word_bits = 64;

/// Asks the kernel to take the pages of `bytes` from the memory of this node while it has free memory, and then from other nodes.
/// `bytes` must begin at a page boundary, and none of its pages may be present yet. Returns false if the kernel or the container
/// does not allow this. The implementation uses system calls, because nothing else of libnuma is needed.
bool prefer_node(std::span<std::byte> bytes, unsigned node) {
  if (bytes.empty() || node >= nodes_max) return false;
  std::array<std::uint64_t, nodes_max / word_bits> mask{};
  mask[node / word_bits] = std::uint64_t{1} << (node % word_bits);
  // (The number is one more than the bits of the mask, because the kernel takes it for an exclusive bound.)
  return ::syscall(SYS_mbind, bytes.data(), bytes.size(), policy_preferred, mask.data(), nodes_max + 1, 0U) == 0;
}

/// Returns the share of pages that lie on the node, from a sample of the pages that are present. Returns nothing if the kernel
/// does not report it.
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

}  // namespace

FirstTouch first_touch(std::span<std::byte> bytes, const TouchOptions& options) {
  FirstTouch got;
  if (bytes.empty()) return got;
  if (options.numa_node) got.node_asked = prefer_node(bytes, *options.numa_node);
  // This is only a request. A kernel without huge pages refuses it and gives the same memory in small pages.
  ::madvise(bytes.data(), bytes.size(), options.huge_pages == HugePages::yes ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);

  const std::size_t slices = (bytes.size() + slice_bytes - 1) / slice_bytes;
  std::atomic<std::size_t> next{0};
  std::atomic<int> error{0};
  const auto work = [&] {
    for (std::size_t slice = next.fetch_add(1); slice < slices; slice = next.fetch_add(1)) {
      if (error.load(std::memory_order_relaxed) != 0) return;
      if (options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed)) {
        error = ECANCELED;
        return;
      }
      const std::size_t at = slice * slice_bytes;
      if (const int failed = touch(bytes.subspan(at, std::min(slice_bytes, bytes.size() - at))); failed != 0) error = failed;
    }
  };
  unsigned threads = options.threads;
  if (threads == 0) threads = std::min(std::max(std::thread::hardware_concurrency(), 1U), threads_most);
  std::vector<std::jthread> others;
  for (unsigned i = 1; i < threads && i < slices; ++i) {
    try {
      others.push_back(start_thread<std::jthread>("terrace-touch", [&work] { work(); }));
    } catch (const std::system_error&) {
      break;  // no more threads can be started: the existing ones do the work
    }
  }
  work();
  others.clear();
  got.error = error;
  if (got.error != 0) return got;
  if (options.count_huge && bytes.size() >= huge_page_bytes) got.huge = in_huge_pages(bytes);
  if (options.numa_node) got.share_on_node = share_on_node(bytes, *options.numa_node);
  return got;
}

}  // namespace terrace
