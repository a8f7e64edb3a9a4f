// The contract of shared stores over real servers: a single one, one with TLS and a user with few rights, and a cluster. All
// cases share them, because a cluster takes seconds to start.

#include "storage/redis/redis_shared_store.hpp"
#include "tests/redis/server/real_server.hpp"
#include "tests/storage/shared/shared_store_contract.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace terrace::contract {
namespace {

/// One server or several, and three users.
class RealHarness : public SharedStoreHarness {
 public:
  [[nodiscard]] SharedStore& user(std::size_t n) override { return *users_[n]; }
  void end_user() override { users_[0].reset(); }
  [[nodiscard]] TimePoint now() const override { return clock_.now(); }
  void pass() override { std::this_thread::sleep_for(std::chrono::milliseconds{1}); }
  /// Unless the servers stand still, their values become older at once: no test is so slow that one expires too early.
  void pass(Duration time) override {
    if (stalled_) std::this_thread::sleep_for(time);
    else
      for (RealServer* const server : servers()) make_older(*server, std::chrono::round<std::chrono::milliseconds>(time));
  }
  [[nodiscard]] Duration expiry() const override { return std::chrono::minutes{10}; }
  void await_renewal(const std::string& name) override {
    // A value that has just become older has two thirds of its time left.
    const std::int64_t renewed = std::chrono::round<std::chrono::milliseconds>(expiry()).count() * 3 / 4;
    ASSERT_TRUE(comes_true([&] { return command({"PTTL", name}).integer > renewed; }));
  }
  void change(const std::string& name, const std::function<void(Value&)>& how) override {
    const RespValue reply = command({"GET", name});
    Value value;
    for (const char c : reply.text) value.push_back(static_cast<std::byte>(c));
    how(value);
    if (value.empty()) (void)command({"DEL", name});
    else (void)command({"SET", name, {reinterpret_cast<const char*>(value.data()), value.size()}, "KEEPTTL"});
  }
  void set_full(bool full) override {
    for (RealServer* const server : servers()) {
      (void)server->command({"CONFIG", "SET", "maxmemory", full ? "1" : "0"});
    }
  }
  void stall(bool stalled) override {
    stalled_ = stalled;
    for (RealServer* const server : servers()) stalled ? server->stop() : server->go_on();
  }

 protected:
  [[nodiscard]] virtual std::vector<RealServer*> servers() = 0;
  [[nodiscard]] virtual RespValue command(std::initializer_list<std::string_view> words) = 0;
  void make_users(const std::string& url, bool sealed, const std::string& ca_file = "") {
    for (RealServer* const server : servers()) make_empty(*server);
    for (std::size_t n = 0; n < 3; ++n) {
      RedisOptions options = parse_redis_url(url);
      options.ca_file = ca_file;
      options.prefix = contract_prefix;
      options.expiry.after = expiry();
      options.connect_timeout = patience;  // on a busy machine
      std::shared_ptr<const SharedSecret> secret;
      if (sealed) secret = n < 2 ? secret_of() : secret_of("another secret, of another deployment");
      users_.push_back(open_redis_store(options, nullptr, secret));
    }
  }

 private:
  /// Undoes what the case before has done.
  static void make_empty(RealServer& server) {
    server.go_on();
    const bool alone = comes_true([&] {
      return server.command({"INFO", "clients"}).text.find("connected_clients:1\r") != std::string::npos;
    });
    if (!alone) throw std::runtime_error{"a user of the case before is still there"};
    (void)server.command({"CONFIG", "SET", "maxmemory", "0"});
    (void)server.command({"FLUSHALL"});
  }
  static void make_older(RealServer& server, std::chrono::milliseconds time) {
    for (const RespValue& key : server.command({"KEYS", "*"}).items) {
      const std::int64_t left = server.command({"PTTL", key.text}).integer;
      if (left < 0) continue;  // it does not expire, or has just done so
      const std::int64_t new_left = std::max<std::int64_t>(1, left - time.count());
      (void)server.command({"PEXPIRE", key.text, std::to_string(new_left)});
      if (new_left > 1) continue;
      ASSERT_TRUE(comes_true([&] { return server.command({"EXISTS", key.text}).integer == 0; }));
    }
  }

  SteadyClock clock_;
  std::vector<std::unique_ptr<SharedStore>> users_;
  bool stalled_ = false;
};

/// The servers of one kind, for all cases.
template <class Servers>
Servers& shared() {
  static Servers servers;
  return servers;
}

class SingleHarness : public RealHarness {
 public:
  explicit SingleHarness(bool sealed) { make_users("redis://" + server_.host(), sealed); }

 protected:
  [[nodiscard]] std::vector<RealServer*> servers() override { return {&server_}; }
  [[nodiscard]] RespValue command(std::initializer_list<std::string_view> words) override { return server_.command(words); }

 private:
  RealServer& server_ = shared<RealServer>();
};

/// Its nodes never take each other for lost, though they stand still for a while.
struct PatientCluster : RealCluster {
  PatientCluster() : RealCluster{3, false, {"--cluster-node-timeout", "60000"}} {}
};

/// A server with TLS.
struct TlsServer {
  Certificates certificates;
  std::uint16_t tls_port = free_port();
  RealServer server{{"--tls-port", std::to_string(tls_port), "--tls-cert-file", certificates.file("server.pem"), "--tls-key-file",
                     certificates.file("server.key"), "--tls-ca-cert-file", certificates.file("ca.pem"), "--tls-auth-clients",
                     "no"}};
};

/// The users have all that they need, and nothing else.
class TlsHarness : public RealHarness {
 public:
  explicit TlsHarness(bool sealed) {
    (void)tls_.server.command({"ACL", "SETUSER", "terrace", "on", ">a pass:word@", "~contract:*", "resetchannels", "-@all",
                               "+get", "+set", "+exists", "+pexpire", "+unlink"});
    make_users("rediss://terrace:a pass%3Aword@@127.0.0.1:" + std::to_string(tls_.tls_port), sealed,
               tls_.certificates.file("ca.pem"));
  }

 protected:
  [[nodiscard]] std::vector<RealServer*> servers() override { return {&tls_.server}; }
  [[nodiscard]] RespValue command(std::initializer_list<std::string_view> words) override { return tls_.server.command(words); }

 private:
  TlsServer& tls_ = shared<TlsServer>();
};

class ClusterHarness : public RealHarness {
 public:
  explicit ClusterHarness(bool sealed) { make_users(cluster_.url(), sealed); }

 protected:
  [[nodiscard]] std::vector<RealServer*> servers() override { return {&cluster_.node(0), &cluster_.node(1), &cluster_.node(2)}; }
  [[nodiscard]] RespValue command(std::initializer_list<std::string_view> words) override {
    return cluster_.command(*(words.begin() + 1), words);
  }

 private:
  RealCluster& cluster_ = shared<PatientCluster>();
};

template <class Harness>
std::unique_ptr<SharedStoreHarness> make(bool sealed) {
  return std::make_unique<Harness>(sealed);
}

std::vector<SharedStoreKind> kinds() {
  if (redis_program().empty()) return {};
  return {{"Single", false, make<SingleHarness>},
          {"SingleSealed", true, make<SingleHarness>},
          {"Tls", false, make<TlsHarness>},
          {"Cluster", false, make<ClusterHarness>}};
}

INSTANTIATE_TEST_SUITE_P(Redis, SharedStoreContract, testing::ValuesIn(kinds()),
                         [](const auto& kind) { return kind.param.name; });

/// Without a server, the cases of SharedStoreContract above do not exist; then this one says so.
TEST(RedisContract, runs_against_real_servers_of_every_kind) {
  TERRACE_NEEDS_REDIS();
  for (const SharedStoreKind& kind : kinds()) {
    const std::unique_ptr<SharedStoreHarness> harness = kind.make(kind.sealed);
    EXPECT_NE(harness, nullptr) << kind.name;
  }
  EXPECT_EQ(kinds().size(), 4U);
}

}  // namespace
}  // namespace terrace::contract
