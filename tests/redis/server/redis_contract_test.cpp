// The contract of shared stores over real servers: a single one, one with TLS and a user with few rights, and a cluster.

#include "storage/redis/redis_shared_store.hpp"
#include "tests/redis/server/real_server.hpp"
#include "tests/storage/shared/shared_store_contract.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace terrace::contract {
namespace {

/// One server or several, and three users.
class RealHarness : public SharedStoreHarness {
 public:
  [[nodiscard]] SharedStore& user(std::size_t n) override { return *users_[n]; }
  void end_user() override { users_[0].reset(); }
  [[nodiscard]] TimePoint now() const override { return clock_.now(); }
  void pass() override { std::this_thread::sleep_for(std::chrono::milliseconds{1}); }
  void pass(Duration time) override { std::this_thread::sleep_for(time); }
  [[nodiscard]] Duration expiry() const override { return std::chrono::milliseconds{2000}; }
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
    for (RealServer* const server : servers()) stalled ? server->stop() : server->go_on();
  }

 protected:
  [[nodiscard]] virtual std::vector<RealServer*> servers() = 0;
  [[nodiscard]] virtual RespValue command(std::initializer_list<std::string_view> words) = 0;
  void make_users(const std::string& url, bool sealed) {
    for (std::size_t n = 0; n < 3; ++n) {
      RedisOptions options = parse_redis_url(url);
      options.prefix = contract_prefix;
      options.expiry.after = expiry();
      options.connect_timeout = std::chrono::seconds{30};  // on a busy machine
      std::shared_ptr<const SharedSecret> secret;
      if (sealed) secret = n < 2 ? secret_of() : secret_of("another secret, of another deployment");
      users_.push_back(open_redis_store(options, nullptr, secret));
    }
  }

 private:
  SteadyClock clock_;
  std::vector<std::unique_ptr<SharedStore>> users_;
};

class SingleHarness : public RealHarness {
 public:
  explicit SingleHarness(bool sealed) { make_users("redis://" + server_.host(), sealed); }

 protected:
  [[nodiscard]] std::vector<RealServer*> servers() override { return {&server_}; }
  [[nodiscard]] RespValue command(std::initializer_list<std::string_view> words) override { return server_.command(words); }

 private:
  RealServer server_;
};

/// The users have all that they need, and nothing else.
class TlsHarness : public RealHarness {
 public:
  explicit TlsHarness(bool sealed) {
    (void)server_.command({"ACL", "SETUSER", "terrace", "on", ">a pass:word@", "~contract:*", "resetchannels", "-@all", "+get",
                           "+set", "+exists", "+pexpire", "+unlink"});
    make_users(
        "rediss://terrace:a pass%3Aword@@127.0.0.1:" + std::to_string(tls_port_) + "?ca_file=" + certificates_.file("ca.pem"),
        sealed);
  }

 protected:
  [[nodiscard]] std::vector<RealServer*> servers() override { return {&server_}; }
  [[nodiscard]] RespValue command(std::initializer_list<std::string_view> words) override { return server_.command(words); }

 private:
  Certificates certificates_;
  std::uint16_t tls_port_ = free_port();
  RealServer server_{{"--tls-port", std::to_string(tls_port_), "--tls-cert-file", certificates_.file("server.pem"),
                      "--tls-key-file", certificates_.file("server.key"), "--tls-ca-cert-file", certificates_.file("ca.pem"),
                      "--tls-auth-clients", "no"}};
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
  RealCluster cluster_;
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

TEST(RedisContract, runs_where_there_is_a_server) { TERRACE_NEEDS_REDIS(); }

}  // namespace
}  // namespace terrace::contract
