#include "terrace/event_publisher.hpp"

#include <stdexcept>

namespace terrace {

struct EventPublisher::State {};

EventPublisher::EventPublisher(const EventPublisherOptions&) {
  throw std::runtime_error{
      "this library was built without ZeroMQ, so it cannot publish events; build it where libzmq and cppzmq are installed"};
}

// There is no object for which these could be called.
EventPublisher::~EventPublisher() = default;
Result<void> EventPublisher::describe(const BlockTokens&) { return Errc::stopped; }
Result<void> EventPublisher::publish(std::span<const KvEvent>) { return Errc::stopped; }
EventPublisherStats EventPublisher::stats() const { return {}; }
const std::string& EventPublisher::endpoint() const {
  static const std::string none;
  return none;
}
const std::string& EventPublisher::replay_endpoint() const { return endpoint(); }
bool EventPublisher::is_of_this_process() const { return false; }

}  // namespace terrace
