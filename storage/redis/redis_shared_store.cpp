#include "storage/redis/redis_shared_store.hpp"

#include "base/completion_queue.hpp"
#include "base/thread.hpp"
#include "storage/redis/operation.hpp"
#include "storage/redis/redis_client.hpp"
#include "storage/redis/socket_transport.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace terrace {
namespace {

namespace asio = boost::asio;

/// Wakes whoever is to be woken now.
class CurrentWaker final : public Waker {
 public:
  explicit CurrentWaker(Waker* waker) : waker_{waker} {}
  void set(Waker* waker) {
    const std::lock_guard lock{mutex_};
    waker_ = waker;
  }
  void wake() noexcept override {
    const std::lock_guard lock{mutex_};
    if (waker_ != nullptr) waker_->wake();
  }

 private:
  std::mutex mutex_;
  Waker* waker_;
};

/// One call of the store, on its way to the thread.
struct Order {
  enum class Kind : std::uint8_t { probe, read, write, renew, remove, cancel };
  Kind kind = Kind::cancel;
  std::uint64_t token = 0;
  TimePoint deadline = never;
  GroupId group{};
  std::vector<BlockKey> keys{};       ///< probe, remove
  std::vector<StoredBlock> blocks{};  ///< renew
  StoredBlock block{};                ///< read, write
  std::span<std::byte> into{};
  std::span<const std::byte> from{};
  std::shared_ptr<const RedisMeaning> meaning{};
};

/// The descriptor of an Asio loop that reads it must not be closed by Asio.
struct BorrowedDescriptor {
  BorrowedDescriptor(asio::io_context& loop, int fd) : descriptor{loop, fd} {}
  ~BorrowedDescriptor() { descriptor.release(); }
  asio::posix::stream_descriptor descriptor;
};

}  // namespace

class RedisSharedStore::Engine {
 public:
  Engine(RedisOptions options, Waker* waker, std::shared_ptr<const SharedSecret> secret)
      : options_{std::move(options)},
        waker_{waker},
        events_{options_.operations_max, 1, waker_},
        event_producer_{events_},
        orders_{options_.operations_max, 1, order_waker_},
        order_producer_{orders_},
        order_arrival_{loop_, order_waker_.fd()},
        timer_{loop_},
        transport_{loop_, options_, [this] { publish(); }},
        client_{options_, transport_, clock_, std::move(secret)},
        meaning_{std::make_shared<const RedisMeaning>(options_.prefix, Fingerprint{})} {
    transport_.serve(client_);
    client_.tick();
    publish();
    wait_for_orders();
    thread_ = start_thread("terrace-redis", [this] { loop_.run(); });
  }

  ~Engine() {
    loop_.stop();
    thread_.join();
  }

  // ---- the caller's thread

  void use(const Fingerprint& fingerprint) { meaning_ = std::make_shared<const RedisMeaning>(options_.prefix, fingerprint); }

  /// Adds an order that ends in an event. Too much under way: it ends now.
  void add(Order order, SharedEvent::Kind kind) {
    const std::uint64_t bytes = order.into.size() + order.from.size();
    const bool fits = in_flight_ < options_.operations_max && bytes <= shared_block_bytes_max &&
                      bytes_in_flight_.load(std::memory_order_relaxed) + bytes <= count(options_.bytes_max);
    ++in_flight_;
    if (!fits) {
      declined_.fetch_add(1, std::memory_order_relaxed);
      at_once_.push_back({kind, order.token, Errc::refused});
      return;
    }
    bytes_in_flight_.fetch_add(bytes, std::memory_order_relaxed);
    order.meaning = meaning_;
    order_producer_.push_quietly(std::move(order));
  }
  /// Adds an order that nobody hears of.
  void add(Order order) {
    order.meaning = meaning_;
    order_producer_.push_quietly(std::move(order));
  }
  void added() {
    order_producer_.wake();
    if (!at_once_.empty()) waker_.wake();
  }

  std::size_t poll(std::vector<SharedEvent>& out) {
    const std::size_t before = out.size();
    out.insert(out.end(), at_once_.begin(), at_once_.end());
    at_once_.clear();
    events_.drain(out);
    in_flight_ -= out.size() - before;
    return out.size() - before;
  }
  [[nodiscard]] std::size_t in_flight() const { return in_flight_; }
  void set_waker(Waker* waker) { waker_.set(waker); }

  // ---- any thread

  [[nodiscard]] bool usable() const { return usable_.load(std::memory_order_acquire); }
  [[nodiscard]] SharedHealth health() const {
    const std::lock_guard lock{mutex_};
    return health_;
  }
  [[nodiscard]] SharedStoreStat stat() const {
    const std::lock_guard lock{mutex_};
    SharedStoreStat stat = stat_;
    stat.declined += declined_.load(std::memory_order_relaxed);
    return stat;
  }

 private:
  /// How old the counts may be in the health that others see. All else in it is of now.
  static constexpr Duration health_age = std::chrono::milliseconds{10};

  // ---- the thread of the store

  void wait_for_orders() {
    order_arrival_.descriptor.async_wait(asio::posix::descriptor_base::wait_read, [this](const ErrorCode& error) {
      if (error) return;
      order_waker_.acknowledge();
      taken_.clear();
      orders_.drain(taken_);
      for (Order& order : taken_) carry_out(std::move(order));
      client_.tick();
      publish();
      wait_for_orders();
    });
  }

  void carry_out(Order order) {
    switch (order.kind) {
      case Order::Kind::probe:
        client_.begin(std::make_shared<RedisProbeOperation>(client_, order.token, std::move(order.keys), order.group,
                                                            order.deadline, std::move(order.meaning)));
        return;
      case Order::Kind::read: {
        const SharedRead read{order.token, order.block, order.into, order.deadline};
        client_.begin(std::make_shared<RedisBlockOperation>(client_, read, std::move(order.meaning)));
        return;
      }
      case Order::Kind::write: {
        const SharedWrite write{order.token, order.block, order.from, order.deadline};
        client_.begin(std::make_shared<RedisBlockOperation>(client_, write, std::move(order.meaning)));
        return;
      }
      case Order::Kind::renew: client_.renew(order.blocks, *order.meaning); return;
      case Order::Kind::remove: client_.remove(order.keys, order.group, *order.meaning); return;
      case Order::Kind::cancel: client_.cancel(order.token); return;
    }
  }

  /// Passes on what the client has to say, and sets the timer.
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
    // A timer that is too early costs less than one that is set anew each time.
    if (next >= timer_at_) return;
    timer_at_ = next;
    timer_.expires_at(std::max(next, TimePoint{}));
    timer_.async_wait([this](const ErrorCode& error) {
      if (error) return;
      timer_at_ = never;
      client_.tick();
      publish();
    });
  }

  const RedisOptions options_;
  const SteadyClock clock_;
  CurrentWaker waker_;
  CompletionQueue<SharedEvent> events_;
  CompletionQueue<SharedEvent>::Producer event_producer_;
  EventFdWaker order_waker_;
  CompletionQueue<Order> orders_;
  CompletionQueue<Order>::Producer order_producer_;

  // The thread of the store.
  asio::io_context loop_{1};
  BorrowedDescriptor order_arrival_;
  asio::steady_timer timer_;
  TimePoint timer_at_ = never;
  SocketTransport transport_;
  RedisClient client_;
  std::vector<Order> taken_;
  std::vector<SharedEvent> ended_;
  TimePoint health_at_{};
  std::uint64_t health_changes_ = 0;
  bool health_stale_ = false;

  // The caller's thread.
  std::shared_ptr<const RedisMeaning> meaning_;
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

RedisSharedStore::RedisSharedStore(RedisOptions options, Waker* waker, std::shared_ptr<const SharedSecret> secret) {
  // The password may come from elsewhere than the URL.
  if (!options.user.empty() && options.password.empty()) {
    throw std::invalid_argument{"the shared store: the user " + options.user + " has no password"};
  }
  engine_ = std::make_unique<Engine>(std::move(options), waker, std::move(secret));
}

RedisSharedStore::~RedisSharedStore() = default;

void RedisSharedStore::use(const Fingerprint& fingerprint) { engine_->use(fingerprint); }

void RedisSharedStore::probe(const SharedProbe& probe) {
  Order order{.kind = Order::Kind::probe, .token = probe.token, .deadline = probe.deadline, .group = probe.group};
  order.keys.assign(probe.keys.begin(), probe.keys.end());
  engine_->add(std::move(order), SharedEvent::Kind::probed);
  engine_->added();
}

void RedisSharedStore::read(std::span<const SharedRead> batch) {
  for (const SharedRead& read : batch) {
    Order order{.kind = Order::Kind::read, .token = read.token, .deadline = read.deadline, .block = read.block};
    order.into = read.into;
    engine_->add(std::move(order), SharedEvent::Kind::read);
  }
  engine_->added();
}

void RedisSharedStore::write(std::span<const SharedWrite> batch) {
  for (const SharedWrite& write : batch) {
    Order order{.kind = Order::Kind::write, .token = write.token, .deadline = write.deadline, .block = write.block};
    order.from = write.from;
    engine_->add(std::move(order), SharedEvent::Kind::written);
  }
  engine_->added();
}

void RedisSharedStore::renew(std::span<const StoredBlock> blocks) {
  Order order{.kind = Order::Kind::renew};
  order.blocks.assign(blocks.begin(), blocks.end());
  engine_->add(std::move(order));
  engine_->added();
}

void RedisSharedStore::remove(std::span<const BlockKey> keys, GroupId group) {
  Order order{.kind = Order::Kind::remove, .group = group};
  order.keys.assign(keys.begin(), keys.end());
  engine_->add(std::move(order));
  engine_->added();
}

void RedisSharedStore::cancel(std::uint64_t token) {
  engine_->add({.kind = Order::Kind::cancel, .token = token});
  engine_->added();
}

std::size_t RedisSharedStore::poll(std::vector<SharedEvent>& out) { return engine_->poll(out); }
std::size_t RedisSharedStore::in_flight() const { return engine_->in_flight(); }
void RedisSharedStore::set_waker(Waker* waker) { engine_->set_waker(waker); }
bool RedisSharedStore::usable() const { return engine_->usable(); }
SharedHealth RedisSharedStore::health() const { return engine_->health(); }
SharedStoreStat RedisSharedStore::stat() const { return engine_->stat(); }

}  // namespace terrace
