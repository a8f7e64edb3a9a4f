#include "runtime/admin/mailbox.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

namespace terrace::admin {

Reply answer(const boost::json::value& body, unsigned status) { return {status, boost::json::serialize(body) + "\n"}; }

Reply too_large(Tier tier, std::uint64_t blocks, std::uint64_t largest, Bytes block, std::string_view why) {
  return answer(
      boost::json::object{
          {"error", fmt::format("{} blocks ({}) do not fit into the {} tier: {}; the largest size that fits is {} blocks ({})",
                                blocks, to_string(block * blocks), to_string(tier), why, largest, to_string(block * largest))},
          {"largest_blocks", largest},
          {"largest_bytes", count(block) * largest}},
      409);
}

std::optional<Mailbox::CommandId> Mailbox::post(Command command, Done done) {
  CommandId id = 0;
  {
    const std::lock_guard lock{mutex_};
    if (closed_ || posted_.size() >= commands_max) return std::nullopt;
    id = ++last_;
    posted_.push_back({id, std::move(command), std::move(done)});
    waiting_.store(true, std::memory_order_release);
  }
  cache_.wake();
  return id;
}

bool Mailbox::withdraw(CommandId id) {
  const std::lock_guard lock{mutex_};
  const auto found = std::ranges::find(posted_, id, &Posted::id);
  if (found == posted_.end()) return false;
  posted_.erase(found);
  waiting_.store(!posted_.empty(), std::memory_order_release);
  return true;
}

SharedSnapshot Mailbox::latest() const {
  const std::lock_guard lock{mutex_};
  return latest_;
}

std::optional<Mailbox::Posted> Mailbox::take() {
  const std::lock_guard lock{mutex_};
  if (posted_.empty()) return std::nullopt;
  Posted first = std::move(posted_.front());
  posted_.pop_front();
  waiting_.store(!posted_.empty(), std::memory_order_release);
  return first;
}

void Mailbox::publish(SharedSnapshot snapshot) {
  const std::lock_guard lock{mutex_};
  latest_.swap(snapshot);
}

void Mailbox::give(Observed observed) {
  std::deque<Observed> dropped;  // destroyed outside the lock
  const std::lock_guard lock{mutex_};
  if (observed.is_empty() && !observed_.empty()) {
    Observed& last = observed_.back();
    if (last.is_empty() && last.captures == observed.captures) {
      last.made = observed.made;
      return;
    }
  }
  observed_.push_back(std::move(observed));
  if (observed_.size() <= observed_max) return;
  dropped.push_back(std::move(observed_.front()));
  observed_.pop_front();
  observed_.front().gap = true;
}

std::deque<Observed> Mailbox::observed() {
  const std::lock_guard lock{mutex_};
  return std::exchange(observed_, {});
}

void Mailbox::close() {
  std::deque<Posted> left;
  {
    const std::lock_guard lock{mutex_};
    closed_ = true;
    left.swap(posted_);
    waiting_.store(false, std::memory_order_release);
  }
  for (const Posted& posted : left) posted.done({503, error_body("the cache or store has ended")});
}

void Publisher::begin(Subject subject, TimePoint now) {
  subject_ = std::move(subject);
  publish(now);
}

void Publisher::end() {
  subject_ = {};
  next_ = never;
  mailbox_.close();
}

void Publisher::on_polled(TimePoint now, bool changed) {
  if (!subject_.describe || running_) return;
  bool published = false;
  while (mailbox_.waiting()) {
    const std::optional<Mailbox::Posted> posted = mailbox_.take();
    if (!posted) break;
    running_ = true;  // a command may poll
    Reply reply = subject_.carry_out(posted->command);
    running_ = false;
    publish(now);  // before the reply, so that the client's next query sees the effect
    posted->done(std::move(reply));
    published = true;
  }
  if (!published && (changed || now >= next_)) publish(now);
}

void Publisher::publish(TimePoint now) {
  auto made = std::make_shared<AdminSnapshot>();
  made->made = now;
  made->number = ++number_;
  subject_.describe(*made);
  mailbox_.publish(std::move(made));
  next_ = now + interval_;
}

}  // namespace terrace::admin
