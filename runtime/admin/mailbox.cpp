#include "runtime/admin/mailbox.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <utility>

namespace terrace::admin {

Reply answer(const boost::json::value& body, unsigned status) { return {status, boost::json::serialize(body) + "\n"}; }

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

}  // namespace terrace::admin
