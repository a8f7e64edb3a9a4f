#include "tests/crash/pointed_io.hpp"

#include <algorithm>

namespace terrace::test {

void PointedIo::carry_out(const IoOperation& operation) {
  engine_.submit({&operation, 1});
  while (engine_.in_flight() > 0) {
    engine_.wait();
    engine_.poll(completed_);
  }
}

void PointedIo::submit(std::span<const IoOperation> batch) {
  for (const IoOperation& operation : batch) {
    const std::uint64_t number = number_++;
    at_(number, Moment::before);
    if (operation.kind == IoOperation::Kind::write) {
      // Direct I/O writes whole pages. Shorter writes go through the page cache, in sectors.
      const std::size_t unit = operation.from.size() > io_alignment ? io_alignment : 512;
      IoOperation half = operation;
      half.fingerprint = nullptr;
      half.from = operation.from.first(operation.from.size() / 2 / unit * unit);
      if (!half.from.empty()) {
        carry_out(half);
        completed_.pop_back();
        at_(number, Moment::halfway);
      }
    }
    carry_out(operation);
    at_(number, Moment::after);
  }
}

std::size_t PointedIo::poll(std::vector<IoCompletion>& out) {
  const std::size_t count = completed_.size();
  out.insert(out.end(), completed_.begin(), completed_.end());
  completed_.clear();
  return count;
}

template <class Call>
auto PointedIo::Files::pass(Call call) {
  const std::uint64_t number = io_.number_++;
  io_.at_(number, Moment::before);
  auto result = call(io_.engine_.files());
  io_.at_(number, Moment::after);
  return result;
}

Result<Made> PointedIo::Files::make_directory(const std::filesystem::path& path) {
  return pass([&](FileSystem& files) { return files.make_directory(path); });
}
Result<void> PointedIo::Files::remove_directory(const std::filesystem::path& path) {
  return pass([&](FileSystem& files) { return files.remove_directory(path); });
}
Result<Made> PointedIo::Files::link_directory(const std::filesystem::path& link, const std::filesystem::path& to) {
  return pass([&](FileSystem& files) { return files.link_directory(link, to); });
}
Result<void> PointedIo::Files::check_private(const std::filesystem::path& path) {
  return pass([&](FileSystem& files) { return files.check_private(path); });
}
Result<void> PointedIo::Files::sync_directory(const std::filesystem::path& path) {
  return pass([&](FileSystem& files) { return files.sync_directory(path); });
}
Result<OpenedFile> PointedIo::Files::open(const std::filesystem::path& path, Create create, Direct direct) {
  return pass([&](FileSystem& files) { return files.open(path, create, direct); });
}
void PointedIo::Files::close(FileId file) {
  (void)pass([&](FileSystem& files) {
    files.close(file);
    return true;
  });
}
Result<void> PointedIo::Files::remove_file(const std::filesystem::path& path) {
  return pass([&](FileSystem& files) { return files.remove_file(path); });
}
Result<void> PointedIo::Files::lock(FileId file) {
  ++io_.locks_;
  return pass([&](FileSystem& files) { return files.lock(file); });
}
Result<Bytes> PointedIo::Files::size(FileId file) {
  return pass([&](FileSystem& files) { return files.size(file); });
}
Result<Bytes> PointedIo::Files::allocated(FileId file) {
  return pass([&](FileSystem& files) { return files.allocated(file); });
}
Result<void> PointedIo::Files::resize(FileId file, Bytes size) {
  return pass([&](FileSystem& files) { return files.resize(file, size); });
}
Result<Bytes> PointedIo::Files::free_space(const std::filesystem::path& path) {
  return pass([&](FileSystem& files) { return files.free_space(path); });
}

}  // namespace terrace::test
