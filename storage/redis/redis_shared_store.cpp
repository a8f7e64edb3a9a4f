#include "storage/redis/redis_shared_store.hpp"

#include "base/completion_queue.hpp"
#include "base/thread.hpp"
#include "base/waker.hpp"
#include "storage/redis/redis_client.hpp"
#include "storage/redis/socket_transport.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace terrace {
namespace {

namespace asio = boost::asio;

class RedisSharedStore final : public SharedStore {
 public:
  RedisSharedStore(RedisOptions options, Waker* waker, std::shared_ptr<const SharedSecret> secret)
      : options_{std::move(options)},
        events_{options_.operations_max, 1, waker_},
        event_producer_{events_},
        timer_{loop_},
        transport_{loop_, options_},
        client_{options_, transport_, clock_, std::move(secret), [this] { publish(); }} {
    waker_.set(waker);
    RedisSharedStore::use({});
    transport_.serve(client_);
    client_.tick();
    thread_ = start_thread("terrace-redis", [this] { loop_.run(); });
  }

  ~RedisSharedStore() override {
    loop_.stop();
    thread_.join();
  }

  // ---- the caller's thread

  void use(const Fingerprint& fingerprint) override {
    fingerprint_ = fingerprint;
    names_ = std::make_shared<const SharedValueNames>(options_.prefix, fingerprint);
  }

  void probe(const SharedProbe& probe) override { begin(std::span{&probe, 1}); }
  void read(std::span<const SharedRead> batch) override { begin(batch); }
  void write(std::span<const SharedWrite> batch) override { begin(batch); }
  void renew(std::span<const StoredBlock> blocks) override {
    hand_over(
        [this, all = std::vector<StoredBlock>(blocks.begin(), blocks.end()), names = names_] { client_.renew(all, *names); });
  }
  void remove(std::span<const BlockKey> keys, GroupId group) override {
    hand_over([this, all = std::vector<BlockKey>(keys.begin(), keys.end()), group, names = names_] {
      client_.remove(all, group, *names);
    });
  }
  void cancel(std::uint64_t token) override {
    hand_over([this, token] { client_.cancel(token); });
  }

  std::size_t poll(std::vector<SharedEvent>& out) override {
    const std::size_t before = out.size();
    out.insert(out.end(), at_once_.begin(), at_once_.end());
    at_once_.clear();
    events_.drain(out);
    in_flight_ -= out.size() - before;
    return out.size() - before;
  }
  [[nodiscard]] std::size_t in_flight() const override { return in_flight_; }
  void set_waker(Waker* waker) override { waker_.set(waker); }

  // ---- any thread

  [[nodiscard]] bool usable() const override { return usable_.load(std::memory_order_acquire); }
  [[nodiscard]] SharedHealth health() const override {
    const std::lock_guard lock{mutex_};
    return health_;
  }
  [[nodiscard]] SharedStoreStat stat() const override {
    const std::lock_guard lock{mutex_};
    SharedStoreStat stat = stat_;
    stat.declined += declined_.load(std::memory_order_relaxed);
    return stat;
  }

 private:
  /// The largest age of the counts in the published health. All other data in it is current.
  static constexpr Duration health_age = std::chrono::milliseconds{10};

  // ---- the caller's thread

  /// Counts an order that ends in an event. Returns false if too much is under way; then the order has ended.
  [[nodiscard]] bool admit(const KeptOperation& order) {
    const std::uint64_t bytes = order.block_bytes();
    const bool fits = in_flight_ < options_.operations_max && bytes <= shared_block_bytes_max &&
                      bytes_in_flight_.load(std::memory_order_relaxed) + bytes <= count(options_.bytes_max);
    ++in_flight_;
    if (fits) {
      bytes_in_flight_.fetch_add(bytes, std::memory_order_relaxed);
      return true;
    }
    declined_.fetch_add(1, std::memory_order_relaxed);
    at_once_.push_back({order.kind, order.token, Errc::refused});
    waker_.wake();
    return false;
  }

  template <class Operation>
  void begin(std::span<const Operation> batch) {
    std::vector<KeptOperation> admitted;
    admitted.reserve(batch.size());
    for (const Operation& each : batch) {
      KeptOperation order = KeptOperation::of(each, fingerprint_);
      if (admit(order)) admitted.push_back(std::move(order));
    }
    if (admitted.empty()) return;
    hand_over([this, admitted = std::move(admitted), names = names_]() mutable {
      for (KeptOperation& order : admitted) client_.begin(std::move(order), names);
    });
  }

  /// Calls the client on its thread.
  template <class Order>
  void hand_over(Order order) {
    asio::post(loop_, [this, order = std::move(order)]() mutable {
      order();
      // Orders that have arrived meanwhile come first in the loop's queue, so that small commands are sent together.
      if (std::exchange(tick_is_due_, true)) return;
      asio::post(loop_, [this] {
        tick_is_due_ = false;
        client_.tick();
      });
    });
  }

  // ---- the thread of the store

  /// Publishes the client's events and state, and sets the timer.
  void publish() {
    const TimePoint now = clock_.now();
    const bool usable = client_.usable();
    const std::uint64_t changes = client_.health_changes();
    const bool new_health = changes != health_changes_ || now >= health_at_ + health_age;
    health_stale_ = !new_health;
    health_changes_ = changes;
    if (new_health) health_at_ = now;
    client_.take_events(ended_);
    bytes_in_flight_.fetch_sub(client_.take_bytes_ended(), std::memory_order_relaxed);
    {
      SharedHealth health;
      if (new_health) health = client_.health();
      const std::lock_guard lock{mutex_};
      stat_ = client_.stat();
      if (new_health) health_ = std::move(health);
    }
    usable_.store(usable, std::memory_order_release);
    for (const SharedEvent& event : ended_) event_producer_.push_quietly(event);
    if (!ended_.empty()) event_producer_.wake();
    set_timer();
  }

  void set_timer() {
    TimePoint next = client_.next_deadline();
    if (health_stale_) next = std::min(next, health_at_ + health_age);
    // A timer that expires too early costs less than setting the timer each time.
    if (next >= timer_at_) return;
    timer_at_ = next;
    timer_.expires_at(std::max(next, TimePoint{}));
    timer_.async_wait([this](const ErrorCode& error) {
      if (error) return;
      timer_at_ = never;
      client_.tick();
    });
  }

  const RedisOptions options_;
  const SteadyClock clock_;
  WakerRelay waker_;
  CompletionQueue<SharedEvent> events_;
  CompletionQueue<SharedEvent>::Producer event_producer_;

  // The thread of the store.
  asio::io_context loop_{1};
  const asio::executor_work_guard<asio::io_context::executor_type> work_{loop_.get_executor()};  ///< without it, run() would end
  asio::steady_timer timer_;
  TimePoint timer_at_ = never;
  SocketTransport transport_;
  RedisClient client_;
  bool tick_is_due_ = false;
  std::vector<SharedEvent> ended_;
  TimePoint health_at_{};
  std::uint64_t health_changes_ = 0;
  bool health_stale_ = false;

  // The caller's thread.
  Fingerprint fingerprint_{};
  std::shared_ptr<const SharedValueNames> names_;  ///< for this fingerprint
  std::size_t in_flight_ = 0;
  std::vector<SharedEvent> at_once_;

  std::atomic<std::uint64_t> bytes_in_flight_{0};
  std::atomic<std::uint64_t> declined_{0};
  std::atomic<bool> usable_{false};
  mutable std::mutex mutex_;
  SharedHealth health_;   ///< guarded by mutex_
  SharedStoreStat stat_;  ///< guarded by mutex_
  std::thread thread_;
};

}  // namespace

std::unique_ptr<SharedStore> open_redis_store(RedisOptions options, Waker* waker, std::shared_ptr<const SharedSecret> secret) {
  if (!SharedValueNames::is_prefix(options.prefix)) {
    throw std::invalid_argument{"the shared store: prefix has 1 to 64 letters, digits or characters of -_.:/"};
  }
  // The password may come from another place than the URL.
  if (!options.user.empty() && options.password.empty() && options.password_file.empty()) {
    throw std::invalid_argument{"the shared store: the user " + options.user + " has no password"};
  }
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    // The remaining descriptors are for files and for other parts of this process.
    const rlim_t share = std::max<rlim_t>(descriptors.rlim_cur / 4, 8);
    options.connections_max = static_cast<std::uint32_t>(std::min<rlim_t>(options.connections_max, share));
  }
  return std::make_unique<RedisSharedStore>(std::move(options), waker, std::move(secret));
}

}  // namespace terrace
