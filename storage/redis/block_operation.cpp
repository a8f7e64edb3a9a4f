#include "base/check.hpp"
#include "storage/redis/exchange.hpp"
#include "storage/redis/operation.hpp"
#include "storage/redis/redis_client.hpp"

#include <algorithm>
#include <utility>

namespace terrace {
namespace {

std::uint32_t all_of(const SharedParts& parts) { return (1U << parts.count) - 1; }

std::string_view as_text(const SharedValueHeader& header) {
  return {reinterpret_cast<const char*>(header.data()), header.size()};
}

}  // namespace

/// A command for each remaining part. While slots migrate, an ASKING comes before each of them.
class RedisBlockOperation::Commands : public Exchange {
 public:
  Commands(std::shared_ptr<RedisBlockOperation> operation, std::vector<std::uint32_t> parts, bool asking)
      : operation_{std::move(operation)}, parts_{std::move(parts)}, asking_{asking} {
    for (const std::uint32_t part : parts_) window_bytes += operation_->parts_.value_bytes(part);
  }

  void prepare() final {
    operation_->sent_ = true;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (asking_) append_command(segments[i].text, {"ASKING"});
      const std::string name = operation_->name(parts_[i]);
      append(i, parts_[i], name);
    }
    replies = static_cast<std::uint32_t>(asking_ ? 2 * parts_.size() : parts_.size());
  }
  [[nodiscard]] bool wanted() const final { return !operation_->has_ended(); }

  void replied(RespValue reply) final {
    const std::uint32_t number = answered_++;
    if (asking_ && number % 2 == 0) return;  // the reply to ASKING
    if (reply.is_error()) operation_->refused(reply.text);
    else if (!take(reply)) return;
    ++done_;
    if (done_ == parts_.size()) operation_->answered();
  }
  void broken() final { operation_->end(Errc::io_failed); }

 protected:
  /// Appends the command for a part to segments[i] and the segments after it.
  virtual void append(std::size_t i, std::uint32_t part, const std::string& name) = 0;
  /// Handles a reply that is no error. Returns false if the operation has ended.
  [[nodiscard]] virtual bool take(const RespValue& reply) = 0;
  /// The part whose reply comes next.
  [[nodiscard]] std::uint32_t part() const { return parts_[done_]; }
  void part_is_done() { operation_->left_ &= ~(1U << part()); }
  [[nodiscard]] RedisBlockOperation& operation() { return *operation_; }

 private:
  const std::shared_ptr<RedisBlockOperation> operation_;
  const std::vector<std::uint32_t> parts_;
  const bool asking_;
  std::uint32_t answered_ = 0;  ///< number of replies, including replies to ASKING
  std::size_t done_ = 0;        ///< number of parts that are done
};

/// GET of the remaining parts, in order.
class RedisBlockOperation::Reading final : public Commands {
 public:
  using Commands::Commands;

  void bulk_begins(std::size_t bytes) override {
    bytes_ = bytes;
    here_ = 0;
    mismatch_.reset();
  }
  [[nodiscard]] std::span<std::byte> room() override {
    const std::size_t header = std::min(header_.size(), bytes_);
    if (here_ < header) return std::span{header_}.subspan(here_, header - here_);
    if (mismatch_) return {};
    const SharedParts& parts = operation().parts_;
    return operation().order_.into.subspan(parts.offset(part()), parts.bytes[part()]).subspan(here_ - header_.size());
  }
  void landed(std::size_t bytes) override {
    const std::span<std::byte> there = room().first(bytes);
    const bool in_header = here_ < header_.size();
    here_ += bytes;
    if (!in_header) operation().reader_->add(there);
    else if (here_ == std::min(header_.size(), bytes_)) check_header();
  }

 private:
  void append(std::size_t i, std::uint32_t /*part*/, const std::string& name) override {
    append_command(segments[i].text, {"GET", name});
  }
  [[nodiscard]] bool take(const RespValue& reply) override {
    if (reply.kind == RespItem::Kind::null) {
      // Without its first part, a block is not there. If another part is missing, finish() reports it.
      if (part() == 0) operation().end(Errc::not_found);
      return part() != 0;
    }
    if (reply.kind != RespItem::Kind::bulk) {
      operation().mismatched(SharedMismatch::format);
      return false;
    }
    if (bytes_ == 0) check_header();
    if (!mismatch_) mismatch_ = operation().reader_->end_part();
    if (mismatch_) operation().mismatched(*mismatch_);
    else part_is_done();
    return !mismatch_;
  }
  void check_header() {
    mismatch_ = operation().reader_->begin_part(part(), bytes_, std::span{header_}.first(std::min(header_.size(), bytes_)));
  }

  std::size_t bytes_ = 0;  ///< size of the value that is arriving
  std::size_t here_ = 0;   ///< bytes of it that have arrived
  SharedValueHeader header_{};
  SharedValueReader::Mismatch mismatch_;
};

/// SET of the remaining parts, the last part first, so that a reader that finds the first part finds all parts.
class RedisBlockOperation::Writing final : public Commands {
 public:
  using Commands::Commands;

 private:
  void append(std::size_t i, std::uint32_t part, const std::string& name) override {
    RedisBlockOperation& write = operation();
    SharedValueWriter& writer = write.client_.writer_;
    if (i == 0) {
      writer.begin(write.order_.block, write.order_.fingerprint, write.order_.from, write.write_id_);
      if (writer.seals()) sealed_ = std::make_unique_for_overwrite<std::byte[]>(write.order_.from.size());
    }
    std::span<std::byte> scratch;
    if (sealed_) scratch = {sealed_.get() + write.parts_.offset(part), write.parts_.bytes[part]};
    const SharedValueWriter::Part made = writer.make(part, scratch);
    const bool expires = write.client_.options_.expiry.expires();
    std::string& text = segments[i].text;
    append_count(text, '*', expires ? 5 : 3);
    append_word(text, "SET");
    append_word(text, name);
    append_count(text, '$', made.header.size() + made.payload.size());
    text += as_text(made.header);
    segments[i].payload = made.payload;
    segments[i + 1].text = "\r\n";
    if (!expires) return;
    append_word(segments[i + 1].text, "PX");
    append_word(segments[i + 1].text, write.client_.expiry_ms(write.order_.block.depth));
  }
  [[nodiscard]] bool take(const RespValue& reply) override {
    if (reply.text == "OK") part_is_done();
    else operation().refused("an answer to SET that is none");
    return true;
  }

  std::unique_ptr<std::byte[]> sealed_;
};

RedisBlockOperation::RedisBlockOperation(RedisClient& client, KeptOperation order, std::shared_ptr<const SharedValueNames> names)
    : RedisOperation{client, std::move(order), std::move(names)},
      parts_{shared_parts(order_.block_bytes())},
      slot_{redis_slot(name(0))},
      write_id_{writes() ? client.write_ids_.next() : SharedWriteId{}},
      left_{all_of(parts_)} {}

void RedisBlockOperation::start() {
  RedisNode* const node = client_.node_of(slot_);
  if (writes() && node != nullptr && client_.clock_.now() < node->full_until) return end(Errc::full);
  if (!writes()) {
    reader_ = client_.take_reader();
    reader_->begin(order_.block, order_.fingerprint, order_.into.size());
  }
  send(node, false);
}

void RedisBlockOperation::send(RedisNode* node, bool asking) {
  if (node == nullptr || !node->usable()) return end(Errc::refused);
  node_ = node;
  sent_ = false;
  const auto self = std::static_pointer_cast<RedisBlockOperation>(shared_from_this());
  std::vector<std::uint32_t> parts;
  for (std::uint32_t part = 0; part < parts_.count; ++part) {
    if ((left_ & 1U << part) != 0) parts.push_back(part);
  }
  if (!writes()) return node->submit(std::make_unique<Reading>(self, std::move(parts), asking), RedisNode::Lane::reading);
  std::ranges::reverse(parts);
  node->submit(std::make_unique<Writing>(self, std::move(parts), asking), RedisNode::Lane::writing);
}

/// Records that a part was refused. The reply to the last part decides how the operation continues.
void RedisBlockOperation::refused(const std::string& error) {
  if (const auto redirection = parse_redirection(error, node_->address())) {
    node_->count_redirection();
    redirection_ = redirection;
    return;
  }
  if (error.starts_with("OOM ")) {
    error_ = Errc::full;
    node_->full_until = client_.clock_.now() + RedisClient::full_pause;
  } else if (error.starts_with("WRONGTYPE ")) {
    error_ = Errc::corrupt;
  } else if (!error_) {
    error_ = Errc::io_failed;
    client_.refused(*node_, error);
  }
}

/// Called when the node has answered for all parts.
void RedisBlockOperation::answered() {
  sent_ = false;
  if (error_ == Errc::corrupt) return mismatched(SharedMismatch::format);
  if (error_ != Errc::io_failed) node_->ended(RedisNode::Outcome::succeeded, client_.clock_.now());
  if (error_) {
    // A single part is useless.
    if (writes() && left_ != all_of(parts_)) remove();
    return end(error_);
  }
  if (const auto redirection = std::exchange(redirection_, {})) {
    if (++redirections_ > redirections_max) return end(Errc::io_failed);
    return send(client_.follow(*redirection), !redirection->for_good);
  }
  if (!writes()) {
    if (const SharedValueReader::Mismatch why = reader_->finish()) return mismatched(*why);
  }
  end({});
}

void RedisBlockOperation::mismatched(SharedMismatch why) {
  ++client_.stat_.mismatches[static_cast<std::size_t>(why)];
  remove();
  end(Errc::corrupt);
}

void RedisBlockOperation::remove() { client_.remove({order_.block.key}, order_.block.group, *names_); }

void RedisBlockOperation::expire() {
  if (node_ != nullptr && (sent_ || !node_->is_ready())) {
    node_->ended(RedisNode::Outcome::failed, client_.clock_.now(), "it does not answer in time");
  }
  end(Errc::deadline_exceeded);
}

void RedisBlockOperation::finish(ErrorCode error) {
  if (reader_) client_.give_reader(std::move(reader_));
  client_.ended(order_, error);
}

}  // namespace terrace
