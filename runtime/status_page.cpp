#include "runtime/status_page.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

namespace terrace {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::array<char, 8> magic{'t', 'e', 'r', 'r', 's', 't', 'a', 't'};
constexpr std::uint32_t version = 1;
constexpr std::uint64_t ended_bit = 1U << 8;

struct Layout {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::int32_t writer;
  std::uint64_t word;
};
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free, "other processes share no lock of ours");

std::uint64_t load(const void* page) {
  auto& word = const_cast<std::uint64_t&>(static_cast<const Layout*>(page)->word);  // atomic_ref<const T> is C++26
  return std::atomic_ref{word}.load(std::memory_order_acquire);
}

void store(void* page, std::uint64_t word) {
  std::atomic_ref{static_cast<Layout*>(page)->word}.store(word, std::memory_order_release);
}

[[noreturn]] void fail(const std::filesystem::path& file, const char* what, int error) {
  throw std::system_error{error, std::generic_category(), "status page " + file.string() + ": " + what};
}

}  // namespace

StatusPage::StatusPage(const std::filesystem::path& file) : file_{file} {
  fd_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd_ < 0) fail(file, "cannot be made", errno);
  const auto give_up = [&](const char* what) {
    const int error = errno;
    ::close(fd_);
    fail(file, what, error);
  };
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) give_up("another process shows its status there");
  if (::ftruncate(fd_, page_bytes) != 0) give_up("has no room");
  page_ = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (page_ == MAP_FAILED) give_up("cannot be mapped");
  store(page_, 0);
  auto* const layout = static_cast<Layout*>(page_);
  layout->magic = magic;
  layout->version = version;
  layout->writer = ::getpid();
}

StatusPage::~StatusPage() {
  store(page_, load(page_) | ended_bit);
  ::unlink(file_.c_str());
  ::munmap(page_, page_bytes);
  ::close(fd_);
}

void StatusPage::publish(CacheStatus status, Epoch epoch) noexcept {
  store(page_, static_cast<std::uint64_t>(status) | std::uint64_t{epoch.value()} << 32);
}

Result<StatusView> StatusView::open(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return Errc::not_found;
  struct stat about{};
  const bool large_enough = ::fstat(fd, &about) == 0 && about.st_size >= static_cast<off_t>(page_bytes);
  void* const page = large_enough ? ::mmap(nullptr, page_bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
  ::close(fd);
  if (page == MAP_FAILED) return Errc::corrupt;
  StatusView view{page};
  const auto* const layout = static_cast<const Layout*>(page);
  if (layout->magic != magic || layout->version != version) return Errc::corrupt;
  return view;
}

StatusView::~StatusView() {
  if (page_ != nullptr) ::munmap(const_cast<void*>(page_), page_bytes);
}

StatusView::StatusView(StatusView&& other) noexcept : page_{std::exchange(other.page_, nullptr)} {}

StatusView& StatusView::operator=(StatusView&& other) noexcept {
  std::swap(page_, other.page_);
  return *this;
}

StatusView::Shown StatusView::read() const noexcept {
  const std::uint64_t word = load(page_);
  Shown shown;
  shown.status = static_cast<CacheStatus>(word & 0xFF);
  shown.epoch = Epoch{static_cast<std::uint32_t>(word >> 32)};
  const std::int32_t writer = static_cast<const Layout*>(page_)->writer;
  shown.ended = (word & ended_bit) != 0 || (::kill(writer, 0) != 0 && errno == ESRCH);
  return shown;
}

}  // namespace terrace
