#include "runtime/admin/history/history.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>

namespace terrace::admin {
namespace {

namespace json = boost::json;

/// The growth of a total since the last moment.
std::uint64_t grown(std::uint64_t now, std::uint64_t before) { return now > before ? now - before : 0; }

template <class Named, class Name>
const Named* find(const std::vector<Named>& all, const Name& name, Name Named::*member) {
  const auto found = std::ranges::find(all, name, member);
  return found == all.end() ? nullptr : &*found;
}

/// The sentence without its numbers: they may change while the event is the same.
std::string without_numbers(std::string_view sentence) {
  std::string words;
  std::ranges::copy_if(sentence, std::back_inserter(words), [](char c) { return (c < '0' || c > '9') && c != '.'; });
  return words;
}

/// The sentence up to its cause: what is wrong may go on for another reason.
std::string_view trouble_of(std::string_view sentence) {
  const std::size_t begin = sentence.starts_with("pool ") ? sentence.find(": ") + 1 : 0;
  return sentence.substr(0, sentence.find(": ", begin));
}

bool says_the_same(const std::vector<std::string>& sentences, const std::string& sentence) {
  return std::ranges::any_of(sentences,
                             [&](const std::string& each) { return without_numbers(each) == without_numbers(sentence); });
}

double seconds_of(History::WallTime wall) { return std::chrono::duration<double>(wall.time_since_epoch()).count(); }

}  // namespace

void History::look(Moment moment, TimePoint now, WallTime wall) {
  Minute& minute = minute_of(wall);
  minute.queued_blocks = std::max(minute.queued_blocks, moment.queued_blocks);
  minute.queued_seconds = std::max(minute.queued_seconds, moment.queued_seconds);
  minute.waiting = std::max(minute.waiting, moment.waiting);
  minute.waiting_seconds = std::max(minute.waiting_seconds, moment.waiting_seconds);
  if (before_) add_totals(moment, minute);
  add_slowest(moment, now, wall);
  if (before_) add_events(moment, wall);
  before_ = std::move(moment);
}

History::Minute& History::minute_of(WallTime wall) {
  const auto begin = std::chrono::floor<std::chrono::minutes>(wall);
  if (minutes_.empty() || minutes_.back().begin < begin) {
    minutes_.push_back({.begin = begin});
    if (minutes_.size() > minutes_max) minutes_.pop_front();
  }
  return minutes_.back();
}

void History::add_totals(const Moment& moment, Minute& minute) const {
  minute.ready_at_once += grown(moment.ready_at_once, before_->ready_at_once);
  for (const Moment::Waits& each : moment.waits) {
    const Moment::Waits* const then = find(before_->waits, each.what, &Moment::Waits::what);
    const std::uint64_t requests = grown(each.requests, then == nullptr ? 0 : then->requests);
    if (requests == 0) continue;
    const double seconds = each.seconds - (then == nullptr ? 0 : then->seconds);
    const auto found = std::ranges::find(minute.waits, each.what, &Moment::Waits::what);
    Moment::Waits& sum = found == minute.waits.end() ? minute.waits.emplace_back(Moment::Waits{each.what}) : *found;
    sum.requests += requests;
    sum.seconds += seconds;
  }
  for (const Moment::Total& each : moment.moved_bytes) {
    const Moment::Total* const then = find(before_->moved_bytes, each.name, &Moment::Total::name);
    const std::uint64_t bytes = grown(each.amount, then == nullptr ? 0 : then->amount);
    if (bytes > 0) minute.moved_bytes[each.name] += bytes;
  }
}

void History::add_slowest(const Moment& moment, TimePoint now, WallTime wall) {
  for (const Moment::Slow& wait : moment.slowest) {
    const WallTime ended = wall - std::chrono::duration_cast<WallTime::duration>(now - wait.ended);
    const auto begin = std::chrono::floor<std::chrono::minutes>(ended);
    const auto minute = std::ranges::find(minutes_, begin, &Minute::begin);
    if (minute == minutes_.end()) continue;
    std::vector<Slow>& slowest = minute->slowest;
    const bool known =
        std::ranges::any_of(slowest, [&](const Slow& each) { return each.wait.id == wait.id && each.wait.ended == wait.ended; });
    if (known) continue;
    slowest.insert(std::ranges::upper_bound(slowest, wait.seconds, std::ranges::greater{},
                                            [](const Slow& each) { return each.wait.seconds; }),
                   {wait, ended});
    if (slowest.size() > slowest_max) slowest.pop_back();
  }
}

void History::add_events(const Moment& moment, WallTime wall) {
  for (const std::string& reason : moment.reasons) {
    if (!says_the_same(before_->reasons, reason)) note(reason, wall);
  }
  for (const std::string& reason : before_->reasons) {
    const auto goes_on = [&](const std::string& now) { return trouble_of(now) == trouble_of(reason); };
    if (!says_the_same(moment.reasons, reason) && std::ranges::none_of(moment.reasons, goes_on)) note("over: " + reason, wall);
  }
  for (const Moment::Value& each : moment.values) {
    const Moment::Value* const then = find(before_->values, each.name, &Moment::Value::name);
    if (then == nullptr) note(fmt::format("{}: {}", each.name, each.value), wall);
    else if (then->value != each.value) note(fmt::format("{}: {}, before {}", each.name, each.value, then->value), wall);
  }
  for (const Moment::Total& each : moment.troubles) {
    const Moment::Total* const then = find(before_->troubles, each.name, &Moment::Total::name);
    const std::uint64_t times = grown(each.amount, then == nullptr ? 0 : then->amount);
    if (times > 0) note(each.name, wall, times);
  }
}

void History::note(std::string text, WallTime wall, std::uint64_t times) {
  if (text.size() > text_max) {
    std::size_t end = text_max;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;  // do not cut inside a UTF-8 character
    text.resize(end);
  }
  Minute& minute = minute_of(wall);
  if (const auto same = std::ranges::find(minute.events, text, &Event::text); same != minute.events.end()) {
    same->times += times;
    return;
  }
  if (minute.events.size() >= events_max) ++minute.events_left_out;
  else minute.events.push_back({wall, std::move(text), times});
}

json::array History::to_json(std::optional<WallTime> at) const {
  constexpr std::chrono::minutes margin{2};
  json::array all;
  for (const Minute& minute : minutes_) {
    if (at) {
      const auto middle = std::chrono::floor<std::chrono::minutes>(*at);
      if (minute.begin < middle - margin || minute.begin > middle + margin) continue;
    }
    json::object waits{{"at_once", minute.ready_at_once}};
    for (const Moment::Waits& each : minute.waits)
      waits[each.what] = json::object{{"requests", each.requests}, {"seconds", each.seconds}};
    json::array slowest;
    for (const Slow& each : minute.slowest) {
      slowest.push_back(
          {{"id", each.wait.id}, {"seconds", each.wait.seconds}, {"for", each.wait.what}, {"ended", seconds_of(each.ended)}});
    }
    json::object moved;
    for (const auto& [name, bytes] : minute.moved_bytes) moved[name] = bytes;
    json::array events;
    for (const Event& event : minute.events)
      events.push_back({{"at", seconds_of(event.at)}, {"text", event.text}, {"times", event.times}});
    all.push_back({{"begin", std::chrono::duration_cast<std::chrono::seconds>(minute.begin.time_since_epoch()).count()},
                   {"waits", std::move(waits)},
                   {"slowest", std::move(slowest)},
                   {"waiting", {{"requests", minute.waiting}, {"oldest_seconds", minute.waiting_seconds}}},
                   {"queue", {{"blocks", minute.queued_blocks}, {"oldest_seconds", minute.queued_seconds}}},
                   {"moved_bytes", std::move(moved)},
                   {"events", std::move(events)},
                   {"events_left_out", minute.events_left_out}});
  }
  return all;
}

}  // namespace terrace::admin
