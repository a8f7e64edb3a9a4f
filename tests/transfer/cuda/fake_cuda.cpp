#include "tests/transfer/cuda/fake_cuda.hpp"

#include "base/check.hpp"
#include "terrace/emulated_stream.hpp"
#include "transfer/cuda/copy/copy_tile.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace terrace::test {
namespace {

/// The offset between the device address and the real address of registered host memory, as `device_side` for device memory. Host
/// memory that the driver has allocated has one address on both sides.
constexpr CUdeviceptr mapped_side = CUdeviceptr{1} << 60;
/// Each device sees registered memory at a different address: this offset times the number of the device.
constexpr CUdeviceptr mapped_apart = CUdeviceptr{1} << 52;
constexpr CUdeviceptr mapped_bits = mapped_side | (mapped_apart * 0xFF);

/// The size of device memory and of host memory.
constexpr std::size_t memory_max = std::size_t{1} << 30;

std::byte* pointer(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

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
  explicit Stream(int on_device) : device{on_device} {}
  void push(std::function<void()> item) { items.run(std::move(item)); }

  const int device;
  std::atomic<bool> capturing{false};
  std::atomic<bool> foreign{false};
  EmulatedStream items;  ///< runs to the end even when it is destroyed, as a real stream does
};

FakeCuda::~FakeCuda() {
  streams_.clear();
  for (const auto& [memory, range] : ranges_) {
    if (range.kind != Memory::registered) std::free(const_cast<std::byte*>(memory));
  }
  for (const CUevent event : events_) delete reinterpret_cast<Event*>(event);
}

void FakeCuda::fail(std::string_view call, CUresult result, int after, int device) {
  const std::lock_guard lock{mutex_};
  failures_[std::string{call}].push_back({after, result, device});
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

void FakeCuda::break_context(CUresult result, int device) {
  const std::lock_guard lock{mutex_};
  contexts_.at(static_cast<std::size_t>(device)).broken = result;
}

CUresult FakeCuda::broken(int device) const {
  const std::lock_guard lock{mutex_};
  return contexts_.at(static_cast<std::size_t>(device)).broken;
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
  std::size_t contexts = 0;
  for (const Context& each : contexts_) contexts += static_cast<std::size_t>(each.retained);
  left(contexts, "contexts");
  left(static_cast<std::size_t>(modules_), "modules");
  return all;
}

CUresult FakeCuda::begin(const char* call, int device, bool takes_back) {
  const std::lock_guard lock{mutex_};
  ++calls_[call];
  for (Failure& each : failures_[call]) {
    if ((each.device == any_device || each.device == device) && each.after-- == 0) return each.result;
  }
  if (takes_back) return CUDA_SUCCESS;
  if (any_after_ >= 0 && any_after_-- == 0) {
    any_failed_ = true;
    return any_result_;
  }
  return CUDA_SUCCESS;
}

void FakeCuda::complain(const std::string& what) {
  const std::lock_guard lock{mutex_};
  complaints_.push_back(what);
}

// ---- contexts

CUresult FakeCuda::retain(int device, CUcontext& context) {
  const std::lock_guard lock{mutex_};
  if (device < 0 || device >= machine.devices) return CUDA_ERROR_INVALID_DEVICE;
  Context& primary = contexts_[static_cast<std::size_t>(device)];
  ++primary.retained;
  context = reinterpret_cast<CUcontext>(&primary);
  return CUDA_SUCCESS;
}

void FakeCuda::release(int device) {
  const std::lock_guard lock{mutex_};
  Context& primary = contexts_.at(static_cast<std::size_t>(device));
  if (primary.retained == 0) {
    complaints_.emplace_back("gives back a context that is not there");
    return;
  }
  if (--primary.retained > 0) return;
  const auto registered_in_it = [device](const auto& each) {
    return each.second.kind == Memory::registered && each.second.device == device;
  };
  const std::size_t ended = std::erase_if(ranges_, registered_in_it);
  if (ended > 0 && primary.broken == CUDA_SUCCESS) complaints_.emplace_back("registrations end with their context");
  primary.broken = CUDA_SUCCESS;
}

int FakeCuda::device_of(CUcontext context) const {
  const std::lock_guard lock{mutex_};
  for (int device = 0; device < machine.devices; ++device) {
    const Context& primary = contexts_[static_cast<std::size_t>(device)];
    if (reinterpret_cast<CUcontext>(const_cast<Context*>(&primary)) == context && primary.retained > 0) return device;
  }
  return nobody;
}

int FakeCuda::device_of(CUstream stream) const { return reinterpret_cast<Stream*>(stream)->device; }

// ---- memory

CUresult FakeCuda::allocate(Memory kind, std::size_t size, int device, std::byte*& memory) {
  void* made = nullptr;
  if (size == 0 || size > memory_max || ::posix_memalign(&made, 256, size) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  memory = static_cast<std::byte*>(made);
  std::memset(made, 0xA5, size);  // memory that was not cleared
  const std::lock_guard lock{mutex_};
  ranges_[memory] = {kind, size, device};
  return CUDA_SUCCESS;
}

CUresult FakeCuda::free(Memory kind, std::byte* memory, int device) {
  {
    const std::lock_guard lock{mutex_};
    const auto found = ranges_.find(memory);
    if (found == ranges_.end() || found->second.kind != kind) {
      complaints_.emplace_back("gives back memory that is not there");
      return CUDA_ERROR_INVALID_VALUE;
    }
    // Memory that was registered in a failed context may be unregistered in another one. Otherwise each context unregisters its
    // own.
    const Context& made_in = contexts_[static_cast<std::size_t>(found->second.device)];
    const bool orphan = kind == Memory::registered && made_in.broken != CUDA_SUCCESS;
    if (found->second.device != device && !orphan) complaints_.emplace_back("gives back memory in another context");
    ranges_.erase(found);
  }
  if (kind != Memory::registered) std::free(memory);
  return CUDA_SUCCESS;
}

CUresult FakeCuda::pin(std::byte* memory, std::size_t size, int device) {
  if (size > machine.registration_max) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock{mutex_};
  const auto next = ranges_.lower_bound(memory);
  if (next != ranges_.end() && next->first < memory + size) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  if (next != ranges_.begin() && std::prev(next)->first + std::prev(next)->second.size > memory) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  ranges_[memory] = {Memory::registered, size, device};
  return CUDA_SUCCESS;
}

bool FakeCuda::is_pinned(std::byte* begin, int device, CUdeviceptr& seen) const {
  const std::lock_guard lock{mutex_};
  const auto found = ranges_.find(begin);
  if (found == ranges_.end() || found->second.kind == Memory::device) return false;
  const bool registered = found->second.kind == Memory::registered;
  seen = address(begin) + (registered ? mapped_side + mapped_apart * static_cast<unsigned>(device) : 0);
  return true;
}

int FakeCuda::owner(CUdeviceptr where) const {
  for (int device = 0; device < machine.devices; ++device) {
    if (device_bytes(where, 1, device) != nullptr) return device;
  }
  return nobody;
}

const FakeCuda::Range* FakeCuda::range_around(const std::byte* begin, std::size_t size) const {
  auto found = ranges_.upper_bound(begin);
  if (found == ranges_.begin()) return nullptr;
  --found;
  return begin + size <= found->first + found->second.size ? &found->second : nullptr;
}

std::byte* FakeCuda::device_bytes(CUdeviceptr where, std::size_t size, int device) const {
  if ((where & device_side) == 0) return nullptr;
  const std::lock_guard lock{mutex_};
  const Range* const range = range_around(pointer(where - device_side), size);
  const bool is_there = range != nullptr && range->kind == Memory::device && range->device == device;
  return is_there ? pointer(where - device_side) : nullptr;
}

std::byte* FakeCuda::mapped_bytes(CUdeviceptr where, std::size_t size, int device) const {
  const bool registered = (where & mapped_side) != 0;
  if (registered && (where & mapped_bits) != mapped_side + mapped_apart * static_cast<unsigned>(device)) return nullptr;
  std::byte* const begin = pointer(where & ~mapped_bits);
  const std::lock_guard lock{mutex_};
  const Range* const range = range_around(begin, size);
  return range != nullptr && range->kind == (registered ? Memory::registered : Memory::pinned) ? begin : nullptr;
}

std::byte* FakeCuda::host_bytes(CUdeviceptr where, std::size_t size) const {
  if ((where & (device_side | mapped_bits)) != 0) return nullptr;
  const std::lock_guard lock{mutex_};
  const Range* const range = range_around(pointer(where), size);
  return range != nullptr && range->kind != Memory::device ? pointer(where) : nullptr;
}

// ---- copies

CUresult FakeCuda::copy(CUdeviceptr destination, CUdeviceptr source, std::size_t size, CUstream stream, const char* call,
                        bool mapped) {
  const bool out = (source & device_side) != 0;
  const int device = device_of(stream);
  const auto on_host = [=, this](CUdeviceptr where) {
    return mapped ? mapped_bytes(where, size, device) : host_bytes(where, size);
  };
  const auto to = [=, this] { return out ? on_host(destination) : device_bytes(destination, size, device); };
  const auto from = [=, this] { return out ? device_bytes(source, size, device) : on_host(source); };
  if (to() == nullptr || from() == nullptr) {
    complain(std::string{call} + ": not from one pinned range of host memory to one allocation of the stream's device, or back");
    return CUDA_ERROR_INVALID_VALUE;
  }
  run_on(stream, [=, this] {
    if (broken(device) != CUDA_SUCCESS) return;
    std::byte* const there = to();
    const std::byte* const here = from();
    if (there == nullptr || here == nullptr) return complain("a copy under way: its memory has gone");
    std::memcpy(there, here, size);
    pass_time(size);
  });
  return CUDA_SUCCESS;
}

CUresult FakeCuda::copy_tiles(CUdeviceptr tiles, unsigned count, bool bulk, CUstream stream) {
  run_on(stream, [=, this, device = device_of(stream)] {
    if (broken(device) == CUDA_SUCCESS) run_tiles(tiles, count, bulk, device);
  });
  return CUDA_SUCCESS;
}

void FakeCuda::run_tiles(CUdeviceptr tiles, unsigned count, bool bulk, int device) {
  if (count == 0) return;
  const auto* const tile = reinterpret_cast<const CopyTile*>(mapped_bytes(tiles, count * sizeof(CopyTile), device));
  const auto fault = [this, device](const std::string& what) {
    complain("kernel: " + what);
    break_context(CUDA_ERROR_ILLEGAL_ADDRESS, device);
  };
  if (tile == nullptr) return fault("descriptors that the device cannot read");
  for (unsigned i = 0; i < count; ++i) {
    const CopyTile each = tile[i];
    const bool out = (each.source & device_side) != 0;
    const auto on_device = [&](CUdeviceptr where) { return device_bytes(where, each.bytes, device); };
    const auto on_host = [&](CUdeviceptr where) { return mapped_bytes(where, each.bytes, device); };
    std::byte* const to = out ? on_host(each.destination) : on_device(each.destination);
    std::byte* const from = out ? on_device(each.source) : on_host(each.source);
    if (to == nullptr || from == nullptr) return fault("an address that is not the device's");
    if (each.bytes > (bulk ? bulk_tile_bytes : kernel_tile_bytes)) return fault("a tile that is too large");
    if (bulk && (each.source | each.destination | each.bytes) % 16 != 0) return fault("bulk copies are aligned to 16");
    std::memcpy(to, from, each.bytes);
    if (machine.wrong_kernels) to[each.bytes - 1] ^= std::byte{1};
    pass_time(each.bytes);
  }
}

// ---- streams and events

CUstream FakeCuda::make_stream(int device) {
  const std::lock_guard lock{mutex_};
  return reinterpret_cast<CUstream>(streams_.insert(std::make_shared<Stream>(device)).first->get());
}

CUresult FakeCuda::destroy_stream(CUstream stream, int device) {
  std::set<std::shared_ptr<Stream>>::node_type destroyed;
  const std::lock_guard lock{mutex_};
  const auto is_it = [stream](const auto& each) { return each.get() == reinterpret_cast<Stream*>(stream); };
  const auto found = std::ranges::find_if(streams_, is_it);
  if (found == streams_.end()) {
    complaints_.emplace_back("gives back a stream that is not there");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if ((*found)->device != device) complaints_.emplace_back("gives back a stream in another context");
  destroyed = streams_.extract(found);
  return CUDA_SUCCESS;
}

void FakeCuda::synchronize(CUstream stream) { reinterpret_cast<Stream*>(stream)->items.synchronize(); }

CUevent FakeCuda::make_event(bool timed, int device) {
  const auto made = reinterpret_cast<CUevent>(new Event{.mark = nullptr, .timed = timed, .device = device});
  const std::lock_guard lock{mutex_};
  events_.insert(made);
  return made;
}

void FakeCuda::destroy_event(CUevent event, int device) {
  const std::lock_guard lock{mutex_};
  if (events_.erase(event) == 0) complaints_.emplace_back("gives back an event that is not there");
  if (reinterpret_cast<Event*>(event)->device != device) complaints_.emplace_back("gives back an event in another context");
  delete reinterpret_cast<Event*>(event);
}

CUresult FakeCuda::record(CUevent event, CUstream stream) {
  const auto mark = std::make_shared<Mark>();
  {
    const std::lock_guard lock{mutex_};
    Event& of = *reinterpret_cast<Event*>(event);
    if (of.device != device_of(stream)) return CUDA_ERROR_INVALID_HANDLE;
    of.mark = mark;
  }
  run_on(stream, [this, mark] { mark->happen(now_); });
  return CUDA_SUCCESS;
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

std::shared_ptr<FakeCuda::Mark> FakeCuda::mark_of(CUevent event) const {
  const std::lock_guard lock{mutex_};
  return reinterpret_cast<Event*>(event)->mark;
}

void FakeCuda::wait(CUstream stream, CUevent event) {
  if (const auto mark = mark_of(event)) run_on(stream, [mark] { mark->wait(); });
}

void FakeCuda::synchronize(CUevent event) {
  if (const auto mark = mark_of(event)) mark->wait();
}

bool FakeCuda::happened(CUevent event) const {
  const auto mark = mark_of(event);
  if (!mark) return true;
  const std::lock_guard lock{mark->mutex};
  return mark->happened;
}

void FakeCuda::count_module(int by) {
  const std::lock_guard lock{mutex_};
  modules_ += by;
}

}  // namespace terrace::test
