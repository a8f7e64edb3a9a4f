#include "storage/redis/redis_client.hpp"

#include "base/check.hpp"
#include "storage/redis/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace terrace {

/// CLUSTER SLOTS.
class RedisClient::MapQuestion final : public Exchange {
 public:
  MapQuestion(RedisClient& client, RedisNode& node) : client_{client}, node_{node} {
    append_command(segments[0].text, {"CLUSTER", "SLOTS"});
    whole_replies = true;
  }
  [[nodiscard]] bool wanted() const override { return client_.map_question_ == this; }
  void replied(RespValue reply) override { client_.read_map(reply, node_); }
  void broken() override { client_.map_question_ = nullptr; }

 private:
  RedisClient& client_;
  RedisNode& node_;
};

/// Commands whose replies are ignored.
class RedisClient::Order final : public Exchange {
 public:
  Order(RedisClient& client, RedisNode& node, Commands commands) : client_{client}, node_{node} {
    replies = commands.count;
    window_bytes = commands.text.size();
    segments[0].text = std::move(commands.text);
    ++node_.orders;
  }
  ~Order() override { --node_.orders; }
  void replied(RespValue reply) override {
    if (const auto redirection = reply.is_error() ? parse_redirection(reply.text, node_.address()) : std::nullopt) {
      (void)client_.follow(*redirection);
    } else if (reply.is_error("NOPERM")) {
      node_.complain(reply.text);
    }
  }
  void broken() override {}

 private:
  RedisClient& client_;
  RedisNode& node_;
};

RedisClient::RedisClient(const RedisOptions& options, RedisTransport& transport, const Clock& clock,
                         std::shared_ptr<const SharedSecret> secret, std::function<void()> after_tick)
    : options_{options},
      transport_{transport},
      clock_{clock},
      secret_{secret},
      after_tick_{std::move(after_tick)},
      random_{options.seed},
      map_wanted_{options.cluster},
      writer_{std::move(secret)} {
  for (const RedisAddress& host : options.hosts) (void)node_at(host);
}

RedisClient::~RedisClient() {
  for (const auto& node : nodes_) node->close();
  // Operations and nodes refer to each other.
  operations_.clear();
  without_map_.clear();
  nodes_.clear();
}

// ---- operations ----------------------------------------------------------------------------------------------------------

void RedisClient::begin(KeptOperation order, std::shared_ptr<const SharedValueNames> names) {
  std::shared_ptr<RedisOperation> operation;
  if (order.kind == SharedEvent::Kind::probed) {
    operation = std::make_shared<RedisProbeOperation>(*this, std::move(order), std::move(names));
  } else {
    operation = std::make_shared<RedisBlockOperation>(*this, std::move(order), std::move(names));
  }
  const KeptOperation& kept = operation->order();
  const bool added = operations_.emplace(kept.token, operation).second;
  TERRACE_CHECK(added);
  if (kept.deadline != never) deadlines_.emplace(kept.deadline, kept.token);
  if (awaits_map()) without_map_.push_back(std::move(operation));
  else operation->start();
}

void RedisClient::cancel(std::uint64_t token) {
  const auto found = operations_.find(token);
  if (found == operations_.end()) return;
  const std::shared_ptr<RedisOperation> operation = found->second;
  operation->end(Errc::cancelled);
}

void RedisClient::ended(const KeptOperation& order, ErrorCode error, std::uint32_t leading) {
  const SharedEvent event{order.kind, order.token, error, leading};
  count_ended(stat_, event, order.size());
  bytes_ended_ += order.block_bytes();
  deadlines_.erase({order.deadline, order.token});
  operations_.erase(event.token);
  events_.push_back(event);
}

void RedisClient::take_events(std::vector<SharedEvent>& out) {
  out.clear();
  std::swap(out, events_);
}

std::unique_ptr<SharedValueReader> RedisClient::take_reader() {
  if (readers_.empty()) return std::make_unique<SharedValueReader>(secret_);
  std::unique_ptr<SharedValueReader> reader = std::move(readers_.back());
  readers_.pop_back();
  return reader;
}

std::string RedisClient::expiry_ms(std::uint32_t depth) const {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(options_.expiry.of(depth)).count();
  return std::to_string(std::max<std::int64_t>(ms, 1));
}

void RedisClient::renew(const std::vector<StoredBlock>& blocks, const SharedValueNames& names) {
  stat_.renewed += blocks.size();
  if (!options_.expiry.expires()) return;
  std::map<RedisNode*, Commands> by_node;
  for (const StoredBlock& block : blocks) {
    const std::string first = names.name(block.key, block.group, 0);
    Commands& commands = by_node[node_of(redis_slot(first))];
    const std::string expiry = expiry_ms(block.depth);
    append_command(commands.text, {"PEXPIRE", first, expiry});
    append_command(commands.text, {"PEXPIRE", names.name(block.key, block.group, 1), expiry});
    commands.count += 2;
  }
  order(std::move(by_node));
}

void RedisClient::remove(const std::vector<BlockKey>& keys, GroupId group, const SharedValueNames& names) {
  std::map<RedisNode*, Commands> by_node;
  for (const BlockKey& key : keys) {
    const std::string first = names.name(key, group, 0);
    Commands& commands = by_node[node_of(redis_slot(first))];
    append_command(commands.text, {"UNLINK", first});
    append_command(commands.text, {"UNLINK", names.name(key, group, 1)});
    commands.count += 2;
  }
  stat_.removed += keys.size();
  order(std::move(by_node));
}

void RedisClient::order(std::map<RedisNode*, Commands>&& by_node) {
  for (auto& [node, commands] : by_node) {
    if (node == nullptr || !node->usable() || node->orders >= orders_max) continue;
    node->submit(std::make_unique<Order>(*this, *node, std::move(commands)), RedisNode::Lane::writing);
  }
}

// ---- nodes ---------------------------------------------------------------------------------------------------------------

RedisNode* RedisClient::node_at(const RedisAddress& address) {
  for (const auto& node : nodes_) {
    if (node->address() == address) return node.get();
  }
  auto place = nodes_.end();
  if (nodes_.size() == nodes_max) {
    const auto is_free = [](const auto& node) { return !node->is_used() && node->is_idle(); };
    place = std::find_if(nodes_.begin() + static_cast<std::ptrdiff_t>(options_.hosts.size()), nodes_.end(), is_free);
    if (place == nodes_.end()) return nullptr;
    map_changes_ += (*place)->changes() + 1;  // so that health_changes() grows
  } else {
    place = nodes_.insert(nodes_.end(), nullptr);
  }
  const auto number = static_cast<std::uint32_t>(place - nodes_.begin());
  *place = std::make_unique<RedisNode>(number, address, options_, transport_, random_);
  (*place)->use(options_.connections);
  return place->get();
}

bool RedisClient::add_to_map(RedisNode* node) {
  if (std::ranges::find(mapped_, node) != mapped_.end()) return true;
  if (node == nullptr || mapped_.size() == options_.connections_max) return false;
  node->use(1);  // choose_used() may give it more
  mapped_.push_back(node);
  return true;
}

RedisNode* RedisClient::node_of(std::uint32_t slot) {
  if (!options_.cluster) return nodes_.front().get();
  RedisNode* const node = slots_.empty() ? nullptr : slots_[slot];
  if (node == nullptr || !node->usable()) map_wanted_ = true;
  return node;
}

bool RedisClient::awaits_map() const {
  // A node that answers without a map is asked again, but operations do not wait for that.
  return options_.cluster && slots_.empty() && map_trouble_.empty() &&
         std::ranges::any_of(nodes_, [](const auto& node) { return node->usable(); });
}

RedisNode* RedisClient::follow(const RedisRedirection& redirection) {
  if (!options_.cluster) return nullptr;
  map_wanted_ = true;
  RedisNode* const node = node_at(redirection.node);
  if (node == nullptr) return nullptr;
  if (!redirection.for_good || slots_.empty()) {
    if (!node->is_used()) node->use(1);
    return node;
  }
  if (!add_to_map(node)) return nullptr;
  slots_[redirection.slot] = node;
  return node;
}

void RedisClient::refused(RedisNode& node, const std::string& error) {
  using Outcome = RedisNode::Outcome;
  const std::string_view word = std::string_view{error}.substr(0, error.find(' '));
  // A command that is forbidden for this user says nothing about the state of the node. A slot migration is short.
  Outcome outcome = Outcome::failed;
  if (word == "NOPERM" || word == "READONLY") node.complain(error);
  if (word == "NOPERM" || word == "READONLY" || word == "TRYAGAIN") outcome = Outcome::unclear;
  if (word == "READONLY" || word == "CLUSTERDOWN" || word == "MASTERDOWN") map_wanted_ = options_.cluster;
  if (word == "READONLY" && !options_.cluster) node.renew(role_age, clock_.now(), error);
  if (word == "NOAUTH" || word == "WRONGPASS") node.renew({}, clock_.now(), error);
  node.ended(outcome, clock_.now(), error);
}

void RedisClient::ask_for_map(TimePoint now) {
  if (map_question_ != nullptr && now >= map_give_up_) {
    map_question_ = nullptr;
    map_asked_->ended(RedisNode::Outcome::failed, now, "it does not answer CLUSTER SLOTS in time");
  }
  if (!map_wanted_ || map_question_ != nullptr || now < map_next_) return;
  std::vector<RedisNode*> ready;
  for (const auto& node : nodes_) {
    if (node->usable() && node->is_ready()) ready.push_back(node.get());
  }
  if (ready.empty()) return;
  map_asked_ = ready[random_.below(ready.size())];
  auto question = std::make_unique<MapQuestion>(*this, *map_asked_);
  map_question_ = question.get();
  map_next_ = now + map_pause;
  map_give_up_ = now + options_.connect_timeout;
  map_wanted_ = false;
  map_asked_->submit(std::move(question), RedisNode::Lane::asking);
}

void RedisClient::read_map(const RespValue& reply, const RedisNode& asked) {
  map_question_ = nullptr;
  ++map_changes_;
  const auto ranges = parse_slots(reply, asked.address());
  if (!ranges || ranges->empty()) {
    map_trouble_ = reply.is_error() ? asked.without_password(reply.text) : "its cluster has no slots";
    map_trouble_ = fmt::format("{}: {}", to_string(asked.address()), map_trouble_);
    map_wanted_ = true;
    return;
  }
  map_trouble_.clear();
  slots_.assign(redis_slot_count, nullptr);
  mapped_.clear();
  for (const RedisSlotRange& range : *ranges) {
    RedisNode* const node = node_at(range.master);
    if (add_to_map(node)) std::fill(slots_.begin() + range.first, slots_.begin() + range.last + 1, node);
  }
}

/// Connections are for the nodes of the map. While none of these nodes answers, the nodes of the URL are also used, because they
/// may have a newer map.
void RedisClient::choose_used() {
  if (!options_.cluster) return;
  const bool lost = std::ranges::none_of(mapped_, &RedisNode::is_ready);
  const std::size_t each = std::max<std::size_t>(1, options_.connections_max / std::max<std::size_t>(1, mapped_.size()));
  const auto connections = static_cast<std::uint32_t>(std::min<std::size_t>(options_.connections, each));
  for (std::size_t i = 0; i < nodes_.size(); ++i) nodes_[i]->use(lost && i < options_.hosts.size() ? connections : 0);
  for (RedisNode* const node : mapped_) node->use(connections);
}

// ---- work ----------------------------------------------------------------------------------------------------------------

void RedisClient::connected(const RedisConnectionId& id, std::string_view password) {
  if (is_current(id)) nodes_[id.node]->connected(id, password);
  tick();
}

void RedisClient::lost(const RedisConnectionId& id, std::string_view why) {
  nodes_[id.node]->lost(id, why, clock_.now());
  tick();
}

void RedisClient::tick() {
  const TimePoint now = clock_.now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const std::shared_ptr<RedisOperation> late = operations_.at(deadlines_.begin()->second);
    late->expire();
  }
  choose_used();
  ask_for_map(now);
  std::erase_if(without_map_, [](const auto& operation) { return operation->has_ended(); });
  if (!awaits_map()) {
    for (const auto& operation : std::exchange(without_map_, {})) {
      if (!operation->has_ended()) operation->start();
    }
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i]->work(now);
    if (nodes_[i]->take_lost()) map_wanted_ = options_.cluster;
  }
  after_tick_();
}

TimePoint RedisClient::next_deadline() const {
  TimePoint next = deadlines_.empty() ? never : deadlines_.begin()->first;
  bool ready = false;
  for (const auto& node : nodes_) {
    next = std::min(next, node->next());
    ready = ready || (node->usable() && node->is_ready());
  }
  if (map_question_ != nullptr) next = std::min(next, map_give_up_);
  else if (map_wanted_ && ready) next = std::min(next, map_next_);
  if (!without_map_.empty() && !awaits_map()) next = TimePoint{};
  return next;
}

bool RedisClient::usable() const {
  if (options_.cluster && slots_.empty()) return awaits_map();
  return options_.cluster ? std::ranges::any_of(mapped_, &RedisNode::usable) : nodes_.front()->usable();
}

std::uint64_t RedisClient::health_changes() const {
  std::uint64_t changes = map_changes_;
  for (const auto& node : nodes_) changes += node->changes();
  return changes;
}

SharedHealth RedisClient::health() const {
  SharedHealth health;
  std::size_t answering = 0;
  std::size_t well = 0;
  for (const auto& node : nodes_) {
    const bool mapped = !options_.cluster || slots_.empty() || std::ranges::find(mapped_, node.get()) != mapped_.end();
    if (!mapped) continue;
    health.nodes.push_back(node->describe());
    const bool answers = node->is_ready() && !node->declines();
    answering += answers;
    well += answers && node->complaint().empty();
    if (!health.reason.empty()) continue;
    if (!answers) {
      health.reason = fmt::format("{} is not used: {}", to_string(node->address()),
                                  node->trouble().empty() ? "it is being connected" : node->trouble());
    } else if (!node->complaint().empty()) {
      health.reason = fmt::format("{} forbids something: {}", to_string(node->address()), node->complaint());
    }
  }
  const auto lost = std::ranges::count(slots_, nullptr);
  if (!map_trouble_.empty() && slots_.empty()) health.reason = map_trouble_;
  else if (lost > 0 && health.reason.empty())
    health.reason = fmt::format("{} of {} slots have no node{}", lost, slots_.size(),
                                mapped_.size() < options_.connections_max ? "" : " that may be connected: there are too many");
  if (answering == 0 || (options_.cluster && slots_.empty())) health.state = StoreState::down;
  else if (well < health.nodes.size() || lost > 0) health.state = StoreState::degraded;
  return health;
}

}  // namespace terrace
