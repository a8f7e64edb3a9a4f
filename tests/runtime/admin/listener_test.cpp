// The endpoint over real sockets.

#include "runtime/admin/listener.hpp"

#include "runtime/admin/address.hpp"
#include "runtime/admin/mailbox.hpp"
#include "terrace/admin.hpp"
#include "tests/patience.hpp"
#include "tests/refusal.hpp"
#include "tests/tools/temporary_directory.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::admin {
namespace {

sockaddr_un name_of(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strncpy(name.sun_path, path.c_str(), sizeof name.sun_path - 1);
  return name;
}

/// A connection that sends bytes as they are.
class RawClient {
 public:
  /// To a Unix socket.
  explicit RawClient(const std::string& path) : fd_{::socket(AF_UNIX, SOCK_STREAM, 0)} {
    const sockaddr_un name = name_of(path);
    connect(reinterpret_cast<const sockaddr*>(&name), sizeof name);
  }
  /// To a port of this machine.
  explicit RawClient(std::uint16_t port) : fd_{::socket(AF_INET, SOCK_STREAM, 0)} {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(reinterpret_cast<const sockaddr*>(&name), sizeof name);
  }
  ~RawClient() { ::close(fd_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void send(std::string_view text) const { (void)::send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  /// Everything until the other side closes.
  [[nodiscard]] std::string rest() const {
    std::string all;
    char part[4096];
    for (ssize_t got = 0; (got = ::recv(fd_, part, sizeof part, 0)) > 0;) all.append(part, static_cast<std::size_t>(got));
    return all;
  }
  /// At most so many bytes; none at the end.
  [[nodiscard]] std::size_t some(std::size_t bytes) const {
    std::string part(bytes, '\0');
    return static_cast<std::size_t>(std::max<ssize_t>(0, ::recv(fd_, part.data(), part.size(), 0)));
  }
  /// One reply with a body of known length.
  [[nodiscard]] std::string one() const {
    std::string all;
    char c = 0;
    while (all.find("\r\n\r\n") == std::string::npos && ::recv(fd_, &c, 1, 0) == 1) all += c;
    const std::size_t at = all.find("Content-Length: ");
    std::size_t length = at == std::string::npos ? 0 : std::strtoul(all.c_str() + at + 16, nullptr, 10);
    while (length > 0 && ::recv(fd_, &c, 1, 0) == 1) all += c, --length;
    return all;
  }

 private:
  void connect(const sockaddr* name, socklen_t size) const {
    if (::connect(fd_, name, size) != 0) throw std::runtime_error{"connect"};
    const timeval patience{test::patience.count(), 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }

  int fd_;
};

std::string request(std::string_view method, std::string_view path, std::string_view body = {}, bool close = true) {
  return fmt::format("{} {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{}\r\n{}", method, path, body.size(),
                     close ? "Connection: close\r\n" : "", body);
}

class AdminListener : public ::testing::Test {
 protected:
  struct NoticingWaker final : Waker {
    void wake() noexcept override { woken = true; }
    std::atomic<bool> woken{false};
  };

  AdminListener() {
    options.listen = "unix:" + path();
    options.command_deadline = std::chrono::milliseconds{100};
    auto snapshot = std::make_shared<AdminSnapshot>();
    snapshot->made = clock.now();
    snapshot->pools.emplace_back();
    mailbox.publish(std::move(snapshot));
  }
  void listen(Duration silence_max = std::chrono::seconds{10}) { listener.emplace(options, mailbox, clock, Room{}, silence_max); }
  /// Listens on TCP and returns the port.
  std::uint16_t listen_on_tcp() {
    options.listen = "tcp:127.0.0.1:0";
    options.token_file = directory.write("token", "0123456789abcdef\n");
    ::chmod(options.token_file.c_str(), 0600);
    listen();
    return parse_address(listener->address()).port;
  }
  [[nodiscard]] std::string path() const { return (directory.path() / "admin.sock").string(); }
  [[nodiscard]] std::string ask(std::string_view method, std::string_view target, std::string_view body = {}) const {
    const RawClient client{path()};
    client.send(request(method, target, body));
    return client.rest();
  }
  /// The sentence with which a second listener with these options is refused; empty: it is not.
  [[nodiscard]] std::string refusal() const {
    NullWaker nobody;
    Mailbox other{nobody};
    return test::refusal_of<std::exception>([&] { const Listener wrong{options, other, clock, Room{}}; });
  }

  test::TemporaryDirectory directory;
  NoticingWaker waker;
  SteadyClock clock;
  AdminOptions options;
  Mailbox mailbox{waker};
  std::optional<Listener> listener;
};

TEST_F(AdminListener, answers_questions_one_after_the_other_on_one_connection) {
  listen();
  EXPECT_EQ(listener->address(), "unix:" + path());
  const RawClient client{path()};
  for (int n = 0; n < 3; ++n) {
    client.send(request("GET", "/healthz", {}, false));
    EXPECT_NE(client.one().find("HTTP/1.1 200 OK"), std::string::npos);
  }
  client.send(request("HEAD", "/healthz"));
  const std::string head = client.rest();
  EXPECT_NE(head.find("Content-Length: "), std::string::npos);
  EXPECT_EQ(head.find("\"status\""), std::string::npos);
}

TEST_F(AdminListener, only_its_user_can_connect) {
  listen();
  struct stat info {};
  ASSERT_EQ(::stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can try it as another user";
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    constexpr uid_t nobody = 65534;
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const sockaddr_un name = name_of(path());
    const bool left = ::setgid(nobody) == 0 && ::setuid(nobody) == 0;
    const bool connected = ::connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0;
    ::_exit(!left ? 2 : connected ? 1 : errno == EACCES ? 0 : 3);
  }
  int status = 0;
  ::waitpid(other, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(AdminListener, a_command_that_nobody_takes_is_withdrawn_at_its_deadline) {
  listen();
  const std::string reply = ask("POST", "/v1/pause");
  EXPECT_NE(reply.find("HTTP/1.1 503"), std::string::npos) << reply;
  EXPECT_NE(reply.find("nothing was done"), std::string::npos);
  EXPECT_TRUE(waker.woken);
  EXPECT_FALSE(mailbox.take().has_value());
}

TEST_F(AdminListener, a_command_that_was_taken_gets_its_reply_even_after_its_deadline) {
  listen();
  std::thread cache{[&] {
    std::optional<Mailbox::Posted> posted;
    while (!(posted = mailbox.take())) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    std::this_thread::sleep_for(4 * std::chrono::milliseconds{100});  // the deadline is 100 ms
    posted->done({202, "{\"done\": true}"});
  }};
  EXPECT_NE(ask("POST", "/v1/pause").find("{\"done\": true}"), std::string::npos);
  cache.join();
}

TEST_F(AdminListener, its_end_refuses_the_commands_that_wait) {
  options.command_deadline = std::chrono::hours{1};
  listen();
  const RawClient client{path()};
  client.send(request("POST", "/v1/pause"));
  while (!mailbox.waiting()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  listener.reset();
  EXPECT_FALSE(mailbox.waiting());
  EXPECT_EQ(client.rest(), "");
}

TEST_F(AdminListener, a_command_gets_the_reply_of_the_cache) {
  options.command_deadline = test::patience;
  listen();
  std::atomic<bool> end{false};
  std::thread cache{[&] {
    while (!end) {
      if (auto posted = mailbox.take()) posted->done({202, "{\"done\": true}"});
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }};
  std::vector<std::thread> clients;
  std::atomic<int> served{0};
  for (int n = 0; n < 8; ++n) {
    clients.emplace_back([&] {
      for (int i = 0; i < 10; ++i) served += ask("POST", "/v1/pause").find("{\"done\": true}") != std::string::npos ? 1 : 0;
    });
  }
  for (std::thread& client : clients) client.join();
  end = true;
  cache.join();
  EXPECT_EQ(served, 80);
}

TEST_F(AdminListener, sizes_have_limits) {
  listen();
  EXPECT_NE(ask("POST", "/v1/clear", std::string(64 * 1024 + 1, ' ')).find("HTTP/1.1 413"), std::string::npos);
  const RawClient long_headers{path()};
  long_headers.send("GET /healthz HTTP/1.1\r\nX: " + std::string(9000, 'x') + "\r\n\r\n");
  EXPECT_NE(long_headers.rest().find("HTTP/1.1 431"), std::string::npos);
  const RawClient no_http{path()};
  no_http.send("hello\r\n\r\n");
  EXPECT_NE(no_http.rest().find("HTTP/1.1 400"), std::string::npos);
  const RawClient half{path()};
  half.send("GET /heal");
  EXPECT_NE(ask("GET", "/healthz").find("HTTP/1.1 200"), std::string::npos) << "a slow client holds up nobody";
}

TEST_F(AdminListener, more_connections_than_allowed_are_closed) {
  options.connections_max = 2;
  listen();
  const RawClient first{path()};
  first.send(request("GET", "/healthz", {}, false));
  EXPECT_FALSE(first.one().empty());
  const RawClient second{path()};
  second.send(request("GET", "/healthz", {}, false));
  EXPECT_FALSE(second.one().empty());
  const RawClient third{path()};
  third.send(request("GET", "/healthz"));
  EXPECT_EQ(third.rest(), "");
  first.send(request("GET", "/healthz"));
  EXPECT_NE(first.rest().find("200 OK"), std::string::npos);
}

constexpr std::string_view right = "GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n";
constexpr std::string_view wrong = "GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer 0123456789abcdeX\r\n\r\n";

TEST_F(AdminListener, who_brings_no_token_keeps_nobody_out_who_does) {
  options.connections_max = 4;
  const std::uint16_t port = listen_on_tcp();
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int n = 0; n < 20; ++n) silent.push_back(std::make_unique<RawClient>(port));
  std::vector<std::unique_ptr<RawClient>> known;
  for (int n = 0; n < 4; ++n) {
    known.push_back(std::make_unique<RawClient>(port));
    known.back()->send(right);
    EXPECT_NE(known.back()->one().find("200 OK"), std::string::npos) << n;
  }
  const RawClient late{port};
  late.send(right);
  EXPECT_EQ(late.rest(), "") << "all places have those who brought the token";
  known.front()->send(right);
  EXPECT_NE(known.front()->one().find("200 OK"), std::string::npos);
  known.front()->send(wrong);
  EXPECT_NE(known.front()->rest().find("401"), std::string::npos) << "it is closed";
}

TEST_F(AdminListener, right_requests_are_served_while_others_connect_again_and_again) {
  options.connections_max = 4;
  const std::uint16_t port = listen_on_tcp();
  std::atomic<bool> end{false};
  std::vector<std::thread> others;
  for (int n = 0; n < 16; ++n) {
    others.emplace_back([&, n] {
      while (!end) {
        const RawClient client{port};
        client.send(n % 2 == 0 ? wrong : wrong.substr(0, 30));
        (void)client.some(1);
      }
    });
  }
  for (int served = 0, tries = 0; served < 40; ++tries) {
    ASSERT_LT(tries, 4000);
    const RawClient client{port};
    client.send(right);
    served += client.one().find("200 OK") != std::string::npos ? 1 : 0;
  }
  end = true;
  for (std::thread& other : others) other.join();
}

TEST_F(AdminListener, a_reader_may_be_slow_but_not_stand_still) {
  const Duration silence_max = std::chrono::seconds{2};
  Observed portion;
  portion.made = clock.now();
  portion.captures[0] = {1, portion.made, portion.made};
  portion.spans.assign(100'000, {.kind = TraceSpan::Kind::wait, .id = 1});
  mailbox.give(std::move(portion));
  listen(silence_max);
  const RawClient slow{path()};
  const RawClient stands{path()};
  slow.send(request("GET", "/v1/trace"));
  stands.send(request("GET", "/v1/trace"));
  const TimePoint begin = clock.now();
  std::size_t got = 0;
  while (clock.now() < begin + 2 * silence_max) {
    const std::size_t some = slow.some(64 * 1024);
    ASSERT_GT(some, 0U);
    got += some;
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
  }
  const std::size_t all = got + slow.rest().size();
  EXPECT_GT(all, 100'000U * 50);
  EXPECT_LT(stands.rest().size(), all) << "it was cut";
}

TEST_F(AdminListener, a_command_whose_client_has_gone_is_not_carried_out) {
  options.command_deadline = std::chrono::hours{1};
  listen();
  {
    const RawClient client{path()};
    client.send(request("POST", "/v1/clear"));
    ASSERT_TRUE(test::comes_true([&] { return mailbox.waiting(); }));
  }
  EXPECT_TRUE(test::comes_true([&] { return !mailbox.waiting(); }));
  EXPECT_FALSE(mailbox.take().has_value());
  EXPECT_NE(ask("GET", "/healthz").find("200 OK"), std::string::npos);
}

TEST_F(AdminListener, the_socket_of_a_dead_process_is_replaced_and_that_of_a_living_one_is_not) {
  {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const sockaddr_un name = name_of(path());
    ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
    ::close(fd);
  }
  listen();
  EXPECT_NE(ask("GET", "/healthz").find("200 OK"), std::string::npos);
  EXPECT_NE(refusal().find("another process listens on"), std::string::npos);
  EXPECT_NE(ask("GET", "/healthz").find("200 OK"), std::string::npos);
}

TEST_F(AdminListener, a_file_in_its_place_is_left_alone) {
  std::ofstream{path()} << "data";
  EXPECT_NE(refusal().find("exists and is not a socket"), std::string::npos);
  EXPECT_EQ(test::read_file(path()), "data");
}

TEST_F(AdminListener, its_end_removes_the_socket_unless_it_is_somebody_elses) {
  listen();
  listener->stop();
  EXPECT_NE(::access(path().c_str(), F_OK), 0);
  listener.reset();
  listen();
  ASSERT_EQ(::unlink(path().c_str()), 0);
  std::ofstream{path()} << "of another process";
  listener.reset();
  EXPECT_EQ(::access(path().c_str(), F_OK), 0);
}

TEST_F(AdminListener, its_end_does_not_wait_for_a_client) {
  listen();
  const RawClient idle{path()};
  const RawClient half{path()};
  half.send("POST /v1/clear HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
  options.command_deadline = std::chrono::hours{1};
  listener.reset();
  EXPECT_EQ(idle.rest(), "");
}

TEST_F(AdminListener, tcp_needs_a_token_and_is_for_this_machine_only) {
  options.listen = "tcp:127.0.0.1:0";
  EXPECT_NE(refusal().find("needs admin.token-file"), std::string::npos);
  options.token_file = directory.write("token", "short\n");
  ASSERT_EQ(::chmod(options.token_file.c_str(), 0600), 0);
  EXPECT_NE(refusal().find("at least 16 characters, this has 5"), std::string::npos);
  options.token_file = directory.write("token", "0123456789abcdef\n");
  ASSERT_EQ(::chmod(options.token_file.c_str(), 0644), 0);
  EXPECT_NE(refusal().find("chmod 600"), std::string::npos);
  ASSERT_EQ(::chmod(options.token_file.c_str(), 0600), 0);
  listen();
  EXPECT_TRUE(listener->address().starts_with("tcp:127.0.0.1:"));
  EXPECT_FALSE(listener->address().ends_with(":0"));
  options.listen = listener->address();
  EXPECT_NE(refusal().find("in use"), std::string::npos);
}

TEST(AdminAddress, is_read_and_written) {
  for (const char* text : {"unix:/run/x.sock", "unix:", "tcp:127.0.0.1:9464", "tcp:[::1]:0"}) {
    EXPECT_EQ(to_string(parse_address(text)), text);
  }
  EXPECT_EQ(parse_address("tcp:localhost:80").host, "127.0.0.1");
}

TEST(AdminAddress, refuses_what_is_none) {
  const std::string long_path(108, 'x');
  for (const std::string& text :
       std::vector<std::string>{"", "/run/x.sock", "tcp:", "tcp:127.0.0.1", "tcp:127.0.0.1:", "tcp:127.0.0.1:x",
                                "tcp:127.0.0.1:70000", "tcp:0.0.0.0:80", "tcp:10.0.0.1:80", "http://x", "unix:" + long_path}) {
    EXPECT_THROW((void)parse_address(text), std::invalid_argument) << text;
  }
}

/// The folder for sockets is in a directory of the test.
class AdminFolder : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("XDG_RUNTIME_DIR", directory.path().c_str(), 1); }
  void TearDown() override {
    program_invocation_short_name = program;
    if (before) ::setenv("XDG_RUNTIME_DIR", before->c_str(), 1);
    else ::unsetenv("XDG_RUNTIME_DIR");
  }
  [[nodiscard]] std::string refusal() const {
    return test::refusal_of<std::runtime_error>([&] {
      (void)live_sockets(admin_folder());
      (void)new_socket_name();
    });
  }

  test::TemporaryDirectory directory;
  std::optional<std::string> before = [] {
    const char* const now = std::getenv("XDG_RUNTIME_DIR");
    return now == nullptr ? std::nullopt : std::optional<std::string>{now};
  }();
  char* program = program_invocation_short_name;
};

TEST_F(AdminFolder, is_made_for_its_user_alone) {
  EXPECT_EQ(admin_folder(), directory.path() / "terrace");
  const std::filesystem::path first = new_socket_name();
  EXPECT_EQ(first.parent_path(), admin_folder());
  EXPECT_NE(first, new_socket_name());
  struct stat info {};
  ASSERT_EQ(::stat(admin_folder().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
}

TEST_F(AdminFolder, of_somebody_else_is_not_trusted) {
  EXPECT_TRUE(live_sockets(admin_folder()).empty()) << "there is none";
  (void)new_socket_name();
  EXPECT_EQ(refusal(), "");
  ASSERT_EQ(::chmod(admin_folder().c_str(), 0777), 0);
  EXPECT_NE(refusal().find("is one in which other users can write"), std::string::npos) << refusal();
  ASSERT_EQ(::chmod(admin_folder().c_str(), 0700), 0);
  std::filesystem::rename(admin_folder(), directory.path() / "real");
  std::filesystem::create_symlink(directory.path() / "real", admin_folder());
  EXPECT_NE(refusal().find("is not a folder"), std::string::npos) << refusal();
  std::filesystem::remove(admin_folder());
  std::filesystem::rename(directory.path() / "real", admin_folder());
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give it to another user";
  ASSERT_EQ(::chown(admin_folder().c_str(), 65534, 65534), 0);
  EXPECT_NE(refusal().find("belongs to user 65534"), std::string::npos) << refusal();
}

TEST_F(AdminFolder, keeps_sockets_of_living_processes_only) {
  const std::filesystem::path dead = new_socket_name();
  const std::filesystem::path living = new_socket_name();
  ::close(listen_on(dead));
  const int listening = listen_on(living);
  std::ofstream{admin_folder() / "file"} << "data";
  EXPECT_EQ(live_sockets(admin_folder()), std::vector{living});
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(std::filesystem::exists(admin_folder() / "file"));
  ::close(listening);
  (void)new_socket_name();
  EXPECT_FALSE(std::filesystem::exists(living)) << "a start removes them, too";
}

TEST_F(AdminFolder, names_a_socket_by_what_is_left_of_the_name_of_the_program) {
  for (auto [name, begin] : {std::pair<std::string, std::string>{"", "process-"},
                             {"VLLM::Engine/..", "VLLM--Engine-..-"},
                             {"\x1b[2J", "--2J-"},
                             {"::", "process-"}}) {
    program_invocation_short_name = name.data();
    const std::filesystem::path path = new_socket_name();
    EXPECT_EQ(path.parent_path(), admin_folder()) << name;
    EXPECT_TRUE(path.filename().string().starts_with(begin + std::to_string(::getpid()))) << path;
  }
}

TEST_F(AdminFolder, whose_name_is_too_long_for_a_socket_is_refused) {
  const std::string deep = (directory.path() / std::string(100, 'x')).string();
  ASSERT_TRUE(std::filesystem::create_directory(deep));
  ::setenv("XDG_RUNTIME_DIR", deep.c_str(), 1);
  EXPECT_THROW((void)listen_on(new_socket_name()), std::invalid_argument);
}

}  // namespace
}  // namespace terrace::admin
