#include "terrace/tier_store.hpp"

#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/waker.hpp"
#include "runtime/admin/listener.hpp"
#include "runtime/admin/mailbox.hpp"
#include "runtime/engine/idle/idle_service.hpp"
#include "runtime/shared/block_layout.hpp"
#include "runtime/store/admin_subject.hpp"
#include "runtime/store/layered_store.hpp"
#include "runtime/store/tier_batches.hpp"
#include "storage/file/file_store.hpp"
#include "storage/io/end_within.hpp"
#include "storage/io/make_io_engine.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "terrace/block_store.hpp"
#include "terrace/keys.hpp"
#include "terrace/turn.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <new>
#include <stdexcept>
#include <utility>

namespace terrace {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span{text}); }

TierLimits limits_of(const TierStoreOptions& options) {
  const auto positive = [](std::uint32_t number, const char* name) {
    if (number == 0) throw std::invalid_argument{fmt::format("tier store: {} must be at least 1", name)};
    return number;
  };
  if (options.erase_max <= Duration::zero()) throw std::invalid_argument{"tier store: erase_max must be positive"};
  if (options.flush_interval < Duration::zero()) throw std::invalid_argument{"tier store: flush_interval must not be negative"};
  return {.blocks_max = positive(options.blocks_max.value(), "blocks_max"),
          .gets_under_way_max = positive(options.gets_under_way_max.value(), "gets_under_way_max"),
          .puts_under_way_max = positive(options.puts_under_way_max.value(), "puts_under_way_max"),
          .events_max = positive(options.events_max, "events_max"),
          .flush_interval = options.flush_interval};
}

FileStoreConfig store_config(const TierStoreOptions& options) {
  if (options.directories.empty()) throw std::invalid_argument{"tier store: at least one directory is needed"};
  FileStoreConfig config;
  config.directory = options.directories.front();
  config.more_directories.assign(options.directories.begin() + 1, options.directories.end());
  config.name = options.name;
  config.stripe_bytes = options.stripe_bytes;
  config.accept_lost_directories = options.accept_lost_directories;
  config.capacity = options.capacity;
  config.block_bytes = options.block_bytes;
  config.fingerprint = options.fingerprint;
  config.label = options.label;
  config.floor = options.floor;
  config.writes_max = std::max(config.writes_max, options.puts_under_way_max.value());
  return config;
}

IoOptions io_options(const TierStoreOptions& options) {
  IoOptions io;
  io.choice = options.io;
  io.threads.threads = options.io_threads;
  io.threads.bandwidth = options.bandwidth;
  return io;
}

}  // namespace

/// Members are constructed in this order and destroyed in reverse.
struct TierStore::Parts {
  explicit Parts(const TierStoreOptions& options) : log{options.log, clock} {
    const TierLimits limits = limits_of(options);
    if (options.idle_service) idle.emplace(clock, waker);
    begin_admin(options.admin);
    if (options.store) {
      store = options.store;
      if (store->block_bytes() != options.block_bytes) {
        throw std::invalid_argument{fmt::format("tier store: blocks of {}, in a store of blocks of {}",
                                                to_string(options.block_bytes), to_string(store->block_bytes()))};
      }
    } else {
      const FileStoreConfig config = store_config(options);
      engine = make_io_engine(io_options(options), all_wakers());
      log.write(LogLevel::info, "I/O", [&] { return "storage is read and written by " + engine->describe(); });
      auto made = std::make_shared<FileStore>(config, *engine);
      files = made.get();
      store = std::move(made);
    }
    if (options.resilience) guard.emplace(*store, clock, *options.resilience, &all_wakers());
    BlockStore& front = guard ? static_cast<BlockStore&>(*guard) : *store;
    if (options.shared) begin_sharing(options, front);
    batches.emplace(layered ? static_cast<BlockStore&>(*layered) : front, guard ? &*guard : nullptr, engine.get(), clock,
                    all_wakers(), limits, layered ? &*layered : nullptr);
    if (publisher) begin_publishing(options.block_bytes);
    if (files == nullptr) store->set_waker(&all_wakers());  // last, because the destructor resets it
  }

  ~Parts() {
    if (store && files == nullptr) store->set_waker(nullptr);
    if (shared) shared->set_waker(nullptr);
  }

  [[nodiscard]] Turn take_turn() { return idle ? Turn{idle->turns()} : Turn{}; }
  /// The waker of the thread that works on the store: the owner's, and the idle service's if there is one.
  [[nodiscard]] Waker& all_wakers() { return idle ? static_cast<Waker&>(*idle) : waker; }

  void begin_sharing(const TierStoreOptions& options, BlockStore& local) {
    const auto positive = [](Duration time, const char* name) {
      if (time <= Duration::zero()) throw std::invalid_argument{fmt::format("tier store: {} must be positive", name)};
      return time;
    };
    const LayeredLimits limits{.read = positive(options.shared_read_max, "shared_read_max"),
                               .write = positive(options.shared_write_max, "shared_write_max"),
                               .writes = options.shared_writes};
    shared = options.shared;
    fingerprint = options.fingerprint;
    shared->use(shared_fingerprint({fingerprint, options.shared_weights_revision, options.block_bytes, {}}));
    shared->set_waker(&all_wakers());
    layered.emplace(local, *shared, clock, limits);
  }

  /// Starts the endpoint before the index is read, which may take long. Until then, the endpoint answers that it has no data yet.
  void begin_admin(const AdminOptions& options) {
    if (options.listen.empty()) return;
    mailbox.emplace(all_wakers());
    publisher.emplace(*mailbox, options.publish_interval);
    observer.emplace(*mailbox, clock);
    listener.emplace(options, *mailbox, clock, admin::Room{});
    log.write(LogLevel::info, "admin", [&] { return "operators reach this store at " + listener->address(); });
  }

  void begin_publishing(Bytes block_bytes) {
    const auto complete = [this, block_bytes, io = io()](AdminSnapshot& snapshot) {
      AdminSnapshot::Pool& pool = snapshot.pools.emplace_back();
      pool.block_bytes = block_bytes;
      pool.store = store->quick_stat();
      pool.health = health();
      snapshot.io = io;
      if (idle) snapshot.idle = idle->totals();
      if (shared) snapshot.shared = {.health = shared->health(), .stat = shared->stat(), .off = layered->shared_is_left()};
    };
    AdminShared of_shared;
    if (shared) {
      of_shared.resume = [this, block_bytes](const std::string& revision) { resume_shared(revision, block_bytes); };
      of_shared.is_off = [this] { return layered->shared_is_left(); };
    }
    publisher->begin(admin_subject(*batches, *observer, complete, std::move(of_shared)), clock.now());
  }

  /// Only with a shared store.
  void resume_shared(const std::optional<std::string>& weights_revision, Bytes block_bytes) {
    if (weights_revision) shared->use(shared_fingerprint({fingerprint, *weights_revision, block_bytes, {}}));
    layered->resume_shared();
  }

  void end_admin() {
    if (!publisher) return;
    publisher->end();
    listener->stop();
  }

  /// Ends the work under way, and makes everything durable.
  ErrorCode end() {
    if (files != nullptr) {
      const Result<void> closed = files->close();
      return closed ? ErrorCode{} : closed.error();
    }
    constexpr int look_every_ms = 100;
    std::vector<StoreEvent> events;
    while (store->in_flight() > 0) {
      if (store->poll(events) == 0) waker.wait(look_every_ms);
      waker.acknowledge();
    }
    return {};
  }

  void poll(std::vector<BatchResult>& out) {
    waker.acknowledge();
    collect(out);
  }

  void collect(std::vector<BatchResult>& out) {
    batches->poll(out);
    look();
    if (publisher) publisher->on_polled(clock.now());
  }

  [[nodiscard]] TimePoint next_deadline() const {
    const TimePoint next = batches->next_deadline();
    return publisher ? std::min(next, publisher->next_deadline()) : next;
  }

  [[nodiscard]] StoreHealth health() const {
    StoreHealth health;
    if (guard) health = guard->health();
    if (files != nullptr) add_health_of(*files, health);
    return health;
  }

  [[nodiscard]] std::string io() const { return engine ? engine->describe() : std::string{}; }

  /// Logs changes.
  void look() {
    if (!log.wants(LogLevel::warning)) return;
    if (guard) {
      const bool well =
          guard->read_breaker().state() == BreakerState::closed && guard->write_breaker().state() == BreakerState::closed;
      if (well != was_well) {
        if (well) log.write(LogLevel::warning, "storage", [] { return "storage is used again"; });
        else log.write(LogLevel::warning, "storage", [&] { return "storage is not used in full: " + guard->health().reason; });
      }
      was_well = well;
    }
    if (const std::uint64_t corrupt = store->quick_stat().corrupt; damage.is_due(corrupt, clock.now())) {
      log.write(LogLevel::warning, "damage", [&, text = damage.tell(corrupt, clock.now())] { return text; });
    }
    if (const ErrorCode error = batches->flush_error(); error != flush_error) {
      flush_error = error;
      if (error) log.write(LogLevel::error, "flush", [&] { return "storage could not be flushed: " + error.message(); });
    }
  }

  SteadyClock clock;
  EventFdWaker waker;               ///< the owner's
  std::optional<IdleService> idle;  ///< none if the options do not ask for it
  Log log;
  std::unique_ptr<IoEngine> engine;
  std::shared_ptr<BlockStore> store;
  FileStore* files = nullptr;           ///< the same object as `store`, if that is a FileStore
  std::optional<ResilientStore> guard;  ///< in front of `store`
  std::shared_ptr<SharedStore> shared;
  std::array<std::byte, 32> fingerprint{};  ///< of TierStoreOptions; only with `shared`
  std::optional<LayeredStore> layered;      ///< `guard` or `store`, in front of `shared`
  /// Owns the regions. They must be unregistered before the engine ends, and the store uses them until it is closed.
  std::optional<TierBatches> batches;
  bool was_well = true;
  DamageNotice damage;
  ErrorCode flush_error;
  // The admin endpoint; none if the options do not ask for it.
  std::optional<admin::Mailbox> mailbox;
  std::optional<admin::Publisher> publisher;
  std::optional<admin::Observer> observer;
  std::optional<admin::Listener> listener;
};

struct TierStore::State {
  explicit State(const TierStoreOptions& options)
      : keys{bytes_of(options.key_namespace)},
        block_bytes{options.block_bytes},
        erase_max{options.erase_max},
        parts{std::make_unique<Parts>(options)} {
    if (!parts->idle) return;
    parts->idle->start({.slice =
                            [this](TimePoint /*until*/) {
                              parts->collect(results);
                              if (!results.empty()) parts->waker.wake();
                              return false;
                            },
                        .next_deadline = [this] { return parts->next_deadline(); }});
  }

  [[nodiscard]] bool contains(const BlockKey& key) const { return parts && parts->batches->contains(key); }
  void note_asked(std::size_t keys_asked, std::size_t found) {
    if (parts) parts->batches->note_asked(keys_asked, found);
  }
  /// The turn in which the calls of the owner work.
  [[nodiscard]] Turn take_turn() { return parts ? parts->take_turn() : Turn{}; }
  /// The owner ends the store: the idle service does not work on it from now on.
  void end_idle_service() {
    if (parts->idle) parts->idle->stop();
  }

  /// Polls until `done` or the time is over; returns true if it is done. Not after close().
  bool poll_until(const std::function<bool()>& done, TimePoint until) {
    while (true) {
      parts->poll(results);
      if (done()) break;
      const TimePoint now = parts->clock.now();
      if (now >= until) break;
      const Duration wait = std::min(until, parts->next_deadline()) - now;
      constexpr std::chrono::milliseconds longest{std::chrono::minutes{1}};
      parts->waker.wait(static_cast<int>(
          std::clamp(std::chrono::ceil<std::chrono::milliseconds>(wait), std::chrono::milliseconds{0}, longest).count()));
    }
    if (!results.empty()) parts->waker.wake();
    return done();
  }

  /// Waits for the erasure that has begun.
  Result<void> end_erasure() {
    const TierBatches& batches = *parts->batches;
    if (!poll_until([&batches] { return !batches.is_erasing(); }, parts->clock.now() + erase_max)) return Errc::deadline_exceeded;
    return batches.erase_error() ? Result<void>{batches.erase_error()} : Result<void>{};
  }

  OpaqueKeys keys;
  Bytes block_bytes;
  Duration erase_max;
  std::unique_ptr<Parts> parts;      ///< null after close()
  std::vector<BatchResult> results;  ///< results that wait for poll()
  std::vector<TierEvent> events;     ///< events of a closed store that were not taken
  TierStatistics last;               ///< statistics at the time of close()
  TierCloseReport close_report;      ///< the same
  HomeProcess home;
  StoreStat last_stat;
};

TierStore::TierStore(const TierStoreOptions& options) : state_{std::make_unique<State>(options)} {}

bool TierStore::is_of_this_process() const { return state_->home.is_here(); }

TierStore::~TierStore() {
  if (state_->parts == nullptr) return;
  if (!is_of_this_process()) {
    static_cast<void>(state_->parts.release());  // its threads are in the parent
    return;
  }
  state_->end_idle_service();
  state_->parts->batches->stop_accepting();
  static_cast<void>(drain(never));
  state_->parts->end_admin();
  static_cast<void>(state_->parts->end());
}

BlockKey TierStore::key(std::span<const std::byte> name) const { return state_->keys(name); }
Bytes TierStore::block_bytes() const { return state_->block_bytes; }

Result<HostRegionId> TierStore::register_region(const HostRows& rows, std::shared_ptr<const void> owner) {
  const Turn turn = state_->take_turn();
  if (!state_->parts) return Errc::stopped;
  try {
    return state_->parts->batches->regions().add(rows, state_->block_bytes, std::move(owner));
  } catch (const std::bad_alloc&) {
    return Errc::no_room;
  }
}

Result<void> TierStore::unregister_region(HostRegionId region) {
  const Turn turn = state_->take_turn();
  if (!state_->parts) return Errc::not_found;
  return state_->parts->batches->regions().remove(region);
}

bool TierStore::contains(const BlockKey& key) const { return leading({&key, 1}) == 1; }

std::size_t TierStore::leading(std::span<const BlockKey> keys) const {
  const Turn turn = state_->take_turn();
  const auto gap = std::ranges::find_if_not(keys, [this](const BlockKey& key) { return state_->contains(key); });
  const auto found = static_cast<std::size_t>(gap - keys.begin());
  state_->note_asked(keys.size(), found);
  return found;
}

Result<void> TierStore::look_up(std::span<const BlockKey> keys, std::span<std::uint64_t> bitmap) const {
  const Turn turn = state_->take_turn();
  constexpr std::size_t bits = 64;
  const std::size_t words = keys.size() / bits + (keys.size() % bits == 0 ? 0 : 1);
  if (bitmap.size() < words) return Errc::invalid_argument;
  std::ranges::fill(bitmap.first(words), 0);
  std::size_t found = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!state_->contains(keys[i])) continue;
    bitmap[i / bits] |= std::uint64_t{1} << i % bits;
    ++found;
  }
  state_->note_asked(keys.size(), found);
  return {};
}

void TierStore::touch(std::span<const BlockKey> keys) {
  const Turn turn = state_->take_turn();
  if (state_->parts) state_->parts->batches->touch(keys);
}

Result<void> TierStore::submit_put(const TierPut& put) {
  const Turn turn = state_->take_turn();
  return state_->parts ? state_->parts->batches->submit_put(put) : Result<void>{Errc::stopped};
}

Result<void> TierStore::submit_get(const TierGet& get) {
  const Turn turn = state_->take_turn();
  return state_->parts ? state_->parts->batches->submit_get(get) : Result<void>{Errc::stopped};
}

Result<void> TierStore::submit_probe(const TierProbe& probe) {
  const Turn turn = state_->take_turn();
  return state_->parts ? state_->parts->batches->submit_probe(probe) : Result<void>{Errc::stopped};
}

Result<void> TierStore::submit_flush(BatchId id) {
  const Turn turn = state_->take_turn();
  return state_->parts ? state_->parts->batches->submit_flush(id) : Result<void>{Errc::stopped};
}

Result<void> TierStore::cancel(BatchId id) {
  const Turn turn = state_->take_turn();
  return state_->parts ? state_->parts->batches->cancel(id) : Result<void>{Errc::not_found};
}

std::size_t TierStore::poll(std::vector<BatchResult>& out) {
  const Turn turn = state_->take_turn();
  const std::size_t before = out.size();
  std::ranges::move(state_->results, std::back_inserter(out));
  state_->results.clear();
  if (state_->parts) state_->parts->poll(out);
  return out.size() - before;
}

std::size_t TierStore::poll_events(std::vector<TierEvent>& out) {
  const Turn turn = state_->take_turn();
  if (state_->parts) return state_->parts->batches->poll_events(out);
  const std::size_t arrived = state_->events.size();
  out.insert(out.end(), state_->events.begin(), state_->events.end());
  state_->events.clear();
  return arrived;
}

int TierStore::wake_fd() const { return state_->parts ? state_->parts->waker.fd() : -1; }
TimePoint TierStore::next_deadline() const {
  const Turn turn = state_->take_turn();
  return state_->parts ? state_->parts->next_deadline() : never;
}

Result<void> TierStore::remove(std::span<const BlockKey> keys) {
  const Turn turn = state_->take_turn();
  if (!state_->parts) return Errc::stopped;
  if (keys.empty()) return {};
  const Result<void> begun = state_->parts->batches->remove(keys);
  return begun ? state_->end_erasure() : begun;
}

Result<void> TierStore::clear() {
  const Turn turn = state_->take_turn();
  if (!state_->parts) return Errc::stopped;
  const Result<void> begun = state_->parts->batches->clear();
  return begun ? state_->end_erasure() : begun;
}

Result<void> TierStore::resume_shared(const std::optional<std::string>& weights_revision) {
  const Turn turn = state_->take_turn();
  if (!state_->parts) return Errc::stopped;
  Parts& parts = *state_->parts;
  if (!parts.layered) return Errc::invalid_argument;
  parts.resume_shared(weights_revision, state_->block_bytes);
  return {};
}

bool TierStore::shared_is_off() const {
  const Turn turn = state_->take_turn();
  return state_->parts && state_->parts->layered && state_->parts->layered->shared_is_left();
}

void TierStore::stop_accepting() {
  const Turn turn = state_->take_turn();
  if (state_->parts) state_->parts->batches->stop_accepting();
}

bool TierStore::drain(TimePoint until) {
  const Turn turn = state_->take_turn();
  if (!state_->parts) return true;
  const TierBatches& batches = *state_->parts->batches;
  return state_->poll_until([&batches] { return batches.is_idle(); }, until);
}

TierCloseReport TierStore::close(TimePoint until) {
  if (!state_->parts) return state_->close_report;
  state_->end_idle_service();
  TierCloseReport& report = state_->close_report;
  stop_accepting();
  static_cast<void>(drain(until));
  state_->last = statistics();
  state_->last_stat = stat();
  report.batches_left = state_->last.batches;
  state_->parts->batches->poll_events(state_->events);
  state_->parts->end_admin();
  state_->parts->log.end();  // the log's sink may end before the thread below
  const auto error = std::make_shared<ErrorCode>();
  Parts* const parts = state_->parts.release();
  report.closed = end_within(
      [parts, error] {
        *error = parts->end();
        delete parts;
      },
      until);
  if (report.closed) report.error = *error;
  return report;
}

TierStatistics TierStore::statistics() const {
  const Turn turn = state_->take_turn();
  return state_->parts ? state_->parts->batches->statistics() : state_->last;
}

IdleTotals TierStore::idle_totals() const {
  const Turn turn = state_->take_turn();
  return state_->parts && state_->parts->idle ? state_->parts->idle->totals() : IdleTotals{};
}

StoreStat TierStore::stat() const {
  const Turn turn = state_->take_turn();
  if (!state_->parts) return state_->last_stat;
  return state_->parts->store->quick_stat();
}

StoreHealth TierStore::health() const {
  const Turn turn = state_->take_turn();
  if (!state_->parts) return {.state = StoreState::down, .reason = "the store is closed"};
  return state_->parts->health();
}

std::string TierStore::io() const {
  const Turn turn = state_->take_turn();
  return state_->parts ? state_->parts->io() : std::string{};
}

std::string TierStore::admin_address() const {
  return state_->parts && state_->parts->listener ? state_->parts->listener->address() : std::string{};
}

}  // namespace terrace
