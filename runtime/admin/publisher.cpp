#include "runtime/admin/publisher.hpp"

#include <memory>
#include <optional>
#include <utility>

namespace terrace::admin {

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
