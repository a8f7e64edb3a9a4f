#include "storage/redis/exchange.hpp"
#include "storage/redis/operation.hpp"
#include "storage/redis/redis_client.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace terrace {

/// EXISTS of the first part of some blocks of one node.
class RedisProbeOperation::Asking final : public Exchange {
 public:
  Asking(std::shared_ptr<RedisProbeOperation> operation, RedisNode& node, std::vector<std::uint32_t> keys, bool asking)
      : operation_{std::move(operation)}, node_{node}, keys_{std::move(keys)}, asking_{asking} {}

  void prepare() override {
    RedisProbeOperation& operation = *operation_;
    std::string& text = segments[0].text;
    for (const std::uint32_t key : keys_) {
      if (asking_) append_command(text, {"ASKING"});
      append_command(text, {"EXISTS", operation.name(key)});
    }
    replies = static_cast<std::uint32_t>(asking_ ? 2 * keys_.size() : keys_.size());
    window_bytes = text.size();
  }
  [[nodiscard]] bool wanted() const override { return !operation_->has_ended(); }

  void replied(RespValue reply) override {
    const std::uint32_t number = answered_++;
    if (number == 0) std::erase(operation_->sent_, &node_);
    if (asking_ && number % 2 == 0) return;  // the reply to ASKING
    const std::uint32_t key = keys_[done_++];
    RedisClient& client = operation_->client_;
    Known& known = operation_->known_[key];
    if (reply.kind == RespItem::Kind::integer) {
      known = reply.integer > 0 ? Known::there : Known::missing;
    } else if (const auto redirection = parse_redirection(reply.text, node_.address()); reply.is_error() && redirection) {
      node_.count_redirection();
      moved_.emplace_back(*redirection, key);
    } else {
      if (!refused_) client.refused(node_, reply.text);
      refused_ = true;
      known = Known::failed;
    }
    if (done_ == keys_.size()) {
      if (!refused_) node_.ended(RedisNode::Outcome::succeeded, client.clock_.now());
      follow();
    }
    operation_->end_if_known();
  }
  void broken() override {
    std::erase(operation_->sent_, &node_);
    for (const std::uint32_t key : keys_) {
      if (operation_->known_[key] == Known::unknown) operation_->known_[key] = Known::failed;
    }
    operation_->end_if_known();
  }

 private:
  void follow() {
    if (moved_.empty()) return;
    ++operation_->redirections_;
    std::map<std::pair<RedisNode*, bool>, std::vector<std::uint32_t>> by_node;
    for (const auto& [to, key] : moved_) by_node[{operation_->client_.follow(to), !to.for_good}].push_back(key);
    for (auto& [to, keys] : by_node) operation_->ask(to.first, std::move(keys), to.second);
  }

  const std::shared_ptr<RedisProbeOperation> operation_;
  RedisNode& node_;
  const std::vector<std::uint32_t> keys_;
  const bool asking_;
  std::uint32_t answered_ = 0;
  std::size_t done_ = 0;
  bool refused_ = false;
  std::vector<std::pair<RedisRedirection, std::uint32_t>> moved_;  ///< keys that are on other nodes
};

RedisProbeOperation::RedisProbeOperation(RedisClient& client, KeptOperation order, std::shared_ptr<const SharedValueNames> names)
    : RedisOperation{client, std::move(order), std::move(names)}, known_(order_.probe.keys.size(), Known::unknown) {}

void RedisProbeOperation::start() {
  std::map<RedisNode*, std::vector<std::uint32_t>> by_node;
  for (std::uint32_t key = 0; key < known_.size(); ++key) by_node[client_.node_of(redis_slot(name(key)))].push_back(key);
  for (auto& [node, keys] : by_node) ask(node, std::move(keys), false);
  end_if_known();
}

void RedisProbeOperation::ask(RedisNode* node, std::vector<std::uint32_t> keys, bool asking) {
  if (node == nullptr || !node->usable() || redirections_ > RedisBlockOperation::redirections_max) {
    for (const std::uint32_t key : keys) known_[key] = Known::declined;
    return;
  }
  sent_.push_back(node);
  const auto self = std::static_pointer_cast<RedisProbeOperation>(shared_from_this());
  node->submit(std::make_unique<Asking>(self, *node, std::move(keys), asking), RedisNode::Lane::asking);
}

void RedisProbeOperation::end_if_known() {
  if (has_ended()) return;
  const bool asks_for_each = !order_.probe.there.empty();
  if (asks_for_each && std::ranges::find(known_, Known::unknown) != known_.end()) return;
  while (leading_ < known_.size() && known_[leading_] == Known::there) ++leading_;
  if (asks_for_each && std::ranges::find(known_, Known::failed) != known_.end()) return end(Errc::io_failed);
  if (leading_ == known_.size()) return end({});
  switch (known_[leading_]) {
    case Known::unknown:
    case Known::there: return;
    case Known::missing: return end({});
    case Known::failed: return end(Errc::io_failed);
    case Known::declined: break;
  }
  // The blocks of a node that is not usable count as missing for now. If no node can be asked, the probe fails with `refused`.
  const bool all = std::ranges::all_of(known_, [](Known each) { return each == Known::declined; });
  end(all ? ErrorCode{Errc::refused} : ErrorCode{});
}

void RedisProbeOperation::expire() {
  for (RedisNode* const node : sent_) {
    node->ended(RedisNode::Outcome::failed, client_.clock_.now(), "it does not answer in time");
  }
  end(Errc::deadline_exceeded);
}

void RedisProbeOperation::finish(ErrorCode error) {
  if (!order_.probe.there.empty()) {
    for (std::size_t key = 0; key < known_.size(); ++key) order_.probe.there[key] = known_[key] == Known::there ? 1 : 0;
    leading_ = static_cast<std::uint32_t>(std::ranges::count(known_, Known::there));
  }
  client_.ended(order_, error, leading_);
}

}  // namespace terrace
