#include "capi/keys.hpp"
#include "capi/status.hpp"
#include "terrace.h"
#include "terrace/event_publisher.hpp"

#include <chrono>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// A publisher has no turns: its calls are for several threads at once.
struct terrace_event_publisher {
  static constexpr const char* name = "publisher";
  struct NoTurn {};
  [[nodiscard]] static NoTurn take_turn() { return {}; }
  [[nodiscard]] bool is_here() const { return publisher.is_of_this_process(); }

  terrace::EventPublisher publisher;
};

namespace terrace::capi {
namespace {

static_assert(static_cast<int>(Source::device) + 1 == TERRACE_DEVICE && static_cast<int>(Source::shared) + 1 == TERRACE_SHARED);
static_assert(static_cast<int>(KvEvent::Kind::cleared) == TERRACE_CACHE_CLEARED);

/// Sets an option unless the caller's value means its default.
template <class Option, class Given>
void set(Option& option, Given given) {
  if (given != Given{}) option = Option{given};
}

EventPublisherOptions read_options(const terrace_event_options* options) {
  const terrace_event_options given = read_struct("options", options);
  EventPublisherOptions read;
  set(read.endpoint, given.endpoint);
  set(read.replay_endpoint, given.replay_endpoint);
  set(read.topic, given.topic);
  read.connect = given.connect != 0;
  read.data_parallel_rank = given.data_parallel_rank;
  set(read.buffer_steps, given.buffer_steps);
  set(read.hwm, given.hwm);
  set(read.max_queue_size, given.max_queue_size);
  set(read.max_blocks, given.max_blocks);
  set(read.buffer_bytes, given.buffer_bytes);
  set(read.heartbeat, given.heartbeat);
  return read;
}

KvEvent read_event(const terrace_cache_event& given, std::size_t i) {
  const auto refuse = [&](const char* member, std::uint64_t value, const char* right) {
    throw std::invalid_argument{"events[" + std::to_string(i) + "]." + member + " is " + std::to_string(value) + ", must be " +
                                right};
  };
  if (given.kind > TERRACE_CACHE_CLEARED) refuse("kind", given.kind, "a TERRACE_CACHE_ number");
  KvEvent event{.kind = static_cast<KvEvent::Kind>(given.kind)};
  if (event.kind == KvEvent::Kind::cleared) return event;
  if (given.source < TERRACE_DEVICE || given.source > TERRACE_SHARED) {
    refuse("source", given.source, "TERRACE_DEVICE, TERRACE_HOST, TERRACE_STORAGE or TERRACE_SHARED");
  }
  if (given.group > std::numeric_limits<GroupId::rep>::max()) refuse("group", given.group, "at most 65535");
  event.source = static_cast<Source>(given.source - TERRACE_DEVICE);
  event.group = GroupId{static_cast<GroupId::rep>(given.group)};
  event.depth = given.depth;
  event.tenant = TenantId{given.tenant};
  event.key = key_of(given.key);
  if (key_of(given.parent) != BlockKey{}) event.parent = key_of(given.parent);
  return event;
}

}  // namespace
}  // namespace terrace::capi

using namespace terrace::capi;

terrace_status terrace_event_publisher_open(const terrace_event_options* options, terrace_event_publisher** out) {
  return guarded(__func__, [&] {
    need(out, "out");
    *out = nullptr;
    *out = new terrace_event_publisher{terrace::EventPublisher{read_options(options)}};
  });
}

void terrace_event_publisher_destroy(terrace_event_publisher* publisher) { delete publisher; }

const char* terrace_event_publisher_endpoint(const terrace_event_publisher* publisher) {
  return publisher == nullptr ? "" : publisher->publisher.endpoint().c_str();
}

const char* terrace_event_publisher_replay_endpoint(const terrace_event_publisher* publisher) {
  return publisher == nullptr ? "" : publisher->publisher.replay_endpoint().c_str();
}

terrace_status terrace_event_publisher_describe(terrace_event_publisher* publisher, const terrace_block_tokens* blocks) {
  return on(publisher, __func__, [&] {
    const terrace_block_tokens given = read_struct("blocks", blocks);
    if (given.token_count > 0) need(given.tokens, "blocks->tokens");
    if (given.group > std::numeric_limits<terrace::GroupId::rep>::max()) {
      throw std::invalid_argument{"blocks->group is " + std::to_string(given.group) + ", must be at most 65535"};
    }
    terrace::BlockTokens read{.keys = keys_of(given.keys, given.count, "blocks->keys"),
                              .tokens = {given.tokens, given.token_count},
                              .block_tokens = given.block_tokens,
                              .group = terrace::GroupId{static_cast<terrace::GroupId::rep>(given.group)}};
    if (given.parent != nullptr) read.parent = key_of(*given.parent);
    if (given.adapter != nullptr) read.adapter = given.adapter;
    return publisher->publisher.describe(read);
  });
}

terrace_status terrace_event_publisher_publish(terrace_event_publisher* publisher, const terrace_cache_event* events,
                                               size_t count) {
  return on(publisher, __func__, [&] {
    if (count > 0) need(events, "events");
    std::vector<terrace::KvEvent> read;
    read.reserve(count);
    for (std::size_t i = 0; i < count; ++i) read.push_back(read_event(events[i], i));
    return publisher->publisher.publish(read);
  });
}

terrace_status terrace_event_publisher_read_statistics(const terrace_event_publisher* publisher, terrace_event_statistics* out) {
  return on(publisher, __func__, [&] {
    const terrace::EventPublisherStats stats = publisher->publisher.stats();
    terrace_event_statistics value{};
    value.batches = stats.batches;
    value.bytes = stats.bytes;
    value.stored = stats.stored;
    value.removed = stats.removed;
    value.cleared = stats.cleared;
    value.without_tokens = stats.without_tokens;
    value.not_remembered = stats.not_remembered;
    value.queue_overflows = stats.queue_overflows;
    value.descriptions_refused = stats.descriptions_refused;
    value.replays = stats.replays;
    value.replayed_batches = stats.replayed_batches;
    value.snapshots = stats.snapshots;
    value.replays_cut = stats.replays_cut;
    value.malformed_requests = stats.malformed_requests;
    value.batches_lost = stats.batches_lost;
    value.peers_refused = stats.peers_refused;
    value.peers_dropped = stats.peers_dropped;
    value.failures = stats.failures;
    value.subscribers = stats.subscribers;
    value.known_blocks = stats.known_blocks;
    value.published_blocks = stats.published_blocks;
    value.buffered_batches = stats.buffered_batches;
    write_struct("out", value, out);
  });
}
