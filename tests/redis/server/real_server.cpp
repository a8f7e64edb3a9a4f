#include "tests/redis/server/real_server.hpp"

#include "storage/redis/channel.hpp"
#include "storage/redis/exchange.hpp"
#include "storage/redis/slot_map.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <utility>

namespace terrace::test {
namespace {

std::filesystem::path find_program(std::string_view name) {
  std::string_view folders = std::getenv("PATH") == nullptr ? "" : std::getenv("PATH");
  while (!folders.empty()) {
    const std::size_t colon = folders.find(':');
    const std::filesystem::path file = std::filesystem::path{folders.substr(0, colon)} / name;
    if (::access(file.c_str(), X_OK) == 0) return file;
    folders.remove_prefix(colon == std::string_view::npos ? folders.size() : colon + 1);
  }
  return {};
}

/// Starts a program, which ends with this one. Its output goes nowhere.
pid_t spawn(const std::filesystem::path& program, const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t process = ::fork();
  if (process != 0) return process;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (const int fd : {0, 1, 2}) ::dup2(nowhere, fd);
  ::execv(program.c_str(), arguments.data());
  ::_exit(127);
}

constexpr std::uint32_t ports_of_process = 1000;

/// The first of the ports that belong to this process until it ends. A test kills its server and starts it again at the same
/// port, which no other test program that runs at the same time may take meanwhile.
std::uint32_t take_ports() {
  // The system takes the ports of connections from 32768 on.
  constexpr std::uint32_t first = 10'000;
  constexpr std::uint32_t parts = 22;
  static const int owner = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  for (std::uint32_t n = 0; n < parts; ++n) {
    const std::uint32_t ports = first + (static_cast<std::uint32_t>(::getpid()) + n) % parts * ports_of_process;
    // A name that is no file. Only one process can have it.
    const std::string name = "terrace-test-ports-" + std::to_string(ports);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::bind(owner, reinterpret_cast<const sockaddr*>(&address), size) == 0) return ports;
  }
  throw std::runtime_error{"other test programs have all ports"};
}

/// An answer as a whole.
class Whole final : public Exchange {
 public:
  explicit Whole(RespValue& value, bool& there) : value_{value}, there_{there} { whole_replies = true; }
  void replied(RespValue reply) override {
    value_ = std::move(reply);
    there_ = true;
  }
  void broken() override {}

 private:
  RespValue& value_;
  bool& there_;
};

}  // namespace

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

std::uint16_t free_port() {
  static const std::uint32_t first = take_ports();
  static std::uint32_t next = 0;
  for (std::uint32_t n = 0; n < ports_of_process; ++n) {
    const auto port = static_cast<std::uint16_t>(first + next++ % ports_of_process);
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(port);
    const bool free = ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    ::close(socket);
    if (free) return port;
  }
  throw std::runtime_error{"no free port"};
}

const std::filesystem::path& redis_program() {
  static const std::filesystem::path program = [] {
    const std::filesystem::path server = find_program("redis-server");
    // It is one program, which looks at the name that it is called by.
    return server.empty() ? find_program("redis-check-rdb") : server;
  }();
  return program;
}

int run_program(const std::vector<std::string>& words) {
  int status = 0;
  ::waitpid(spawn(find_program(words[0]), words), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// ---- a client ------------------------------------------------------------------------------------------------------------

RawClient::RawClient(std::uint16_t port) : socket_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
  const timeval limit{.tv_sec = patience.count(), .tv_usec = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const sockaddr_in address = loopback(port);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return;
  ::close(socket_);
  throw std::runtime_error{"no server at port " + std::to_string(port)};
}

RawClient::~RawClient() { ::close(socket_); }

void RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) throw std::runtime_error{"the server does not listen"};
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

RespValue RawClient::command(std::initializer_list<std::string_view> words) {
  RespValue reply;
  bool there = false;
  Channel channel;
  auto exchange = std::make_unique<Whole>(reply, there);
  append_command(exchange->segments[0].text, words);
  send(exchange->segments[0].text);
  const std::size_t bytes = exchange->segments[0].text.size();
  channel.submit(std::move(exchange));
  channel.sent(bytes);
  while (!there) {
    const std::array<iovec, 2> pieces = channel.incoming();
    const ssize_t read = ::readv(socket_, pieces.data(), static_cast<int>(pieces.size()));
    if (read <= 0) throw std::runtime_error{"the server does not answer"};
    channel.received(static_cast<std::size_t>(read));
  }
  return reply;
}

// ---- servers -------------------------------------------------------------------------------------------------------------

RealServer::RealServer(std::vector<std::string> arguments) : port_{free_port()}, arguments_{std::move(arguments)} { start(); }

RealServer::~RealServer() {
  go_on();
  kill();
}

void RealServer::start() {
  std::vector<std::string> words{"redis-server",
                                 "--port",
                                 std::to_string(port_),
                                 "--bind",
                                 "127.0.0.1",
                                 "--dir",
                                 directory_.path().string(),
                                 "--save",
                                 "",
                                 "--appendonly",
                                 "no",
                                 "--enable-debug-command",
                                 "yes"};
  words.insert(words.end(), arguments_.begin(), arguments_.end());
  process_ = spawn(redis_program(), words);
  const bool answers = comes_true([this] {
    try {
      return !command({"PING"}).text.empty();
    } catch (const std::runtime_error&) {
      return false;
    }
  });
  if (!answers) throw std::runtime_error{"the server does not start"};
}

void RealServer::kill() {
  if (process_ <= 0) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
  process_ = -1;
}

void RealServer::stop() { ::kill(process_, SIGSTOP); }
void RealServer::go_on() {
  if (process_ > 0) ::kill(process_, SIGCONT);
}

RealCluster::RealCluster(std::size_t masters, bool replicas, const std::vector<std::string>& arguments) {
  for (std::size_t n = 0; n < masters * (replicas ? 2 : 1); ++n) {
    std::vector<std::string> words{"--cluster-enabled",      "yes", "--cluster-port", std::to_string(free_port()),
                                   "--cluster-node-timeout", "1000"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    nodes_.push_back(std::make_unique<RealServer>(words));
  }
  std::vector<std::string> create{"redis-cli", "--cluster", "create"};
  for (const auto& node : nodes_) create.push_back(node->host());
  for (const char* word : {"--cluster-replicas", replicas ? "1" : "0", "--cluster-yes"}) create.emplace_back(word);
  if (run_program(create) != 0 || !comes_true([this] { return is_well(); })) throw std::runtime_error{"no cluster"};
}

std::string RealCluster::url() const {
  std::string url = "redis://";
  for (const auto& node : nodes_) {
    if (node != nodes_.front()) url += ',';
    url += node->host();
  }
  return url + "?cluster=1";
}

std::string RealCluster::id(std::size_t n) { return node(n).command({"CLUSTER", "MYID"}).text; }

bool RealCluster::is_well() {
  std::size_t slots = 0;
  for (const auto& node : nodes_) {
    if (node->process() < 0) continue;
    if (node->command({"CLUSTER", "INFO"}).text.find("cluster_state:ok") == std::string::npos) return false;
    const auto ranges = parse_slots(node->command({"CLUSTER", "SLOTS"}), {});
    if (!ranges) return false;
    slots = 0;
    for (const RedisSlotRange& range : *ranges) slots += range.last - range.first + 1;
    if (slots != redis_slot_count) return false;
  }
  return true;
}

RespValue RealCluster::command(std::string_view, std::initializer_list<std::string_view> words) {
  RespValue reply;
  for (const auto& node : nodes_) {
    if (node->process() < 0) continue;
    reply = node->command(words);
    if (!reply.is_error("MOVED")) return reply;
  }
  return reply;
}

// ---- certificates --------------------------------------------------------------------------------------------------------

Certificates::Certificates() {
  const auto openssl = [](std::vector<std::string> words) {
    words.insert(words.begin(), "openssl");
    if (run_program(words) != 0) throw std::runtime_error{"openssl failed"};
  };
  const std::string names = directory_.write("names", "subjectAltName=IP:127.0.0.1,DNS:localhost\n").string();
  openssl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=test authority",
           "-days", "2", "-keyout", file("ca.key"), "-out", file("ca.pem")});
  openssl({"req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=test server", "-keyout",
           file("server.key"), "-out", file("server.csr")});
  // Without days, a certificate has expired as soon as it is made.
  for (const auto& [name, days] : {std::pair{"server.pem", "2"}, std::pair{"old.pem", "-1"}}) {
    openssl({"x509", "-req", "-in", file("server.csr"), "-CA", file("ca.pem"), "-CAkey", file("ca.key"), "-CAcreateserial",
             "-days", days, "-extfile", names, "-out", file(name)});
  }
}

}  // namespace terrace::test
