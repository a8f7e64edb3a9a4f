#include "tools/bench/storage_scrub.hpp"

#include "base/clock.hpp"
#include "storage/resilience/guarded_store.hpp"
#include "storage/resilience/scrub.hpp"
#include "tools/bench/bench_directory.hpp"
#include "tools/bench/interrupted.hpp"
#include "tools/bench/rounds.hpp"
#include "tools/bench/storage_subjects.hpp"
#include "tools/output.hpp"
#include "tools/replay/latencies.hpp"
#include "tools/report_file.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

constexpr std::chrono::milliseconds step_time{20};

enum class Pattern : unsigned char { steady, steps };
std::string_view to_string(Pattern pattern) { return pattern == Pattern::steady ? "steady" : "steps"; }

struct Turn {
  double gb_per_s = 0;
  double p99_us = 0;
  double scrub_mb_per_s = 0;
};

/// A store behind a guard, and a scrub that is off but in a turn.
class ScrubbedSubject {
 public:
  ScrubbedSubject(StorageGround& ground, StoreSubject& store)
      : ground_{ground},
        store_{store},
        guard_{store.store(), clock_, {}, &ground.waker},
        scrub_{ground.block_bytes, {.bandwidth = Bytes{}, .period = {}}, &store.io()},
        began_(ground.depth_max) {
    scrub_.start(guard_, clock_.now());
  }
  ~ScrubbedSubject() { turn_off(); }
  ScrubbedSubject(const ScrubbedSubject&) = delete;
  ScrubbedSubject& operator=(const ScrubbedSubject&) = delete;

  Turn read(Pattern pattern, unsigned depth, Bytes bandwidth, std::span<const std::uint32_t> order) {
    store_.prepare(StorageWay::read);
    scrub_.set({.bandwidth = bandwidth, .period = {}}, clock_.now());
    const Bytes scrubbed = scrub_.health().read;
    latencies_ = Latencies{};
    const TimePoint began = clock_.now();
    Duration reading{};
    if (pattern == Pattern::steady) {
      move(depth, order);
      reading = clock_.now() - began;
    } else {
      TimePoint step = began;
      for (std::size_t at = 0; at < order.size() && !ground_.interrupt.requested(); at += depth) {
        poll();
        const TimePoint submitted = clock_.now();
        move(depth, order.subspan(at, std::min<std::size_t>(depth, order.size() - at)));
        reading += clock_.now() - submitted;
        std::this_thread::sleep_until(step += step_time);
      }
    }
    const double all = std::chrono::duration<double>{clock_.now() - began}.count();
    const double bytes = static_cast<double>(count(ground_.block_bytes)) * static_cast<double>(order.size());
    const auto scrub_bytes = static_cast<double>(count(scrub_.health().read - scrubbed));
    turn_off();
    if (ground_.interrupt.requested()) throw Interrupted{};
    return {bytes * 1e-9 / std::chrono::duration<double>{reading}.count(), latencies_.microseconds().p99,
            scrub_bytes * 1e-6 / all};
  }

 private:
  void start(std::uint64_t buffer, std::uint32_t block) {
    began_[buffer] = clock_.now();
    reads_.push_back({buffer, store_.keys()[block], ground_.buffer(buffer)});
  }
  void submit() {
    if (!reads_.empty()) guard_.read(reads_);
    reads_.clear();
  }
  void poll() {
    ground_.waker.acknowledge();
    events_.clear();
    guard_.poll(events_);
  }

  void move(unsigned depth, std::span<const std::uint32_t> order) {
    std::size_t begun = 0;
    std::size_t under_way = 0;
    for (; begun < std::min<std::size_t>(depth, order.size()); ++begun, ++under_way) start(begun, order[begun]);
    submit();
    ErrorCode failed;
    while (under_way > 0) {
      poll();
      for (const StoreEvent& event : events_) {
        latencies_.add(clock_.now() - began_[event.token]);
        if (event.error) failed = event.error;
        --under_way;
        if (begun == order.size() || failed || ground_.interrupt.requested()) continue;
        start(event.token, order[begun++]);
        ++under_way;
      }
      submit();
      if (events_.empty()) wait();
    }
    if (failed) throw std::system_error{failed, "the store"};
  }

  /// For an event, or until the scrub or the guard has something to do.
  void wait() {
    const TimePoint next = guard_.next_deadline();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - clock_.now()).count();
    ground_.waker.wait(next == never ? -1 : static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000)));
  }

  void turn_off() {
    scrub_.set({.bandwidth = Bytes{}, .period = {}}, clock_.now());
    while (store_.store().in_flight() > 0) {
      poll();
      if (store_.store().in_flight() > 0) ground_.waker.wait(1);
    }
  }

  StorageGround& ground_;
  StoreSubject& store_;
  SteadyClock clock_;
  GuardedStore guard_;
  Scrub scrub_;
  std::vector<TimePoint> began_;  ///< by buffer
  Latencies latencies_;
  std::vector<StoreRead> reads_;
  std::vector<StoreEvent> events_;
};

struct Row {
  Bytes block_bytes{};
  unsigned depth = 1;
  Pattern pattern = Pattern::steady;
  Bytes bandwidth{};  ///< of the scrub; 0: none
  Turn turn;
  double ratio = 0;      ///< to the speed without a scrub in the same round
  double p99_ratio = 0;  ///< the same of the percentile
};

std::vector<Row> measure(const StorageBenchOptions& options, const StorageGround& ground, ScrubbedSubject& subject,
                         unsigned depth, Pattern pattern) {
  std::vector<Bytes> rates{Bytes{}};
  rates.insert(rates.end(), options.scrub.begin(), options.scrub.end());
  std::uint64_t operations = std::max<std::uint64_t>(options.moved / ground.block_bytes, std::uint64_t{8} * depth);
  if (pattern == Pattern::steps) operations = std::min<std::uint64_t>(operations, std::uint64_t{100} * depth);
  ScatteredTurns turns{ground.blocks, operations};
  std::vector<std::vector<Turn>> taken(rates.size());  // by rate, then by round
  for (unsigned round = 0; round < options.rounds; ++round) {
    for (std::size_t turn = 0; turn < rates.size(); ++turn) {
      const std::size_t n = (turn + round) % rates.size();
      taken[n].push_back(subject.read(pattern, depth, rates[n], turns.next()));
    }
  }
  std::vector<Row> rows;
  for (std::size_t n = 0; n < rates.size(); ++n) {
    const auto median_of = [&](auto&& figure) {
      std::vector<double> values;
      for (std::size_t round = 0; round < taken[n].size(); ++round) values.push_back(figure(taken[n][round], taken[0][round]));
      return median(std::move(values));
    };
    Row row{ground.block_bytes, depth, pattern, rates[n], {}, 0, 0};
    row.turn.gb_per_s = median_of([](const Turn& turn, const Turn&) { return turn.gb_per_s; });
    row.turn.p99_us = median_of([](const Turn& turn, const Turn&) { return turn.p99_us; });
    row.turn.scrub_mb_per_s = median_of([](const Turn& turn, const Turn&) { return turn.scrub_mb_per_s; });
    row.ratio = median_of([](const Turn& turn, const Turn& without) { return turn.gb_per_s / without.gb_per_s; });
    row.p99_ratio = median_of([](const Turn& turn, const Turn& without) { return turn.p99_us / without.p99_us; });
    rows.push_back(row);
  }
  return rows;
}

void print_row(const Row& row) {
  print("{:>7} {:>6}  {:<6} {:>8}  {:>7.2f} {:>6.2f}  {:>9.0f} {:>6.2f}  {:>8.1f}\n", terrace::to_string(row.block_bytes),
             row.depth, to_string(row.pattern), count(row.bandwidth) == 0 ? "off" : terrace::to_string(row.bandwidth),
             row.turn.gb_per_s, row.ratio, row.turn.p99_us, row.p99_ratio, row.turn.scrub_mb_per_s);
  flush_output();
}

boost::json::object to_json(const Row& row) {
  return {{"block_bytes", count(row.block_bytes)},
          {"depth", row.depth},
          {"reads", to_string(row.pattern)},
          {"scrub", count(row.bandwidth)},
          {"gb_per_s", row.turn.gb_per_s},
          {"ratio", row.ratio},
          {"p99_us", row.turn.p99_us},
          {"p99_ratio", row.p99_ratio},
          {"scrub_mb_per_s", row.turn.scrub_mb_per_s}};
}

}  // namespace

void bench_beside_scrub(const StorageBenchOptions& options, const Interrupt& interrupt, EventFdWaker& waker) {
  std::string engine;
  bool direct = true;
  boost::json::array rows;
  for (const Bytes block_bytes : options.block_bytes) {
    const StorageDirectories directories{options};
    StorageGround ground = make_ground(options, directories, block_bytes, interrupt, waker);
    StoreSubject store{ground};
    if (interrupt.requested()) throw Interrupted{};
    ScrubbedSubject subject{ground, store};
    if (std::exchange(engine, store.engine()).empty()) {
      direct = store.is_direct();
      print("reads, medians of {} rounds; {}{}; a step is {} ms\n", options.rounds, engine,
                 direct ? "" : "; through the page cache: no direct I/O here", step_time.count());
      print("{:>7} {:>6}  {:<6} {:>8}  {:>7} {:>6}  {:>9} {:>6}  {:>8}\n", "block", "depth", "reads", "scrub", "GB/s",
                 "ratio", "p99 us", "ratio", "scrub MB/s");
    }
    for (const unsigned depth : options.depths) {
      for (const Pattern pattern : {Pattern::steady, Pattern::steps}) {
        for (const Row& row : measure(options, ground, subject, depth, pattern)) {
          print_row(row);
          rows.push_back(to_json(row));
        }
      }
    }
  }
  if (options.report.empty()) return;
  write_report(options.report, json_text(boost::json::object{{"io", engine},
                                                             {"direct", direct},
                                                             {"rounds", options.rounds},
                                                             {"size", count(options.size)},
                                                             {"beside_scrub", std::move(rows)}}));
}

}  // namespace terrace::tools
