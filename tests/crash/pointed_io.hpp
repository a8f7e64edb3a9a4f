#pragma once

#include "storage/io/io_engine.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace terrace::test {

/// An engine for real files that carries out one operation after the other. There is a numbered point before and after each
/// operation, and before the second half of each write. The owner decides what happens at a point; the process may end there.
class PointedIo final : public IoEngine {
 public:
  enum class Moment : unsigned char { before, halfway, after };
  using At = std::function<void(std::uint64_t number, Moment moment)>;

  PointedIo(IoEngine& engine, At at) : engine_{engine}, at_{std::move(at)}, files_{*this} {}

  [[nodiscard]] FileSystem& files() override { return files_; }
  void submit(std::span<const IoOperation> batch) override;
  std::size_t poll(std::vector<IoCompletion>& out) override;
  void wait() override {}
  [[nodiscard]] std::size_t in_flight() const override { return completed_.size(); }
  [[nodiscard]] Waker& waker() override { return engine_.waker(); }
  [[nodiscard]] std::string describe() const override { return "point by point"; }

  /// Number of I/O operations and file system calls so far.
  [[nodiscard]] std::uint64_t operations() const { return number_; }
  /// How many of them were attempts to lock a file.
  [[nodiscard]] std::uint64_t locks() const { return locks_; }

 private:
  class Files final : public FileSystem {
   public:
    explicit Files(PointedIo& io) : io_{io} {}
    Result<Made> make_directory(const std::filesystem::path& path) override;
    Result<void> check_private(const std::filesystem::path& path) override;
    Result<void> remove_directory(const std::filesystem::path& path) override;
    Result<Made> link_directory(const std::filesystem::path& link, const std::filesystem::path& to) override;
    Result<void> sync_directory(const std::filesystem::path& path) override;
    Result<OpenedFile> open(const std::filesystem::path& path, Create create, Direct direct) override;
    void close(FileId file) override;
    Result<void> remove_file(const std::filesystem::path& path) override;
    Result<void> lock(FileId file) override;
    Result<Bytes> size(FileId file) override;
    Result<Bytes> allocated(FileId file) override;
    Result<void> resize(FileId file, Bytes size) override;
    Result<Bytes> free_space(const std::filesystem::path& path) override;
    FileId prepare(const std::filesystem::path& path, Direct direct) override {
      return io_.engine_.files().prepare(path, direct);
    }
    bool sparse(FileId file) const override { return io_.engine_.files().sparse(file); }
    Bytes file_bytes_max() const override { return io_.engine_.files().file_bytes_max(); }
    Direct direct(FileId file) const override { return io_.engine_.files().direct(file); }

   private:
    template <class Call>
    auto pass(Call call);
    PointedIo& io_;
  };

  void carry_out(const IoOperation& operation);

  IoEngine& engine_;
  At at_;
  Files files_;
  std::uint64_t number_ = 0;
  std::uint64_t locks_ = 0;
  std::vector<IoCompletion> completed_;
};

}  // namespace terrace::test
