#include "base/descriptor.hpp"
#include "lab/storage/storage_ground.hpp"
#include "storage/io/uring_io.hpp"
#include "tools/interrupted.hpp"

#ifdef TERRACE_HAS_URING
#include <liburing.h>
#undef BLOCK_SIZE  // other files of this unity batch use the name
#endif

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

[[noreturn]] void fail(int error, const std::string& what) { throw std::system_error{error, std::generic_category(), what}; }

/// The store's files, and files with as many blocks beside them. All blocks are written once, because file systems handle
/// allocated blocks differently if they were never written.
class PlainFiles {
 public:
  PlainFiles(const StorageGround& ground, StorageFiles files) : ground_{ground}, files_{std::move(files)} {
    for (const std::filesystem::path& path : files_.to_write) to_write_.push_back(open(path, O_RDWR | O_CREAT | O_EXCL));
    for (const std::filesystem::path& path : files_.to_read) to_read_.push_back(open(path, O_RDONLY));
    for (std::uint32_t n = 0; n < ground.blocks; ++n) {
      if (ground.interrupt.requested()) throw Interrupted{};
      fill(n);
    }
  }

  struct At {
    int fd;
    std::uint64_t offset;
  };
  [[nodiscard]] At at(StorageWay way, std::uint32_t block) const {
    const StorageFiles::Place place = files_.place(way, block, ground_.block_bytes);
    return {(way == StorageWay::read ? to_read_ : to_write_)[place.file].get(), place.offset};
  }

 private:
  static Descriptor open(const std::filesystem::path& path, int flags) {
    Descriptor file{::open(path.c_str(), flags | O_CLOEXEC | O_DIRECT, 0600)};
    if (!file.is_open() && errno == EINVAL) file = Descriptor{::open(path.c_str(), flags | O_CLOEXEC, 0600)};
    if (!file.is_open()) fail(errno, path.string());
    return file;
  }
  void fill(std::uint32_t block) {
    const At where = at(StorageWay::write, block);
    const std::uint64_t bytes = count(ground_.block_bytes);
    const auto wrote = ::pwrite(where.fd, ground_.buffer(0).data(), bytes, static_cast<off_t>(where.offset));
    if (wrote != static_cast<ssize_t>(bytes)) fail(wrote < 0 ? errno : ENOSPC, "the plain file");
  }

  const StorageGround& ground_;
  const StorageFiles files_;
  std::vector<Descriptor> to_read_;
  std::vector<Descriptor> to_write_;
};

class PlainThreads final : public StorageSubject {
 public:
  PlainThreads(StorageGround& ground, const StorageFiles& files) : ground_{ground}, files_{ground, files} {}

  void move(StorageWay way, unsigned depth, std::span<const std::uint32_t> order) override {
    std::atomic<std::size_t> next{0};
    std::atomic<int> error{0};
    const auto some = [&](unsigned n) {
      const std::span<std::byte> buffer = ground_.buffer(n);
      for (std::size_t i = next++; i < order.size() && !ground_.interrupt.requested(); i = next++) {
        const auto [fd, offset] = files_.at(way, order[i]);
        const auto at = static_cast<off_t>(offset);
        const auto moved = way == StorageWay::read ? ::pread(fd, buffer.data(), buffer.size(), at)
                                                   : ::pwrite(fd, buffer.data(), buffer.size(), at);
        if (moved != static_cast<ssize_t>(buffer.size())) error = moved < 0 ? errno : EIO;
      }
    };
    std::vector<std::jthread> threads;
    for (unsigned n = 0; n < depth; ++n) threads.emplace_back(some, n);
    threads.clear();
    if (error != 0) fail(error, "plain I/O");
  }

 private:
  StorageGround& ground_;
  PlainFiles files_;
};

#ifdef TERRACE_HAS_URING
class PlainUring final : public StorageSubject {
 public:
  PlainUring(StorageGround& ground, const StorageFiles& files) : ground_{ground}, files_{ground, files} {
    if (const int error = -::io_uring_queue_init(std::bit_ceil(ground.depth_max), &ring_, 0)) fail(error, "io_uring");
  }
  ~PlainUring() override { ::io_uring_queue_exit(&ring_); }

  void move(StorageWay way, unsigned depth, std::span<const std::uint32_t> order) override {
    int error = 0;
    const auto start = [&](std::uint64_t buffer, std::uint32_t block) { request(way, buffer, block); };
    keep_under_way(ground_, depth, order, start, [&](const auto& ended) {
      const int submitted = ::io_uring_submit_and_wait(&ring_, 1);
      if (submitted < 0 && submitted != -EINTR) fail(-submitted, "plain io_uring");
      io_uring_cqe* cqe = nullptr;
      while (::io_uring_peek_cqe(&ring_, &cqe) == 0) {
        const std::uint64_t buffer = cqe->user_data;
        if (cqe->res != static_cast<int>(count(ground_.block_bytes))) error = cqe->res < 0 ? -cqe->res : EIO;
        ::io_uring_cqe_seen(&ring_, cqe);
        ended(buffer, error == 0);
      }
    });
    if (error != 0) fail(error, "plain io_uring");
  }

 private:
  void request(StorageWay way, std::uint64_t n, std::uint32_t block) {
    io_uring_sqe* const sqe = ::io_uring_get_sqe(&ring_);
    const std::span<std::byte> buffer = ground_.buffer(n);
    const auto bytes = static_cast<unsigned>(buffer.size());
    const auto [fd, offset] = files_.at(way, block);
    if (way == StorageWay::read) {
      ::io_uring_prep_read(sqe, fd, buffer.data(), bytes, offset);
    } else {
      ::io_uring_prep_write(sqe, fd, buffer.data(), bytes, offset);
    }
    ::io_uring_sqe_set_data64(sqe, n);
  }

  StorageGround& ground_;
  PlainFiles files_;
  io_uring ring_{};
};
#endif

}  // namespace

std::unique_ptr<StorageSubject> make_plain_subject(StorageGround& ground, const StorageFiles& files) {
#ifdef TERRACE_HAS_URING
  if (!UringIo::unavailable()) return std::make_unique<PlainUring>(ground, files);
#endif
  return std::make_unique<PlainThreads>(ground, files);
}

}  // namespace terrace::tools
