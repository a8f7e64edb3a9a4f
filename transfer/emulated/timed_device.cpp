#include "transfer/emulated/timed_device.hpp"

#include "transfer/device/transfer.hpp"

#include <algorithm>
#include <chrono>

namespace terrace {

void TimedDevice::submit(CopyCommand command) {
  const DevicePool& pool = info_.pool(command.pool);
  Bytes bytes = pool.block_bytes * block_count(command.runs);
  if (command.layers) bytes = Bytes{count(bytes) / pool.layers * command.layers->count};
  const Duration took = time_for(bytes);
  Stream& stream = streams_[static_cast<std::size_t>(command.direction)];
  stream.free_at = std::max(stream.free_at, clock_.now()) + took;
  stream.busy += took;
  stream.commands.push_back({stream.free_at, {command.token, {}, took}});
}

std::size_t TimedDevice::poll(std::vector<CopyDone>& done) {
  const std::size_t before = done.size();
  for (Stream& stream : streams_) {
    for (; !stream.commands.empty() && stream.commands.front().ends + link_.notice <= clock_.now(); stream.commands.pop_front()) {
      done.push_back(stream.commands.front().done);
    }
  }
  return done.size() - before;
}

TimePoint TimedDevice::next_notice() const {
  TimePoint next = never;
  for (const Stream& stream : streams_) {
    if (!stream.commands.empty()) next = std::min(next, stream.commands.front().ends + link_.notice);
  }
  return next;
}

Duration TimedDevice::time_for(Bytes bytes) const {
  const double seconds = static_cast<double>(count(bytes)) / static_cast<double>(count(link_.bytes_per_second));
  return std::chrono::round<Duration>(std::chrono::duration<double>{seconds});
}

}  // namespace terrace
