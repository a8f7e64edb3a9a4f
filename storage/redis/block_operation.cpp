#include "base/check.hpp"
#include "storage/redis/command_text.hpp"
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

/// GET of the remaining parts, in order.
class RedisBlockOperation::Reading final : public Exchange {
 public:
  Reading(std::shared_ptr<RedisBlockOperation> operation, bool asking) : operation_{std::move(operation)}, asking_{asking} {
    for (std::uint32_t part = 0; part < operation_->parts_.count; ++part) {
      if ((operation_->left_ & 1U << part) == 0) continue;
      parts_.push_back(part);
      window_bytes += operation_->parts_.value_bytes(part);
    }
  }

  void prepare() override {
    RedisBlockOperation& operation = *operation_;
    operation.sent_ = true;
    for (const std::uint32_t part : parts_) {
      if (asking_) append_command(segments[0].text, {"ASKING"});
      append_command(segments[0].text,
                     {"GET", operation.meaning_->names.name(operation.block_.key, operation.block_.group, part)});
    }
    replies = static_cast<std::uint32_t>(asking_ ? 2 * parts_.size() : parts_.size());
  }
  [[nodiscard]] bool wanted() const override { return !operation_->has_ended(); }

  void bulk_begins(std::size_t bytes) override {
    bytes_ = bytes;
    here_ = 0;
    mismatch_.reset();
  }
  [[nodiscard]] std::span<std::byte> room() override {
    const std::size_t header = std::min(header_.size(), bytes_);
    if (here_ < header) return std::span{header_}.subspan(here_, header - here_);
    if (mismatch_) return {};
    const SharedParts& parts = operation_->parts_;
    return operation_->into_.subspan(parts.offset(part()), parts.bytes[part()]).subspan(here_ - header_.size());
  }
  void landed(std::size_t bytes) override {
    const std::span<std::byte> there = room().first(bytes);
    const bool in_header = here_ < header_.size();
    here_ += bytes;
    if (!in_header) operation_->reader_->add(there);
    else if (here_ == std::min(header_.size(), bytes_)) check_header();
  }

  void replied(RespValue reply) override {
    const std::uint32_t number = answered_++;
    if (asking_ && number % 2 == 0) return;  // the reply to ASKING
    if (reply.is_error()) {
      operation_->refused(reply.text);
    } else if (reply.kind == RespItem::Kind::null) {
      // Without its first part, a block is not there. If another part is missing, finish() reports it.
      if (part() == 0) return operation_->end(Errc::not_found);
    } else if (reply.kind != RespItem::Kind::bulk) {
      return operation_->mismatched(SharedMismatch::format);
    } else {
      if (bytes_ == 0) check_header();
      if (!mismatch_) mismatch_ = operation_->reader_->end_part();
      if (mismatch_) return operation_->mismatched(*mismatch_);
      operation_->left_ &= ~(1U << part());
    }
    ++done_;
    if (done_ == parts_.size()) operation_->answered();
  }
  void broken() override { operation_->end(Errc::io_failed); }

 private:
  [[nodiscard]] std::uint32_t part() const { return parts_[done_]; }
  void check_header() {
    mismatch_ = operation_->reader_->begin_part(part(), bytes_, std::span{header_}.first(std::min(header_.size(), bytes_)));
  }

  const std::shared_ptr<RedisBlockOperation> operation_;
  const bool asking_;
  std::vector<std::uint32_t> parts_;
  std::uint32_t answered_ = 0;  ///< number of replies, including replies to ASKING
  std::size_t done_ = 0;        ///< number of parts that are done
  std::size_t bytes_ = 0;       ///< size of the value that is arriving
  std::size_t here_ = 0;        ///< bytes of it that have arrived
  SharedValueHeader header_{};
  SharedValueReader::Mismatch mismatch_;
};

/// SET of the remaining parts, the last part first, so that a reader that finds the first part finds all parts.
class RedisBlockOperation::Writing final : public Exchange {
 public:
  Writing(std::shared_ptr<RedisBlockOperation> operation, bool asking) : operation_{std::move(operation)}, asking_{asking} {
    for (std::uint32_t part = operation_->parts_.count; part-- > 0;) {
      if ((operation_->left_ & 1U << part) == 0) continue;
      parts_.push_back(part);
      window_bytes += operation_->parts_.value_bytes(part);
    }
  }

  void prepare() override {
    RedisBlockOperation& operation = *operation_;
    operation.sent_ = true;
    SharedValueWriter& writer = operation.client_.writer_;
    writer.begin(operation.block_, operation.meaning_->fingerprint, operation.from_, operation.write_id_);
    if (writer.seals()) sealed_ = std::make_unique_for_overwrite<std::byte[]>(operation.from_.size());
    const bool expires = operation.client_.options_.expiry.expires();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::uint32_t part = parts_[i];
      std::span<std::byte> scratch;
      if (sealed_) scratch = {sealed_.get() + operation.parts_.offset(part), operation.parts_.bytes[part]};
      const SharedValueWriter::Part made = writer.make(part, scratch);
      std::string& text = segments[i].text;
      if (asking_) append_command(text, {"ASKING"});
      append_count(text, '*', expires ? 5 : 3);
      append_word(text, "SET");
      append_word(text, operation.meaning_->names.name(operation.block_.key, operation.block_.group, part));
      append_count(text, '$', made.header.size() + made.payload.size());
      text += as_text(made.header);
      segments[i].payload = made.payload;
      segments[i + 1].text = "\r\n";
      if (!expires) continue;
      append_word(segments[i + 1].text, "PX");
      append_word(segments[i + 1].text, operation.client_.expiry_ms(operation.block_.depth));
    }
    replies = static_cast<std::uint32_t>(asking_ ? 2 * parts_.size() : parts_.size());
  }
  [[nodiscard]] bool wanted() const override { return !operation_->has_ended(); }

  void replied(RespValue reply) override {
    const std::uint32_t number = answered_++;
    if (asking_ && number % 2 == 0) return;  // the reply to ASKING
    if (reply.is_error()) operation_->refused(reply.text);
    else if (reply.text != "OK") operation_->refused("an answer to SET that is none");
    else operation_->left_ &= ~(1U << parts_[done_]);
    ++done_;
    if (done_ == parts_.size()) operation_->answered();
  }
  void broken() override { operation_->end(Errc::io_failed); }

 private:
  const std::shared_ptr<RedisBlockOperation> operation_;
  const bool asking_;
  std::vector<std::uint32_t> parts_;
  std::uint32_t answered_ = 0;
  std::size_t done_ = 0;
  std::unique_ptr<std::byte[]> sealed_;
};

RedisBlockOperation::RedisBlockOperation(RedisClient& client, const SharedRead& read, std::shared_ptr<const RedisMeaning> meaning)
    : RedisOperation{client, read.token, read.deadline, std::move(meaning)},
      writes_{false},
      block_{read.block},
      into_{read.into},
      parts_{shared_parts(read.into.size())},
      slot_{redis_slot(meaning_->names.name(read.block.key, read.block.group, 0))},
      write_id_{},
      left_{all_of(parts_)} {}

RedisBlockOperation::RedisBlockOperation(RedisClient& client, const SharedWrite& write,
                                         std::shared_ptr<const RedisMeaning> meaning)
    : RedisOperation{client, write.token, write.deadline, std::move(meaning)},
      writes_{true},
      block_{write.block},
      from_{write.from},
      parts_{shared_parts(write.from.size())},
      slot_{redis_slot(meaning_->names.name(write.block.key, write.block.group, 0))},
      write_id_{client.write_ids_.next()},
      left_{all_of(parts_)} {}

RedisBlockOperation::~RedisBlockOperation() = default;

void RedisBlockOperation::start() {
  if (client_.awaits_map()) return client_.wait_for_map(shared_from_this());
  RedisNode* const node = client_.node_of(slot_);
  if (writes_ && node != nullptr && client_.is_full(*node)) return end(Errc::full);
  if (!writes_) {
    reader_ = client_.take_reader();
    reader_->begin(block_, meaning_->fingerprint, into_.size());
  }
  send(node, false);
}

void RedisBlockOperation::send(RedisNode* node, bool asking) {
  if (node == nullptr || !node->usable()) return end(Errc::refused);
  node_ = node;
  sent_ = false;
  const auto self = std::static_pointer_cast<RedisBlockOperation>(shared_from_this());
  if (writes_) node->submit(std::make_unique<Writing>(self, asking), RedisNode::Lane::writing);
  else node->submit(std::make_unique<Reading>(self, asking), RedisNode::Lane::reading);
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
    client_.set_full(*node_);
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
    if (writes_ && left_ != all_of(parts_)) remove();
    return end(error_);
  }
  if (const auto redirection = std::exchange(redirection_, {})) {
    if (++redirections_ > redirections_max) return end(Errc::io_failed);
    return send(client_.follow(*redirection), !redirection->for_good);
  }
  if (!writes_) {
    if (const SharedValueReader::Mismatch why = reader_->finish()) return mismatched(*why);
  }
  end({});
}

void RedisBlockOperation::mismatched(SharedMismatch why) {
  ++client_.stat_.mismatches[static_cast<std::size_t>(why)];
  remove();
  end(Errc::corrupt);
}

void RedisBlockOperation::remove() { client_.remove({block_.key}, block_.group, *meaning_); }

void RedisBlockOperation::expire() {
  if (node_ != nullptr && (sent_ || !node_->is_ready())) {
    node_->ended(RedisNode::Outcome::failed, client_.clock_.now(), "it does not answer in time");
  }
  end(Errc::deadline_exceeded);
}

void RedisBlockOperation::end(ErrorCode error) {
  if (has_ended()) return;
  set_ended();
  if (reader_) client_.give_reader(std::move(reader_));
  client_.bytes_ended_ += writes_ ? from_.size() : into_.size();
  SharedStoreStat& stat = client_.stat_;
  if (!error && writes_) {
    ++stat.writes;
    stat.written += Bytes{from_.size()};
  } else if (!error) {
    ++stat.reads;
    stat.read += Bytes{into_.size()};
  } else if (error == Errc::not_found) {
    ++stat.reads_missing;
  }
  client_.ended({writes_ ? SharedEvent::Kind::written : SharedEvent::Kind::read, token(), error}, deadline());
}

}  // namespace terrace
