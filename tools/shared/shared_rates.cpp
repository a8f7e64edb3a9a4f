#include "tools/shared/shared_rates.hpp"

#include "base/check.hpp"
#include "tools/numbered_key.hpp"

#include <chrono>
#include <ctime>
#include <random>
#include <thread>

namespace terrace::tools {

namespace {

/// Waits until all nodes are connected, or at least one and no more come.
void wait_for(const SharedStore& store) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  while (store.health().state != StoreState::well) {
    const auto waited = Clock::now() - begin;
    if (waited > std::chrono::seconds{3} || (store.usable() && waited > std::chrono::seconds{2})) return;
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
}

/// No other user has it.
SharedStore::Fingerprint random_fingerprint() {
  std::random_device random;
  SharedStore::Fingerprint fingerprint{};
  for (std::byte& each : fingerprint) each = static_cast<std::byte>(random());
  return fingerprint;
}

}  // namespace

std::shared_ptr<SharedStore> open_to_measure(SharedStorage options) {
  options.expiry = std::chrono::minutes{1};
  options.expiry_per_depth = {};
  std::shared_ptr<SharedStore> store = open_shared_store(options);
  store->use(random_fingerprint());
  wait_for(*store);
  return store;
}

void fill_to_measure(std::span<std::byte> memory) {
  std::mt19937_64 random{1};  // NOLINT(cert-msc32-c,cert-msc51-cpp): any bytes will do
  for (std::byte& each : memory) each = static_cast<std::byte>(random());
}

double process_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

SharedRates::SharedRates(SharedStore& store, const SharedWork& work) : store_{store}, work_{work} {
  for (std::uint32_t n = 0; n < work.blocks; ++n) {
    keys_.push_back(numbered_key(n));
    blocks_.push_back({.key = keys_[n], .parent = n == 0 ? BlockKey{} : keys_[n - 1], .depth = n});
  }
  store_.set_waker(&waker_);
}

TimePoint SharedRates::deadline() const {
  return work_.patience == Duration{} ? never : std::chrono::steady_clock::now() + work_.patience;
}

void SharedRates::wait() {
  waker_.acknowledge();
  events_.clear();
  if (store_.poll(events_) == 0) waker_.wait(-1);
}

template <class Submit>
SharedCost SharedRates::run(const GoOn& go_on, Submit submit) {
  SharedCost cost{.blocks = work_.blocks};
  const double cpu = process_cpu_seconds();
  const auto begin = std::chrono::steady_clock::now();
  std::uint32_t blocks = work_.blocks;
  std::uint32_t next = 0;
  std::uint32_t ended = 0;
  while (true) {
    if (go_on && !go_on()) blocks = next;
    for (; next < blocks && next - ended < work_.at_once; ++next) submit(next);
    if (ended == blocks) break;
    wait();
    ended += static_cast<std::uint32_t>(events_.size());
    for (const SharedEvent& event : events_) {
      cost.found += event.leading;
      if (event.error) ++cost.failed;
    }
  }
  cost.failed += work_.blocks - blocks;
  cost.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  cost.client_cpu_seconds = process_cpu_seconds() - cpu;
  return cost;
}

SharedCost SharedRates::write(std::span<const std::byte> memory, const GoOn& go_on) {
  TERRACE_CHECK(memory.size() == work_.blocks * work_.block_bytes);
  return run(go_on, [&, until = deadline()](std::uint32_t n) {
    const SharedWrite write{n, blocks_[n], memory.subspan(n * work_.block_bytes, work_.block_bytes), until};
    store_.write({&write, 1});
  });
}

SharedCost SharedRates::read(std::span<std::byte> memory, const GoOn& go_on) {
  TERRACE_CHECK(memory.size() == work_.blocks * work_.block_bytes);
  return run(go_on, [&, until = deadline()](std::uint32_t n) {
    const SharedRead read{n, blocks_[n], memory.subspan(n * work_.block_bytes, work_.block_bytes), until};
    store_.read({&read, 1});
  });
}

double SharedRates::probe() {
  const auto begin = std::chrono::steady_clock::now();
  store_.probe({.token = 0, .keys = keys_, .deadline = deadline()});
  do {
    wait();
  } while (events_.empty());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return events_[0].leading == work_.blocks ? seconds : -1;
}

std::uint32_t SharedRates::count() {
  const SharedCost cost = run({}, [&, until = deadline()](std::uint32_t n) {
    store_.probe({.token = n, .keys = {&keys_[n], 1}, .deadline = until});
  });
  return cost.failed > 0 ? work_.blocks : cost.found;
}

std::uint32_t SharedRates::remove(Duration patience) {
  const TimePoint until = std::chrono::steady_clock::now() + patience;
  store_.remove(keys_, GroupId{});
  std::uint32_t there = count();
  while (there > 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
    there = count();
  }
  return there;
}

}  // namespace terrace::tools
