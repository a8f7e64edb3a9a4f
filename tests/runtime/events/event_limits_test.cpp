// What strangers can make an EventPublisher keep, and what a failure in its thread does.

#include "base/descriptor.hpp"
#include "runtime/events/zmtp.hpp"
#include "terrace/event_publisher.hpp"
#include "tests/patience.hpp"
#include "tests/runtime/events/subscriber.hpp"
#include "tests/tools/temporary_directory.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace {

std::atomic<bool> fail{false};              ///< allocations of the publisher's thread fail
std::atomic<std::int64_t> living_bytes{0};  ///< of the whole program

bool is_the_publishers_thread() {
  std::array<char, 16> name{};
  return ::pthread_getname_np(::pthread_self(), name.data(), name.size()) == 0 &&
         std::string_view{name.data()} == "terrace-events";
}

void* allocate(std::size_t size) {
  void* const memory = fail && is_the_publishers_thread() ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc{};
  living_bytes += static_cast<std::int64_t>(::malloc_usable_size(memory));
  return memory;
}

void deallocate(void* memory) noexcept {
  living_bytes -= static_cast<std::int64_t>(::malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void operator delete(void* memory) noexcept { deallocate(memory); }
void operator delete[](void* memory) noexcept { deallocate(memory); }
void operator delete(void* memory, std::size_t) noexcept { deallocate(memory); }
void operator delete[](void* memory, std::size_t) noexcept { deallocate(memory); }

namespace terrace {
namespace {

using namespace std::chrono_literals;
namespace zmtp = events::zmtp;
using test::decode_batch;

constexpr std::size_t places = 64;

EventPublisherOptions on_any_port() {
  return {.endpoint = "tcp://127.0.0.1:0", .replay_endpoint = "tcp://127.0.0.1:0", .topic = "kv@here", .heartbeat = 1h};
}

/// Publishes a block of `tokens` tokens, as a batch of its own.
void publish_block(EventPublisher& publisher, std::uint32_t number, std::uint32_t tokens = 2) {
  std::vector<BlockKey> keys(1);
  std::memcpy(keys[0].bytes.data(), &number, sizeof number);
  const std::vector<TokenId> its(tokens, 0xFFFF'FFFF);
  const std::uint64_t before = publisher.stats().stored;
  ASSERT_TRUE(publisher.describe({.keys = keys, .tokens = its, .block_tokens = tokens}));
  ASSERT_TRUE(publisher.publish(std::vector{KvEvent{.kind = KvEvent::Kind::stored, .source = Source::host, .key = keys[0]}}));
  ASSERT_TRUE(test::comes_true([&] { return publisher.stats().stored > before; }));
}

/// A peer that sends what it likes.
class Stranger {
 public:
  /// Shakes hands if it is a socket of some type.
  explicit Stranger(const std::string& endpoint, const std::string& type = "") {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoul(endpoint.substr(endpoint.rfind(':') + 1))));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd_ = Descriptor{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const int window = 64 * 1024;  // what nobody reads soon stays with the publisher
    EXPECT_EQ(::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &window, sizeof window), 0);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    if (type.empty()) return;
    const std::string hello = zmtp::greeting() + zmtp::ready(type);
    send(hello);
    EXPECT_EQ(read(zmtp::greeting_bytes).substr(0, 1), "\xff");
    (void)read_frame();  // READY
  }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  void ask(std::uint64_t from) {
    std::string request;
    zmtp::append_frame(request, zmtp::has_more, "");
    const auto number = zmtp::big_endian(from);
    zmtp::append_frame(request, 0, {number.data(), number.size()});
    EXPECT_TRUE(send(request));
  }
  /// Reads so many bytes; fewer if the connection ends.
  std::string read(std::size_t size) {
    std::string bytes(size, '\0');
    if (size == 0) return bytes;  // the system would wait for a byte
    const ssize_t got = ::recv(fd_.get(), bytes.data(), size, MSG_WAITALL);
    bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return bytes;
  }
  std::string read_frame() {
    std::string head = read(2);
    if (head.size() < 2) return {};
    if ((head[0] & zmtp::is_long) != 0) head += read(7);
    return read(zmtp::from_big_endian(head.substr(1)));
  }
  bool is_disconnected() { return read(1).empty(); }

 private:
  Descriptor fd_;
};

std::string subscription(const std::string& topic) {
  std::string frame;
  zmtp::append_frame(frame, 0, '\x01' + topic);
  return frame;
}

TEST(EventLimits, subscriptions_of_other_topics_take_no_memory) {
  EventPublisher publisher{on_any_port()};
  Stranger stranger{publisher.endpoint(), "SUB"};
  const std::int64_t before = living_bytes;
  for (int i = 0; i < 50'000; ++i)
    ASSERT_TRUE(stranger.send(subscription("kv@here" + std::string(100, 'x') + std::to_string(i))));
  ASSERT_TRUE(stranger.send(subscription("kv@")));
  ASSERT_TRUE(test::comes_true([&] { return publisher.stats().subscribers == 1; }));
  EXPECT_LT(living_bytes - before, 1'000'000);
  publish_block(publisher, 1);
  EXPECT_EQ(stranger.read_frame(), "kv@here");
}

TEST(EventLimits, a_frame_that_is_too_long_or_wrong_ends_the_connection) {
  EventPublisher publisher{on_any_port()};
  std::string huge;
  zmtp::append_header(huge, 0, std::size_t{1} << 40U);
  std::uint64_t dropped = 0;
  for (const std::string& endpoint : {publisher.endpoint(), publisher.replay_endpoint()}) {
    Stranger long_frame{endpoint, endpoint == publisher.endpoint() ? "SUB" : "DEALER"};
    ASSERT_TRUE(long_frame.send(huge));
    EXPECT_TRUE(long_frame.is_disconnected());
    Stranger other_type{endpoint};
    ASSERT_TRUE(other_type.send(zmtp::greeting() + zmtp::ready("PUSH")));
    Stranger other_protocol{endpoint};
    ASSERT_TRUE(other_protocol.send("GET / HTTP/1.1\r\nHost: here\r\nUser-Agent: a browser that is lost\r\n\r\n"));
    dropped += 3;
    EXPECT_TRUE(test::comes_true([&] { return publisher.stats().peers_dropped == dropped; }));
  }
}

TEST(EventLimits, answers_that_nobody_reads_hold_up_nobody_and_take_little_memory) {
  EventPublisher publisher{on_any_port()};
  for (std::uint32_t block = 0; block < 100; ++block) publish_block(publisher, block, 50'000);  // of 250 KB each
  const std::int64_t before = living_bytes;
  std::vector<Stranger> idle;
  for (std::size_t i = 0; i < 40; ++i) {
    idle.emplace_back(publisher.replay_endpoint(), "DEALER");
    for (int again = 0; again < 3; ++again) idle.back().ask(0);
  }
  ASSERT_TRUE(test::comes_true([&] { return publisher.stats().replays == idle.size(); }));
  Stranger reader{publisher.replay_endpoint(), "DEALER"};
  reader.ask(0);
  const auto number = zmtp::big_endian(~std::uint64_t{0});
  std::string sequence;
  do {
    for (int frame = 0; frame < 3; ++frame) sequence = reader.read_frame();
    (void)reader.read_frame();
  } while (sequence.size() == 8 && sequence != std::string_view(number.data(), number.size()));
  EXPECT_EQ(sequence.size(), 8U);
  EXPECT_EQ(publisher.stats().replays, idle.size() + 1) << "a connection has one answer at a time";
  EXPECT_EQ(publisher.stats().replays_cut, 0U);
  EXPECT_LT(living_bytes - before, 4'000'000);  // the batches are those of the buffer
}

TEST(EventLimits, a_peer_that_has_shaken_hands_keeps_its_place_and_others_lose_it) {
  EventPublisher publisher{on_any_port()};
  std::vector<Stranger> silent;
  for (std::size_t i = 0; i < 2 * places; ++i) silent.emplace_back(publisher.replay_endpoint());
  std::vector<Stranger> peers;
  for (std::size_t i = 0; i < places; ++i) peers.emplace_back(publisher.replay_endpoint(), "DEALER");
  ASSERT_TRUE(test::comes_true([&] { return publisher.stats().peers_refused == 2 * places; }));
  for (Stranger& peer : peers) {
    peer.ask(7);
    for (int frame = 0; frame < 4; ++frame) EXPECT_EQ(peer.read_frame().size(), frame == 2 ? 8U : 0U);
  }
  Stranger late{publisher.replay_endpoint()};
  EXPECT_TRUE(late.is_disconnected());
}

TEST(EventLimits, a_socket_of_another_process_and_a_file_are_not_taken_over) {
  const test::TemporaryDirectory folder;
  const std::string path = (folder.path() / "events").string();
  const std::string file = (folder.path() / "file").string();
  std::ofstream{file} << "mine";
  const auto refusal = [](EventPublisherOptions options) {
    try {
      const EventPublisher publisher{options};
      return 0;
    } catch (const std::system_error& error) {
      return error.code().value();
    }
  };
  for (std::string EventPublisherOptions::*const address :
       {&EventPublisherOptions::endpoint, &EventPublisherOptions::replay_endpoint}) {
    auto options = on_any_port();
    options.*address = "ipc://" + file;
    EXPECT_EQ(refusal(options), EADDRINUSE);
    EXPECT_EQ(std::filesystem::file_size(file), 4U);
    options.*address = "ipc://" + path;
    {
      const EventPublisher first{options};
      const bool is_first = address == &EventPublisherOptions::endpoint;
      EXPECT_EQ(is_first ? first.endpoint() : first.replay_endpoint(), options.*address);
      EXPECT_EQ(refusal(options), EADDRINUSE);
      EXPECT_TRUE(std::filesystem::is_socket(path));
      std::filesystem::rename(path, path + ".dead");
    }
    std::filesystem::rename(path + ".dead", path);  // as a process that was killed leaves it
    EXPECT_EQ(refusal(options), 0);
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

TEST(EventLimits, after_a_failure_in_its_thread_it_begins_again) {
  EventPublisher publisher{on_any_port()};
  publish_block(publisher, 1);
  Stranger subscriber{publisher.endpoint(), "SUB"};
  ASSERT_TRUE(subscriber.send(subscription("")));
  ASSERT_TRUE(test::comes_true([&] { return publisher.stats().subscribers == 1; }));
  fail = true;
  const std::vector<BlockKey> keys(1);
  const std::vector<TokenId> tokens(1000);
  ASSERT_TRUE(publisher.describe({.keys = keys, .tokens = tokens, .block_tokens = 1000}));
  EXPECT_TRUE(test::comes_true([&] { return publisher.stats().failures > 0; }));
  fail = false;
  EXPECT_TRUE(subscriber.is_disconnected());
  ASSERT_TRUE(test::comes_true([&] { return publisher.stats().batches == 0; }));
  publish_block(publisher, 2);
  Stranger reader{publisher.replay_endpoint(), "DEALER"};
  reader.ask(0);
  for (int frame = 0; frame < 3; ++frame) (void)reader.read_frame();
  const auto events = decode_batch(reader.read_frame()).events;
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].type, "AllBlocksCleared");
  EXPECT_EQ(events[1].type, "BlockStored");
}

}  // namespace
}  // namespace terrace
