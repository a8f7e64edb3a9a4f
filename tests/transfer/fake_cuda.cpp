#include "tests/transfer/fake_cuda.hpp"

#include "base/check.hpp"
#include "transfer/cuda/copy_tile.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>

namespace terrace::test {
namespace {

/// What the device's addresses of its own memory, and of registered host memory, differ by from where the bytes are: whoever
/// takes one side's for the other's is found out. Memory that the driver itself has allocated on the host has one address on
/// both sides.
constexpr CUdeviceptr device_side = CUdeviceptr{1} << 61;
constexpr CUdeviceptr mapped_side = CUdeviceptr{1} << 60;

/// What the machine has of either memory.
constexpr std::size_t memory_max = std::size_t{1} << 30;

std::byte* pointer(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }
CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

struct FakeCuda::Mark {
  std::mutex mutex;
  std::condition_variable changed;
  bool happened = false;
  std::uint64_t at = 0;

  void happen(std::uint64_t now) {
    {
      const std::lock_guard lock{mutex};
      happened = true;
      at = now;
    }
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock{mutex};
    changed.wait(lock, [this] { return happened; });
  }
};

struct FakeCuda::Stream {
  Stream() : thread{[this] { run(); }} {}
  ~Stream() {
    {
      const std::lock_guard lock{mutex};
      ending = true;
    }
    changed.notify_all();
    thread.join();
  }
  void push(std::function<void()> item) {
    {
      const std::lock_guard lock{mutex};
      items.push_back(std::move(item));
    }
    changed.notify_all();
  }
  /// To the end, also when it is destroyed: so does a real stream.
  void run() {
    for (;;) {
      std::function<void()> item;
      {
        std::unique_lock lock{mutex};
        changed.wait(lock, [this] { return ending || !items.empty(); });
        if (items.empty()) return;
        item = std::move(items.front());
        items.pop_front();
      }
      item();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> items;
  bool ending = false;
  std::atomic<bool> capturing{false};
  std::atomic<bool> foreign{false};
  std::thread thread;
};

FakeCuda::~FakeCuda() {
  streams_.clear();
  for (const auto& [memory, range] : ranges_) {
    if (range.kind != Memory::registered) std::free(const_cast<std::byte*>(memory));
  }
  for (const CUevent event : events_) delete reinterpret_cast<Event*>(event);
}

void FakeCuda::fail(std::string_view call, CUresult result, int after) {
  const std::lock_guard lock{mutex_};
  failures_[std::string{call}].emplace_back(after, result);
}

void FakeCuda::fail_any(CUresult result, int after) {
  const std::lock_guard lock{mutex_};
  any_after_ = after;
  any_result_ = result;
  any_failed_ = false;
}

bool FakeCuda::failed_any() const {
  const std::lock_guard lock{mutex_};
  return any_failed_;
}

void FakeCuda::break_context(CUresult result) {
  const std::lock_guard lock{mutex_};
  broken_ = result;
}

CUresult FakeCuda::broken() const {
  const std::lock_guard lock{mutex_};
  return broken_;
}

void FakeCuda::run_on(CUstream stream, std::function<void()> work) { reinterpret_cast<Stream*>(stream)->push(std::move(work)); }

void FakeCuda::set_capturing(CUstream stream, bool capturing) { reinterpret_cast<Stream*>(stream)->capturing = capturing; }

void FakeCuda::set_foreign(CUstream stream) { reinterpret_cast<Stream*>(stream)->foreign = true; }

bool FakeCuda::foreign(CUstream stream) const { return reinterpret_cast<Stream*>(stream)->foreign; }

bool FakeCuda::capturing(CUstream stream) const { return reinterpret_cast<Stream*>(stream)->capturing; }

bool FakeCuda::any_capturing() const {
  const std::lock_guard lock{mutex_};
  return std::ranges::any_of(streams_, [](const auto& each) { return each->capturing.load(); });
}

std::size_t FakeCuda::registered() const {
  const std::lock_guard lock{mutex_};
  return static_cast<std::size_t>(
      std::ranges::count_if(ranges_, [](const auto& each) { return each.second.kind == Memory::registered; }));
}

std::byte* FakeCuda::at(CUdeviceptr device) const { return pointer(device - device_side); }

int FakeCuda::calls(std::string_view call) const {
  const std::lock_guard lock{mutex_};
  const auto found = calls_.find(call);
  return found == calls_.end() ? 0 : found->second;
}

std::string FakeCuda::complaints() const {
  const std::lock_guard lock{mutex_};
  std::string all;
  for (const std::string& each : complaints_) all += each + "\n";
  const auto left = [&all](std::size_t number, const char* of_what) {
    if (number > 0) all += std::to_string(number) + " " + of_what + " not given back\n";
  };
  left(ranges_.size(), "allocations or registrations");
  left(streams_.size(), "streams");
  left(events_.size(), "events");
  left(static_cast<std::size_t>(contexts_), "contexts");
  left(static_cast<std::size_t>(modules_), "modules");
  return all;
}

CUresult FakeCuda::begin(const char* call, bool takes_back, bool wants_context) {
  const std::lock_guard lock{mutex_};
  ++calls_[call];
  for (auto& [after, result] : failures_[call]) {
    if (after-- == 0) return result;
  }
  if (takes_back) return CUDA_SUCCESS;
  if (any_after_ >= 0 && any_after_-- == 0) {
    any_failed_ = true;
    return any_result_;
  }
  return wants_context ? broken_ : CUDA_SUCCESS;
}

void FakeCuda::complain(const std::string& what) {
  const std::lock_guard lock{mutex_};
  complaints_.push_back(what);
}

// ---- memory

CUresult FakeCuda::allocate(Memory kind, std::size_t size, std::byte*& memory) {
  void* made = nullptr;
  if (size == 0 || size > memory_max || ::posix_memalign(&made, 256, size) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  memory = static_cast<std::byte*>(made);
  std::memset(made, 0xA5, size);  // memory that nobody has cleared
  const std::lock_guard lock{mutex_};
  ranges_[memory] = {kind, size};
  return CUDA_SUCCESS;
}

CUresult FakeCuda::free(Memory kind, std::byte* memory) {
  {
    const std::lock_guard lock{mutex_};
    const auto found = ranges_.find(memory);
    if (found == ranges_.end() || found->second.kind != kind) {
      complaints_.emplace_back("gives back memory that is not there");
      return CUDA_ERROR_INVALID_VALUE;
    }
    ranges_.erase(found);
  }
  if (kind != Memory::registered) std::free(memory);
  return CUDA_SUCCESS;
}

CUresult FakeCuda::pin(std::byte* memory, std::size_t size) {
  const std::lock_guard lock{mutex_};
  const auto next = ranges_.lower_bound(memory);
  if (next != ranges_.end() && next->first < memory + size) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  if (next != ranges_.begin() && std::prev(next)->first + std::prev(next)->second.size > memory) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  ranges_[memory] = {Memory::registered, size};
  return CUDA_SUCCESS;
}

bool FakeCuda::is_pinned(std::byte* begin, CUdeviceptr& device) const {
  const std::lock_guard lock{mutex_};
  const auto found = ranges_.find(begin);
  if (found == ranges_.end() || found->second.kind == Memory::device) return false;
  device = address(begin) + (found->second.kind == Memory::registered ? mapped_side : 0);
  return true;
}

bool FakeCuda::is_device(CUdeviceptr where) const { return device_bytes(where, 1) != nullptr; }

const FakeCuda::Range* FakeCuda::range_around(const std::byte* begin, std::size_t size) const {
  auto found = ranges_.upper_bound(begin);
  if (found == ranges_.begin()) return nullptr;
  --found;
  return begin + size <= found->first + found->second.size ? &found->second : nullptr;
}

std::byte* FakeCuda::device_bytes(CUdeviceptr where, std::size_t size) const {
  if ((where & device_side) == 0) return nullptr;
  const std::lock_guard lock{mutex_};
  const Range* const range = range_around(pointer(where - device_side), size);
  return range != nullptr && range->kind == Memory::device ? pointer(where - device_side) : nullptr;
}

std::byte* FakeCuda::mapped_bytes(CUdeviceptr where, std::size_t size) const {
  const bool registered = (where & mapped_side) != 0;
  std::byte* const begin = pointer(where & ~mapped_side);
  const std::lock_guard lock{mutex_};
  const Range* const range = range_around(begin, size);
  return range != nullptr && range->kind == (registered ? Memory::registered : Memory::pinned) ? begin : nullptr;
}

std::byte* FakeCuda::host_bytes(CUdeviceptr where, std::size_t size) const {
  if ((where & (device_side | mapped_side)) != 0) return nullptr;
  const std::lock_guard lock{mutex_};
  const Range* const range = range_around(pointer(where), size);
  return range != nullptr && range->kind != Memory::device ? pointer(where) : nullptr;
}

// ---- copies

CUresult FakeCuda::copy(CUdeviceptr destination, CUdeviceptr source, std::size_t size, CUstream stream, const char* call) {
  const bool out = (source & device_side) != 0;
  const auto to = [=, this] { return out ? host_bytes(destination, size) : device_bytes(destination, size); };
  const auto from = [=, this] { return out ? device_bytes(source, size) : host_bytes(source, size); };
  if (to() == nullptr || from() == nullptr) {
    complain(std::string{call} + ": not from one pinned stretch of the host to one allocation of the device, or back");
    return CUDA_ERROR_INVALID_VALUE;
  }
  run_on(stream, [=, this] {
    if (broken() != CUDA_SUCCESS) return;
    std::byte* const there = to();
    const std::byte* const here = from();
    if (there == nullptr || here == nullptr) return complain("a copy under way: its memory has gone");
    std::memcpy(there, here, size);
    pass_time(size);
  });
  return CUDA_SUCCESS;
}

CUresult FakeCuda::copy_tiles(CUdeviceptr tiles, unsigned count, bool bulk, CUstream stream) {
  run_on(stream, [=, this] {
    if (broken() == CUDA_SUCCESS) run_tiles(tiles, count, bulk);
  });
  return CUDA_SUCCESS;
}

void FakeCuda::run_tiles(CUdeviceptr tiles, unsigned count, bool bulk) {
  if (count == 0) return;
  const auto* const tile = reinterpret_cast<const CopyTile*>(mapped_bytes(tiles, count * sizeof(CopyTile)));
  const auto fault = [this](const std::string& what) {
    complain("kernel: " + what);
    break_context(CUDA_ERROR_ILLEGAL_ADDRESS);
  };
  if (tile == nullptr) return fault("descriptors that the device cannot read");
  for (unsigned i = 0; i < count; ++i) {
    const CopyTile each = tile[i];
    const bool out = (each.source & device_side) != 0;
    std::byte* const to = out ? mapped_bytes(each.destination, each.bytes) : device_bytes(each.destination, each.bytes);
    std::byte* const from = out ? device_bytes(each.source, each.bytes) : mapped_bytes(each.source, each.bytes);
    if (to == nullptr || from == nullptr) return fault("an address that is not the device's");
    if (each.bytes > (bulk ? bulk_tile_bytes : kernel_tile_bytes)) return fault("a tile that is too large");
    if (bulk && (each.source | each.destination | each.bytes) % 16 != 0) return fault("bulk copies are aligned to 16");
    std::memcpy(to, from, each.bytes);
    pass_time(each.bytes);
  }
}

// ---- streams and events

CUstream FakeCuda::make_stream() {
  const std::lock_guard lock{mutex_};
  return reinterpret_cast<CUstream>(streams_.insert(std::make_shared<Stream>()).first->get());
}

CUresult FakeCuda::destroy_stream(CUstream stream) {
  std::set<std::shared_ptr<Stream>>::node_type destroyed;
  const std::lock_guard lock{mutex_};
  const auto is_it = [stream](const auto& each) { return each.get() == reinterpret_cast<Stream*>(stream); };
  const auto found = std::ranges::find_if(streams_, is_it);
  if (found == streams_.end()) {
    complaints_.emplace_back("gives back a stream that is not there");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  destroyed = streams_.extract(found);
  return CUDA_SUCCESS;
}

void FakeCuda::synchronize(CUstream stream) {
  const auto mark = std::make_shared<Mark>();
  run_on(stream, [mark] { mark->happen(0); });
  mark->wait();
}

CUevent FakeCuda::make_event(bool timed) {
  const auto made = reinterpret_cast<CUevent>(new Event{.mark = nullptr, .timed = timed});
  const std::lock_guard lock{mutex_};
  events_.insert(made);
  return made;
}

void FakeCuda::destroy_event(CUevent event) {
  const std::lock_guard lock{mutex_};
  if (events_.erase(event) == 0) complaints_.emplace_back("gives back an event that is not there");
  delete reinterpret_cast<Event*>(event);
}

void FakeCuda::record(CUevent event, CUstream stream) {
  const auto mark = std::make_shared<Mark>();
  {
    const std::lock_guard lock{mutex_};
    reinterpret_cast<Event*>(event)->mark = mark;
  }
  run_on(stream, [this, mark] { mark->happen(now_); });
}

CUresult FakeCuda::elapsed(CUevent from, CUevent to, float& milliseconds) {
  std::uint64_t at[2] = {};
  for (int i = 0; i < 2; ++i) {
    std::shared_ptr<Mark> mark;
    {
      const std::lock_guard lock{mutex_};
      const Event& event = *reinterpret_cast<Event*>(i == 0 ? from : to);
      if (!event.timed || !event.mark) return CUDA_ERROR_INVALID_HANDLE;
      mark = event.mark;
    }
    const std::lock_guard lock{mark->mutex};
    if (!mark->happened) return CUDA_ERROR_NOT_READY;
    at[i] = mark->at;
  }
  milliseconds = static_cast<float>(static_cast<double>(at[1] - at[0]) / 1e6);
  return CUDA_SUCCESS;
}

void FakeCuda::wait(CUstream stream, CUevent event) {
  std::shared_ptr<Mark> mark;
  {
    const std::lock_guard lock{mutex_};
    mark = reinterpret_cast<Event*>(event)->mark;
  }
  if (mark) run_on(stream, [mark] { mark->wait(); });
}

void FakeCuda::synchronize(CUevent event) {
  std::shared_ptr<Mark> mark;
  {
    const std::lock_guard lock{mutex_};
    mark = reinterpret_cast<Event*>(event)->mark;
  }
  if (mark) mark->wait();
}

void FakeCuda::count_context(int by) {
  const std::lock_guard lock{mutex_};
  contexts_ += by;
}

void FakeCuda::count_module(int by) {
  const std::lock_guard lock{mutex_};
  modules_ += by;
}

}  // namespace terrace::test
