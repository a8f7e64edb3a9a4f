// Compares the processor time of our client of the Redis protocol with that of hiredis, of plain calls of send() and recv(), and
// of a bare TCP stream. Started by hand; see docs/benchmarks.md.
//   redis_clients_bench [ROUNDS [MIB_A_ROUND]]

#include "lab/rounds.hpp"
#include "storage/io/checksum.hpp"
#include "storage/redis/redis_shared_store.hpp"
#include "tests/redis/server/real_server.hpp"
#include "tools/shared/shared_rates.hpp"

#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace terrace::test {
namespace {

using tools::SharedCost;
using tools::SharedWork;

double cpu_seconds_of(pid_t process) {
  clockid_t clock{};
  timespec time{};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// hiredis, with the same number of blocks under way; a reply is copied to its place, which is all that it offers. With checks,
/// the checksum of each block is made too, as our client does it.
class Hiredis {
 public:
  Hiredis(std::uint16_t port, const SharedWork& work, bool checks)
      : context_{::redisConnect("127.0.0.1", port)}, work_{work}, checks_{checks} {}
  ~Hiredis() { ::redisFree(context_); }

  SharedCost write(std::span<const std::byte> memory) {
    return run(
        [&](std::uint32_t n, const std::string& name) {
          std::array<const char*, 3> words{"SET", name.c_str(), reinterpret_cast<const char*>(&memory[n * work_.block_bytes])};
          const std::array<std::size_t, 3> sizes{3, name.size(), work_.block_bytes};
          check(memory, n);
          ::redisAppendCommandArgv(context_, 3, words.data(), sizes.data());
        },
        [](std::uint32_t, const redisReply& reply) { return reply.type == REDIS_REPLY_STATUS; });
  }
  SharedCost read(std::span<std::byte> memory) {
    return run(
        [&](std::uint32_t, const std::string& name) {
          std::array<const char*, 2> words{"GET", name.c_str()};
          const std::array<std::size_t, 2> sizes{3, name.size()};
          ::redisAppendCommandArgv(context_, 2, words.data(), sizes.data());
        },
        [&](std::uint32_t n, const redisReply& reply) {
          if (reply.type != REDIS_REPLY_STRING || reply.len != work_.block_bytes) return false;
          std::memcpy(&memory[n * work_.block_bytes], reply.str, work_.block_bytes);
          check(memory, n);
          return true;
        });
  }

 private:
  void check(std::span<const std::byte> memory, std::uint32_t n) {
    if (checks_) sum_ += payload_checksum({}, {}, memory.subspan(n * work_.block_bytes, work_.block_bytes));
  }
  template <class Submit, class Take>
  SharedCost run(Submit submit, Take take) {
    SharedCost cost;
    const double cpu = tools::process_cpu_seconds();
    std::uint32_t next = 0;
    cost.seconds = tools::seconds_of([&] {
      for (std::uint32_t ended = 0; ended < work_.blocks; ++ended) {
        for (; next < work_.blocks && next - ended < work_.at_once; ++next) submit(next, fmt::format("hiredis:{}", next));
        void* reply = nullptr;
        const bool well = ::redisGetReply(context_, &reply) == REDIS_OK && take(ended, *static_cast<redisReply*>(reply));
        if (!well) ++cost.failed;
        if (reply != nullptr) ::freeReplyObject(reply);
      }
    });
    cost.client_cpu_seconds = tools::process_cpu_seconds() - cpu;
    return cost;
  }

  redisContext* context_;
  const SharedWork work_;
  const bool checks_;
  std::uint64_t sum_ = 0;
};

/// The least that a client can do: blocking calls of send() and recv() from and into the memory of the blocks, as few as there
/// may be, with the same number of blocks under way. With checks, the checksum of each block is made, too.
class Plain {
 public:
  Plain(std::uint16_t port, const SharedWork& work, bool checks)
      : socket_{::socket(AF_INET, SOCK_STREAM, 0)}, work_{work}, checks_{checks} {
    const sockaddr_in address = loopback(port);
    const int on = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~Plain() { ::close(socket_); }

  SharedCost write(std::span<const std::byte> memory) {
    return run(
        [&](std::uint32_t n, const std::string& name) {
          check(memory, n);
          const std::string text = fmt::format("*3\r\n$3\r\nSET\r\n${}\r\n{}\r\n${}\r\n", name.size(), name, work_.block_bytes);
          return send(as_bytes(text)) && send(memory.subspan(n * work_.block_bytes, work_.block_bytes)) && send(as_bytes("\r\n"));
        },
        [&](std::uint32_t) { return expect("+OK\r\n"); });
  }
  SharedCost read(std::span<std::byte> memory) {
    return run(
        [&](std::uint32_t, const std::string& name) {
          return send(as_bytes(fmt::format("*2\r\n$3\r\nGET\r\n${}\r\n{}\r\n", name.size(), name)));
        },
        [&](std::uint32_t n) {
          const std::span<std::byte> into = memory.subspan(n * work_.block_bytes, work_.block_bytes);
          const bool well = expect(fmt::format("${}\r\n", work_.block_bytes)) && receive(into) && expect("\r\n");
          if (well) check(memory, n);
          return well;
        });
  }

 private:
  static std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span{text}); }
  bool send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t now = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (now <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(now));
    }
    return true;
  }
  bool receive(std::span<std::byte> into) {
    while (!into.empty()) {
      const ssize_t now = ::recv(socket_, into.data(), into.size(), 0);
      if (now <= 0) return false;
      into = into.subspan(static_cast<std::size_t>(now));
    }
    return true;
  }
  bool expect(const std::string& text) {
    std::string got(text.size(), '\0');
    return receive(std::as_writable_bytes(std::span{got})) && got == text;
  }
  void check(std::span<const std::byte> memory, std::uint32_t n) {
    if (checks_) sum_ += payload_checksum({}, {}, memory.subspan(n * work_.block_bytes, work_.block_bytes));
  }
  template <class Submit, class Take>
  SharedCost run(Submit submit, Take take) {
    SharedCost cost;
    const double cpu = tools::process_cpu_seconds();
    std::uint32_t next = 0;
    cost.seconds = tools::seconds_of([&] {
      for (std::uint32_t ended = 0; connected_ && ended < work_.blocks; ++ended) {
        for (; next < work_.blocks && next - ended < work_.at_once; ++next) {
          if (!submit(next, fmt::format("plain:{}", next))) ++cost.failed;
        }
        if (!take(ended)) ++cost.failed;
      }
    });
    if (!connected_) cost.failed = work_.blocks;
    cost.client_cpu_seconds = tools::process_cpu_seconds() - cpu;
    return cost;
  }

  const int socket_;
  const SharedWork work_;
  const bool checks_;
  bool connected_ = false;
  std::uint64_t sum_ = 0;
};

/// Both ends of a stream over the loopback interface; the processor time is that of both.
SharedCost stream(const SharedWork& work, std::span<const std::byte> from, std::span<std::byte> into) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0) return {};
  ::listen(listener, 1);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  const int sender = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::connect(sender, reinterpret_cast<sockaddr*>(&address), size) != 0) return {};
  const int receiver = ::accept(listener, nullptr, nullptr);
  SharedCost cost;
  const double cpu = tools::process_cpu_seconds();
  cost.seconds = tools::seconds_of([&] {
    std::thread sends{[&] {
      for (std::size_t sent = 0; sent < from.size();) {
        const ssize_t now = ::send(sender, &from[sent], std::min(work.block_bytes, from.size() - sent), 0);
        if (now <= 0) return;
        sent += static_cast<std::size_t>(now);
      }
    }};
    for (std::size_t received = 0; received < into.size();) {
      const std::size_t left = work.block_bytes - received % work.block_bytes;
      const ssize_t now = ::recv(receiver, &into[received], left, 0);
      if (now <= 0) break;
      received += static_cast<std::size_t>(now);
    }
    sends.join();
  });
  cost.client_cpu_seconds = tools::process_cpu_seconds() - cpu;
  for (const int fd : {listener, sender, receiver}) ::close(fd);
  return cost;
}

struct Cell {
  std::vector<double> client, server, seconds;
};

void compare(RealServer& server, const SharedWork& work, int rounds) {
  std::vector<std::byte> from(work.blocks * work.block_bytes, std::byte{0x5a});
  std::vector<std::byte> into(from.size(), std::byte{1});
  const std::unique_ptr<SharedStore> store = open_redis_store(parse_redis_url("redis://" + server.host()));
  tools::SharedRates ours{*store, work};
  Hiredis hiredis{server.port(), work, false};
  Hiredis checked{server.port(), work, true};
  Plain plain{server.port(), work, false};
  Plain plain_checked{server.port(), work, true};
  std::map<std::string, Cell> cells;
  const double gigabytes = static_cast<double>(from.size()) * 1e-9;
  const auto measure = [&](const std::string& name, auto&& what) {
    const double before = cpu_seconds_of(server.process());
    const SharedCost cost = what();
    if (cost.failed > 0) fmt::print("{}: {} operations failed\n", name, cost.failed);
    Cell& cell = cells[name];
    cell.server.push_back(1000 * (cpu_seconds_of(server.process()) - before) / gigabytes);
    cell.client.push_back(1000 * cost.client_cpu_seconds / gigabytes);
    cell.seconds.push_back(gigabytes / cost.seconds);
  };
  for (int round = 0; round < rounds; ++round) {
    measure("SET hiredis", [&] { return hiredis.write(from); });
    measure("SET hiredis, checked", [&] { return checked.write(from); });
    measure("SET terrace", [&] { return ours.write(from); });
    measure("SET plain", [&] { return plain.write(from); });
    measure("SET plain, checked", [&] { return plain_checked.write(from); });
    measure("GET hiredis", [&] { return hiredis.read(into); });
    measure("GET hiredis, checked", [&] { return checked.read(into); });
    measure("GET terrace", [&] { return ours.read(into); });
    measure("GET plain", [&] { return plain.read(into); });
    measure("GET plain, checked", [&] { return plain_checked.read(into); });
    measure("TCP stream", [&] { return stream(work, from, into); });
  }
  fmt::print("\n{} blocks of {} KiB, {} at once, {} rounds; CPU in ms/GB, medians\n", work.blocks, work.block_bytes >> 10,
             work.at_once, rounds);
  for (const auto& [name, cell] : cells) {
    fmt::print("  {:21} client {:6.0f}  server {:6.0f}  {:5.2f} GB/s\n", name, tools::median(cell.client),
               tools::median(cell.server), tools::median(cell.seconds));
  }
  const auto client = [&](const std::string& name) { return tools::median(cells[name].client); };
  const auto both = [&](const std::string& name) { return client(name) + tools::median(cells[name].server); };
  for (const std::string& what : {std::string{"GET"}, std::string{"SET"}}) {
    const double ours_cpu = client(what + " terrace");
    fmt::print("  {} client: {:.2f} of hiredis, {:.2f} of hiredis with the same checksum, {:.2f} of plain calls with it\n", what,
               ours_cpu / client(what + " hiredis"), ours_cpu / client(what + " hiredis, checked"),
               ours_cpu / client(what + " plain, checked"));
    fmt::print(
        "  {} client and server: {:.2f} of hiredis, {:.2f} of plain calls with the checksum; plain client: {:.2f} of hiredis\n",
        what, both(what + " terrace") / both(what + " hiredis"), both(what + " terrace") / both(what + " plain, checked"),
        client(what + " plain, checked") / client(what + " hiredis"));
  }
  fmt::print("  GET client and server: {:.2f} of the stream\n", both("GET terrace") / client("TCP stream"));
}

}  // namespace
}  // namespace terrace::test

int main(int count, char** words) {
  const int rounds = count > 1 ? std::atoi(words[1]) : 5;
  const std::size_t mebibytes = count > 2 ? static_cast<std::size_t>(std::atoi(words[2])) : 128;
  terrace::test::RealServer server;
  for (const std::size_t kibibytes : {256U, 1024U, 4096U}) {
    const std::size_t bytes = kibibytes << 10;
    const auto at_once = static_cast<std::uint32_t>(std::max<std::size_t>(1, (std::size_t{8} << 20) / bytes));
    terrace::test::compare(server, {static_cast<std::uint32_t>((mebibytes << 20) / bytes), bytes, at_once}, rounds);
  }
}
