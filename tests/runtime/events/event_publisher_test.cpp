#include "terrace/event_publisher.hpp"

#include "tests/patience.hpp"
#include "tests/refusal.hpp"
#include "tests/runtime/events/subscriber.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.hpp>
#include <zmq_addon.hpp>

#include <chrono>
#include <cstring>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace terrace {
namespace {

using namespace std::chrono_literals;
using test::decode_batch;
using test::Subscriber;

BlockKey key(std::uint32_t number) {
  BlockKey key;
  std::memcpy(key.bytes.data(), &number, sizeof number);
  return key;
}

KvEvent stored(std::uint32_t number) { return {.kind = KvEvent::Kind::stored, .source = Source::host, .key = key(number)}; }

/// On ports that the system chooses. Beats only if a test wants it.
EventPublisherOptions on_any_port() {
  return {.endpoint = "tcp://127.0.0.1:0", .replay_endpoint = "tcp://127.0.0.1:0", .topic = "kv@here", .heartbeat = 1h};
}

/// Describes block n as the tokens n, n + 1 and publishes it, as a batch of its own.
void publish_block(EventPublisher& publisher, std::uint32_t number) {
  const std::uint64_t before = publisher.stats().batches;
  const std::vector<BlockKey> keys{key(number)};
  const std::vector<TokenId> tokens{number, number + 1};
  ASSERT_TRUE(publisher.describe({.keys = keys, .tokens = tokens, .block_tokens = 2}));
  ASSERT_TRUE(publisher.publish(std::vector{stored(number)}));
  ASSERT_TRUE(test::comes_true([&] { return publisher.stats().batches > before; }));
}

struct Message {
  std::string topic;
  std::uint64_t sequence = 0;
  std::string payload;
};

std::uint64_t sequence_of(const zmq::message_t& frame) {
  EXPECT_EQ(frame.size(), 8U);
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < frame.size(); ++i) number = number << 8U | frame.data<std::uint8_t>()[i];
  return number;
}

Message message_of(const std::vector<zmq::message_t>& frames) {
  EXPECT_EQ(frames.size(), 3U);
  return {frames[0].to_string(), sequence_of(frames[1]), frames[2].to_string()};
}

/// The sockets of a subscriber.
class Client {
 public:
  explicit Client(const EventPublisher& publisher, const std::string& topic = "kv@", int queue = 1000) {
    live_.set(zmq::sockopt::rcvhwm, queue);
    replay_.set(zmq::sockopt::rcvhwm, queue);
    live_.set(zmq::sockopt::subscribe, topic);
    live_.set(zmq::sockopt::rcvtimeo, patience_ms);
    live_.connect(publisher.endpoint());
    replay_.set(zmq::sockopt::rcvtimeo, patience_ms);
    replay_.set(zmq::sockopt::linger, 0);
    if (!publisher.replay_endpoint().empty()) replay_.connect(publisher.replay_endpoint());
  }

  /// Returns the next live message. Fails the test if none comes.
  Message next() {
    std::vector<zmq::message_t> frames;
    EXPECT_TRUE(zmq::recv_multipart(live_, std::back_inserter(frames)));
    return message_of(frames);
  }
  /// Returns a live message if one has come.
  std::optional<Message> try_next() {
    std::vector<zmq::message_t> frames;
    if (!zmq::recv_multipart(live_, std::back_inserter(frames), zmq::recv_flags::dontwait)) return std::nullopt;
    return message_of(frames);
  }
  void ask(std::uint64_t from) {
    std::string number;
    for (int shift = 56; shift >= 0; shift -= 8) number.push_back(static_cast<char>(from >> shift));
    send({"", number});
  }
  void send(const std::vector<std::string>& frames) {
    for (std::size_t i = 0; i < frames.size(); ++i) {
      replay_.send(zmq::buffer(frames[i]), i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }
  /// Returns the next batch of an answer; nothing at its end.
  std::optional<Message> answer() {
    std::vector<zmq::message_t> frames;
    EXPECT_TRUE(zmq::recv_multipart(replay_, std::back_inserter(frames)));
    if (frames.size() != 4) {
      ADD_FAILURE() << frames.size() << " frames";
      return std::nullopt;
    }
    EXPECT_EQ(frames[0].size(), 0U);
    frames.erase(frames.begin());
    if (sequence_of(frames[1]) != ~std::uint64_t{0}) return message_of(frames);
    EXPECT_EQ(frames[0].size() + frames[2].size(), 0U);
    return std::nullopt;
  }
  std::vector<Message> answers(std::uint64_t from) {
    ask(from);
    std::vector<Message> all;
    while (auto message = answer()) all.push_back(std::move(*message));
    return all;
  }
  /// Waits until the publisher knows the subscription: publishes until a message comes. Returns this message.
  Message connected(EventPublisher& publisher, std::uint32_t first_block) {
    std::optional<Message> message;
    EXPECT_TRUE(test::comes_true([&] {
      publish_block(publisher, first_block++);
      message = try_next();
      return message.has_value();
    }));
    return message.value_or(Message{});
  }

 private:
  static constexpr int patience_ms = static_cast<int>(std::chrono::milliseconds{test::patience}.count());

  zmq::context_t context_;
  zmq::socket_t live_{context_, zmq::socket_type::sub};
  zmq::socket_t replay_{context_, zmq::socket_type::dealer};
};

TEST(EventPublisher, sends_topic_number_and_batch_and_answers_with_the_same) {
  EventPublisher publisher{on_any_port()};
  Client client{publisher};
  const Message first = client.connected(publisher, 100);
  EXPECT_EQ(first.topic, "kv@here");
  const auto batch = decode_batch(first.payload);
  ASSERT_EQ(batch.events.size(), 1U);
  EXPECT_EQ(batch.events[0].type, "BlockStored");
  EXPECT_EQ(batch.events[0].medium, "CPU");
  EXPECT_EQ(batch.events[0].tokens[1], batch.events[0].tokens[0] + 1);
  const double now = std::chrono::duration<double>{std::chrono::system_clock::now().time_since_epoch()}.count();
  EXPECT_NEAR(batch.time, now, 3600);

  const auto past = client.answers(first.sequence);
  ASSERT_GE(past.size(), 1U);
  EXPECT_EQ(past[0].topic, first.topic);
  EXPECT_EQ(past[0].sequence, first.sequence);
  EXPECT_EQ(past[0].payload, first.payload);
}

TEST(EventPublisher, says_which_port_the_system_has_chosen) {
  EventPublisher publisher{on_any_port()};
  EXPECT_TRUE(publisher.endpoint().starts_with("tcp://127.0.0.1:")) << publisher.endpoint();
  EXPECT_FALSE(publisher.endpoint().ends_with(":0"));
  EXPECT_NE(publisher.endpoint(), publisher.replay_endpoint());
}

TEST(EventPublisher, takes_an_address_of_ipv6) {
  auto options = on_any_port();
  options.endpoint = "tcp://[::1]:0";
  options.replay_endpoint.clear();
  try {
    const EventPublisher publisher{options};
    EXPECT_TRUE(publisher.endpoint().starts_with("tcp://[::1]:")) << publisher.endpoint();
    EXPECT_EQ(publisher.replay_endpoint(), "");
  } catch (const std::system_error& error) {
    GTEST_SKIP() << "no IPv6 here: " << error.what();
  }
}

TEST(EventPublisher, a_late_subscriber_gets_everything_by_replay) {
  auto options = on_any_port();
  options.buffer_steps = 4;  // it comes when most batches are gone
  EventPublisher publisher{options};
  for (std::uint32_t block = 1; block <= 20; ++block) publish_block(publisher, block);
  Client client{publisher};
  Subscriber late;
  for (const Message& message : client.answers(0)) ASSERT_TRUE(late.take(message.sequence, message.payload));
  EXPECT_EQ(late.next(), 20U);
  EXPECT_EQ(late.copies().size(), 20U);
  EXPECT_EQ(publisher.stats().snapshots, 1U);
}

TEST(EventPublisher, an_idle_publisher_lets_late_subscribers_notice_that_they_are_late) {
  auto options = on_any_port();
  options.heartbeat = 10ms;
  EventPublisher publisher{options};
  publish_block(publisher, 1);
  Client client{publisher};
  const Message beat = client.next();
  EXPECT_TRUE(decode_batch(beat.payload).events.empty());
  Subscriber late;
  EXPECT_FALSE(late.take(beat.sequence, beat.payload));
  for (const Message& message : client.answers(late.next())) ASSERT_TRUE(late.take(message.sequence, message.payload));
  EXPECT_EQ(late.copies().size(), 1U);
}

TEST(EventPublisher, a_subscriber_of_another_topic_gets_nothing) {
  EventPublisher publisher{on_any_port()};
  Client other{publisher, "kv@there"};
  Client client{publisher};
  (void)client.connected(publisher, 1);
  EXPECT_FALSE(other.try_next());
}

/// Publishes batches of 250 KB, which soon fill the buffers of the system while nobody reads.
void flood(EventPublisher& publisher, std::uint32_t batches) {
  const std::vector<TokenId> tokens(50'000, 0xFFFF'FFFF);
  for (std::uint32_t block = 1; block <= batches; ++block) {
    const std::vector<BlockKey> keys{key(block)};
    const std::uint64_t before = publisher.stats().batches;
    ASSERT_TRUE(publisher.describe({.keys = keys, .tokens = tokens, .block_tokens = 50'000}));
    ASSERT_TRUE(publisher.publish(std::vector{stored(block)}));
    ASSERT_TRUE(test::comes_true([&] { return publisher.stats().batches > before; }));
  }
}

TEST(EventPublisher, a_slow_subscriber_loses_batches_recovers_by_replay_and_costs_nothing) {
  auto options = on_any_port();
  options.hwm = 2;
  EventPublisher publisher{options};
  Client slow{publisher, "kv@", 2};
  std::uint64_t last = slow.connected(publisher, 1'000'000).sequence;
  flood(publisher, 200);  // every call succeeds
  EXPECT_LE(publisher.stats().buffered_batches * 250'000, count(options.buffer_bytes) + 250'000);
  // It reads until there is a batch from after the flood. Batches are missing before.
  const std::uint64_t flooded = publisher.stats().batches;
  std::uint64_t missing = 0;
  std::uint32_t block = 2'000'000;
  EXPECT_TRUE(test::comes_true([&] {
    publish_block(publisher, ++block);
    while (const auto message = slow.try_next()) {
      missing += message->sequence - last - 1;
      last = message->sequence;
    }
    return last >= flooded;
  }));
  EXPECT_GT(missing, 0U);
  Subscriber known;
  for (const Message& message : slow.answers(0)) ASSERT_TRUE(known.take(message.sequence, message.payload));
  EXPECT_EQ(known.next(), publisher.stats().batches);
  EXPECT_EQ(known.copies().size(), publisher.stats().published_blocks);
}

TEST(EventPublisher, a_subscriber_that_reads_its_answer_slowly_gets_all_of_it) {
  auto options = on_any_port();
  options.hwm = 2;
  EventPublisher publisher{options};
  flood(publisher, 100);
  Client slow{publisher, "kv@", 2};
  slow.ask(0);
  Client fast{publisher};
  (void)fast.connected(publisher, 1'000'000);  // time enough to fill all queues to the slow one
  Subscriber known;
  while (const auto message = slow.answer()) ASSERT_TRUE(known.take(message->sequence, message->payload));
  EXPECT_GE(known.next(), 100U);
  EXPECT_EQ(publisher.stats().replays_cut, 0U);
}

TEST(EventPublisher, a_malformed_request_is_counted_and_the_next_one_answered) {
  EventPublisher publisher{on_any_port()};
  publish_block(publisher, 1);
  Client client{publisher};
  client.send({""});
  client.send({"", "1234567"});
  client.send({"", "12345678", ""});
  client.send({"x", "12345678"});
  EXPECT_EQ(client.answers(0).size(), 1U);
  EXPECT_TRUE(test::comes_true([&] { return publisher.stats().malformed_requests == 4; }));
  EXPECT_TRUE(client.answers(99).empty());
}

TEST(EventPublisher, too_many_events_are_refused_and_told_as_a_clear) {
  auto options = on_any_port();
  options.max_queue_size = 1;
  EventPublisher publisher{options};
  publish_block(publisher, 1);
  // Its thread takes what waits at once, so a call of ours is refused only sometimes.
  std::uint64_t refused = 0;
  EXPECT_TRUE(test::comes_true([&] {
    for (int i = 0; i < 1000; ++i) {
      const auto result = publisher.publish(std::vector{stored(7)});
      if (result) continue;
      EXPECT_EQ(result.error(), Errc::refused);
      ++refused;
    }
    return publisher.stats().cleared > 0;
  }));
  EXPECT_GE(refused, 1U);
  EXPECT_EQ(publisher.stats().published_blocks, 0U);
}

TEST(EventPublisher, a_description_needs_as_many_tokens_as_its_keys_say) {
  EventPublisher publisher{on_any_port()};
  const std::vector<BlockKey> keys{key(1), key(2)};
  const std::vector<TokenId> tokens(4);
  EXPECT_EQ(publisher.describe({.keys = keys, .tokens = tokens}).error().message(), "block_tokens is 0, must be at least 1");
  for (const std::uint32_t wrong : {1, 3, 4}) {
    EXPECT_EQ(publisher.describe({.keys = keys, .tokens = tokens, .block_tokens = wrong}).error().message(),
              "there must be block_tokens tokens for each key");
  }
  EXPECT_TRUE(publisher.describe({.keys = keys, .tokens = tokens, .block_tokens = 2}));
}

TEST(EventPublisher, an_address_that_cannot_be_used_is_one_clear_error) {
  EventPublisher publisher{on_any_port()};
  auto options = on_any_port();
  options.endpoint = publisher.endpoint();
  EXPECT_EQ(test::refusal_of<std::system_error>([&] { EventPublisher{options}; }),
            "endpoint: cannot bind " + publisher.endpoint() + ": Address already in use");
  options.endpoint = "tcp://127.0.0.1:0";
  options.replay_endpoint = publisher.endpoint();
  EXPECT_EQ(test::refusal_of<std::system_error>([&] { EventPublisher{options}; }),
            "replay_endpoint: cannot bind " + publisher.endpoint() + ": Address already in use");
  options.replay_endpoint = "tcp://203.0.113.1:5557";  // an address that no machine has
  EXPECT_TRUE(test::refusal_of<std::system_error>([&] { EventPublisher{options}; }).starts_with("replay_endpoint: cannot bind"));
  options = on_any_port();
  options.endpoint = "tcp://no such name:5557";
  EXPECT_TRUE(test::refusal_of<std::exception>([&] { EventPublisher{options}; }).starts_with("endpoint: cannot bind"));
}

TEST(EventPublisher, wrong_limits_are_refused_by_name) {
  const auto refusal = [](auto EventPublisherOptions::*option, auto value) {
    auto options = on_any_port();
    options.*option = value;
    return test::refusal_of<std::invalid_argument>([&] { EventPublisher{options}; });
  };
  EXPECT_EQ(refusal(&EventPublisherOptions::buffer_steps, 0U), "buffer_steps is 0, must be at least 1");
  EXPECT_EQ(refusal(&EventPublisherOptions::hwm, 0U), "hwm is 0, must be at least 1");
  EXPECT_EQ(refusal(&EventPublisherOptions::max_queue_size, 0U), "max_queue_size is 0, must be at least 1");
  EXPECT_EQ(refusal(&EventPublisherOptions::max_blocks, 0U), "max_blocks is 0, must be at least 1");
  EXPECT_EQ(refusal(&EventPublisherOptions::heartbeat, Duration::zero()), "heartbeat must be at least 1 ms");
}

TEST(EventPublisher, connects_to_a_subscriber_that_is_bound) {
  zmq::context_t context;
  zmq::socket_t router{context, zmq::socket_type::sub};
  router.set(zmq::sockopt::subscribe, "");
  router.bind("tcp://127.0.0.1:0");
  auto options = on_any_port();
  options.connect = true;
  options.endpoint = router.get(zmq::sockopt::last_endpoint);
  options.data_parallel_rank = 5;  // all ranks connect to the same address
  EventPublisher publisher{options};
  EXPECT_EQ(publisher.endpoint(), options.endpoint);
  std::vector<zmq::message_t> frames;
  std::uint32_t block = 0;
  EXPECT_TRUE(test::comes_true([&] {
    publish_block(publisher, ++block);
    return zmq::recv_multipart(router, std::back_inserter(frames), zmq::recv_flags::dontwait).has_value();
  }));
  EXPECT_EQ(decode_batch(message_of(frames).payload).rank, 5U);
}

TEST(EventPublisher, calls_in_a_forked_child_fail_and_the_parent_goes_on) {
  auto publisher = std::make_unique<EventPublisher>(on_any_port());
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_right = publisher->publish(std::vector{stored(1)}).error() == Errc::stopped && !publisher->is_of_this_process();
    publisher.reset();
    ::_exit(is_right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  publish_block(*publisher, 1);
}

TEST(EventPublisher, calls_of_several_threads_all_arrive) {
  EventPublisher publisher{on_any_port()};
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint32_t i = 0; i < 500; ++i) {
        const std::vector<BlockKey> keys{key(thread * 1000 + i)};
        const std::vector<TokenId> tokens{i};
        EXPECT_TRUE(publisher.describe({.keys = keys, .tokens = tokens, .block_tokens = 1}));
        EXPECT_TRUE(publisher.publish(std::vector{stored(thread * 1000 + i)}));
        (void)publisher.stats();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(test::comes_true([&] { return publisher.stats().stored == 2000; }));
}

}  // namespace
}  // namespace terrace
