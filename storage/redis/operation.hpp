#pragma once

#include "storage/redis/slot_map.hpp"
#include "storage/shared/kept_operation.hpp"
#include "storage/shared/shared_value.hpp"
#include "terrace/shared_store.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace {

class RedisClient;
class RedisNode;

/// A probe, read or write, from its call to its event. Commands whose replies are outstanding may keep the object longer, even if
/// it is no longer wanted. Threads: the thread of the client.
class RedisOperation : public std::enable_shared_from_this<RedisOperation> {
 public:
  /// `names` are those for the fingerprint of the order.
  RedisOperation(RedisClient& client, KeptOperation order, std::shared_ptr<const SharedValueNames> names)
      : client_{client}, order_{std::move(order)}, names_{std::move(names)} {}
  virtual ~RedisOperation() = default;
  RedisOperation(const RedisOperation&) = delete;
  RedisOperation& operator=(const RedisOperation&) = delete;

  [[nodiscard]] const KeptOperation& order() const { return order_; }
  [[nodiscard]] bool has_ended() const { return ended_; }

  /// Sends the commands. The client must not be waiting for the map of a cluster.
  virtual void start() = 0;
  /// Handles an expired deadline: reports a failure to the nodes that have not answered, and ends the operation.
  virtual void expire() = 0;
  /// Ends the operation with an event. The caller's memory is not accessed any more. A second call does nothing.
  void end(ErrorCode error) {
    if (!std::exchange(ended_, true)) finish(error);
  }

 protected:
  /// Reports the end to the client.
  virtual void finish(ErrorCode error) = 0;

  RedisClient& client_;
  const KeptOperation order_;
  const std::shared_ptr<const SharedValueNames> names_;

 private:
  bool ended_ = false;
};

/// Reads or writes one block: all its parts at one node, in one exchange. If the node redirects parts, they are requested from
/// the other node.
class RedisBlockOperation final : public RedisOperation {
 public:
  static constexpr std::uint32_t redirections_max = 5;

  RedisBlockOperation(RedisClient& client, KeptOperation order, std::shared_ptr<const SharedValueNames> names);

  void start() override;
  void expire() override;

 private:
  class Commands;
  class Reading;
  class Writing;

  void finish(ErrorCode error) override;
  [[nodiscard]] bool writes() const { return order_.kind == SharedEvent::Kind::written; }
  [[nodiscard]] std::string name(std::uint32_t part) const { return names_->name(order_.block.key, order_.block.group, part); }
  void send(RedisNode* node, bool asking);
  void refused(const std::string& error);
  void answered();
  void mismatched(SharedMismatch why);
  void remove();

  const SharedParts parts_;
  const std::uint32_t slot_;
  const SharedWriteId write_id_;
  std::unique_ptr<SharedValueReader> reader_;  ///< set while a read is under way
  RedisNode* node_ = nullptr;                  ///< the node that serves the operation
  bool sent_ = false;                          ///< sent to that node, which has not answered yet
  std::uint32_t left_ = 0;                     ///< a bit for each part that is not done
  ErrorCode error_{};                          ///< error of a part
  std::optional<RedisRedirection> redirection_;
  std::uint32_t redirections_ = 0;
};

/// Asks which of the blocks are there, with one exchange for each node.
class RedisProbeOperation final : public RedisOperation {
 public:
  RedisProbeOperation(RedisClient& client, KeptOperation order, std::shared_ptr<const SharedValueNames> names);

  void start() override;
  void expire() override;

 private:
  enum class Known : std::uint8_t { unknown, there, missing, declined, failed };
  class Asking;

  void finish(ErrorCode error) override;
  [[nodiscard]] std::string name(std::uint32_t key) const {
    return names_->name(order_.probe.keys[key], order_.probe.groups[key], 0);
  }
  void ask(RedisNode* node, std::vector<std::uint32_t> keys, bool asking);
  /// Ends the operation if the number of leading blocks is known, or with SharedProbe::there, the state of every block.
  void end_if_known();

  std::vector<Known> known_;
  std::vector<RedisNode*> sent_;  ///< nodes that have not answered
  std::uint32_t leading_ = 0;
  std::uint32_t redirections_ = 0;
};

}  // namespace terrace
