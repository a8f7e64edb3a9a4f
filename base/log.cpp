#include "base/log.hpp"

#include "base/thread.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace terrace {

std::string_view to_string(LogLevel level) {
  switch (level) {
    case LogLevel::info: return "info";
    case LogLevel::warning: return "warning";
    case LogLevel::error: return "error";
  }
  return "?";
}

Log::Log(const LogOptions& options, const Clock& clock) : options_{options}, clock_{clock} {
  if (options_.sink != nullptr) thread_ = start_thread("terrace-log", [this] { hand_on(); });
}

Log::~Log() { end(); }

void Log::end() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock{mutex_};
    end_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

Log::Topic& Log::topic_of(std::string_view name, TimePoint now) {
  auto topic = std::ranges::find(topics_, name, &Topic::name);
  if (topic == topics_.end()) topic = topics_.insert(topics_.end(), Topic{name, now});
  if (now - topic->period_begin >= options_.period) {
    topic->period_begin = now;
    topic->said = 0;
  }
  return *topic;
}

void Log::post(LogLevel level, std::string_view name, std::string sentence) {
  const TimePoint now = clock_.now();
  {
    const std::lock_guard lock{mutex_};
    if (end_) return;
    Topic& topic = topic_of(name, now);
    if (topic.said >= options_.per_period || waiting_.size() >= options_.waiting_max) {
      ++topic.left_out;
      return;
    }
    ++topic.said;
    if (topic.left_out > 0) sentence += fmt::format(" ({} more about {} were left out)", std::exchange(topic.left_out, 0), name);
    waiting_.push_back({level, std::move(sentence)});
  }
  changed_.notify_one();
}

void Log::hand_on() {
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock, [this] { return end_ || !waiting_.empty(); });
    if (waiting_.empty()) break;
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    options_.sink->write(next.level, next.sentence);
    lock.lock();
  }
  for (const Topic& topic : topics_) {
    if (topic.left_out == 0) continue;
    options_.sink->write(LogLevel::warning, fmt::format("{} more about {} were left out", topic.left_out, topic.name));
  }
}

}  // namespace terrace
