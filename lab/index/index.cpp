#include "lab/index/index.hpp"

#include "base/random.hpp"
#include "lab/index/index_subject.hpp"
#include "terrace/keys.hpp"
#include "tools/output.hpp"
#include "tools/report_file.hpp"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>

namespace terrace::tools {
namespace {

using Clock = std::chrono::steady_clock;

/// Prompts of equal length, enough to fill a cache, without a common prefix. Their keys are random numbers, which suffices
/// because subjects only compare keys.
class Prompts {
 public:
  Prompts(std::uint32_t blocks, std::uint32_t length, std::uint64_t seed)
      : length_{length}, keys_(std::size_t{blocks} / length * length) {
    Random random{seed};
    for (BlockKey& key : keys_) {
      for (std::size_t word = 0; word < key.bytes.size(); word += sizeof(std::uint64_t)) {
        const std::uint64_t value = random.engine()();
        std::memcpy(key.bytes.data() + word, &value, sizeof value);
      }
    }
  }

  [[nodiscard]] std::size_t size() const { return keys_.size() / length_; }
  [[nodiscard]] std::span<const BlockKey> operator[](std::size_t i) const {
    return std::span{keys_}.subspan(i * length_, length_);
  }

 private:
  std::uint32_t length_;
  std::vector<BlockKey> keys_;
};

const std::vector<SubjectKind>& all_subjects() {
  static const std::vector<SubjectKind> all{SubjectKind::terrace_adaptive, SubjectKind::terrace_lru, SubjectKind::tree,
                                            SubjectKind::map, SubjectKind::floor};
  return all;
}

/// The progress of a benchmark with one subject. Google Benchmark runs it several times until it has taken long enough. Each run
/// continues where the last one stopped; otherwise it would ask for the blocks that were inserted last.
struct Turn {
  std::uint64_t prompt = 0;
  Random random{7};
};

/// Caches full of prompts of one length. They are kept for all benchmarks of the same size.
struct Fixture {
  Fixture(std::uint32_t blocks, std::uint32_t length, const std::vector<SubjectKind>& kinds = all_subjects())
      : length_{length}, cached{blocks, length, 1} {
    for (const SubjectKind kind : kinds) {
      subjects.push_back(make_subject(kind, blocks));
      for (std::size_t i = 0; i < cached.size(); ++i) subjects.back()->serve(cached[i]);
    }
  }

  std::uint32_t length_;
  Prompts cached;
  std::vector<std::unique_ptr<IndexSubject>> subjects;
  std::map<const IndexSubject*, Turn> turns;
};

/// The minimum time for each benchmark.
constexpr double seconds_a_benchmark = 0.05;

/// Times each call, in nanoseconds.
class Calls {
 public:
  template <class Call>
  void time(benchmark::State& state, Call&& call) {
    const auto begin = Clock::now();
    call();
    const std::chrono::duration<double> taken = Clock::now() - begin;
    state.SetIterationTime(taken.count());
    nanos_.push_back(taken.count() * 1e9);
  }
  void report(benchmark::State& state, double units) {
    std::ranges::sort(nanos_);
    state.counters["p50_ns"] = nanos_[nanos_.size() / 2] / units;
    state.counters["p99_ns"] = nanos_[nanos_.size() * 99 / 100] / units;
  }

 private:
  std::vector<double> nanos_;
};

/// Chooses the cached prompts in a scattered order, so that the processor's caches do not hold them (unless all of them fit).
std::size_t scattered(std::uint64_t i, std::size_t count) { return static_cast<std::size_t>(i * 0x9E37'79B9'7F4A'7C15U % count); }

void match(benchmark::State& state, Fixture& fixture, IndexSubject& subject) {
  Calls calls;
  std::vector<BlockKey> keys(fixture.length_);
  std::uint64_t i = 0;
  for ([[maybe_unused]] auto each : state) {
    // The copy brings the keys into the processor's cache, because a real caller has just made them.
    std::ranges::copy(fixture.cached[scattered(++i, fixture.cached.size())], keys.begin());
    std::uint32_t hits = 0;
    calls.time(state, [&] { hits = subject.match(keys); });
    if (hits != keys.size()) state.SkipWithError("a cached prompt was not found");
  }
  calls.report(state, 1);
}

enum class Cached : std::uint8_t { none, half, all };

/// Serves prompts of which this part is cached. The rest is new, so as many blocks are evicted. If it is the half, then over two
/// rounds through the prompts LRU finds the first half of each prompt again.
template <Cached cached>
void serve(benchmark::State& state, Fixture& fixture, IndexSubject& subject) {
  Calls calls;
  Turn& turn = fixture.turns[&subject];
  std::vector<BlockKey> keys(fixture.length_);
  for ([[maybe_unused]] auto each : state) {
    const auto prompt = fixture.cached[scattered(++turn.prompt, fixture.cached.size())];
    std::ranges::copy(prompt, keys.begin());
    const std::size_t known = cached == Cached::all ? keys.size() : cached == Cached::half ? keys.size() / 2 : 0;
    for (std::size_t at = known; at < keys.size(); ++at) {
      const std::uint64_t fresh = turn.random.engine()();
      std::memcpy(keys[at].bytes.data(), &fresh, sizeof fresh);
    }
    calls.time(state, [&] { subject.serve(keys); });
  }
  calls.report(state, 1);
}

/// Prompts as tokens, cached in addition to the prompts of the fixture.
class TokenPrompts {
 public:
  TokenPrompts(Fixture& fixture, IndexSubject& subject)
      : tokens_(count, std::vector<TokenId>(std::size_t{fixture.length_} * block_tokens)) {
    Random random{3};
    for (std::vector<TokenId>& prompt : tokens_) {
      for (TokenId& token : prompt) token = static_cast<TokenId>(random.below(150'000));
      subject.serve(keys_of(prompt).keys());
    }
  }

  [[nodiscard]] const std::vector<TokenId>& operator[](std::uint64_t i) const { return tokens_[i % count]; }
  [[nodiscard]] static KeyChain keys_of(const std::vector<TokenId>& prompt) {
    KeyChain chain{BlockKey{}, block_tokens};
    chain.append(prompt);
    return chain;
  }

 private:
  static constexpr std::uint64_t count = 8;
  static constexpr std::uint32_t block_tokens = 64;

  std::vector<std::vector<TokenId>> tokens_;
};

/// Measures only how long it takes to make the keys of a prompt from its tokens, without a lookup.
void make_keys(benchmark::State& state, Fixture& fixture, IndexSubject& subject) {
  const TokenPrompts prompts{fixture, subject};
  Calls calls;
  std::uint64_t i = 0;
  for ([[maybe_unused]] auto each : state) {
    calls.time(state, [&] {
      BlockKey last = TokenPrompts::keys_of(prompts[++i]).keys().back();
      benchmark::DoNotOptimize(last);
    });
  }
  calls.report(state, 1);
}

void match_tokens(benchmark::State& state, Fixture& fixture, IndexSubject& subject) {
  const TokenPrompts prompts{fixture, subject};
  Calls calls;
  std::uint64_t i = 0;
  for ([[maybe_unused]] auto each : state) {
    std::uint32_t hits = 0;
    calls.time(state, [&] { hits = subject.match(TokenPrompts::keys_of(prompts[++i]).keys()); });
    if (hits != fixture.length_) state.SkipWithError("a cached prompt was not found");
  }
  calls.report(state, 1);
}

void evict(benchmark::State& state, Fixture& fixture, IndexSubject& subject) {
  constexpr std::uint32_t batch = 256;
  Calls calls;
  Turn& turn = fixture.turns[&subject];
  std::vector<BlockKey> keys(fixture.length_);
  for ([[maybe_unused]] auto each : state) {
    calls.time(state, [&] { subject.evict(batch); });
    // The same number of blocks is inserted. All are new, because the policy decided which blocks were evicted.
    for (std::uint32_t n = 0; n < batch; n += fixture.length_) {
      for (BlockKey& key : keys) {
        const std::uint64_t fresh = turn.random.engine()();
        std::memcpy(key.bytes.data(), &fresh, sizeof fresh);
      }
      subject.serve(keys);
    }
  }
  calls.report(state, batch);
}

/// Returns why a run failed, or an empty text if it did not. Google Benchmark 1.8 changed the names of these fields.
template <class Run>
std::string failure_of(const Run& run) {
  if constexpr (requires { run.error_occurred; }) {
    return run.error_occurred ? run.error_message : std::string{};
  } else {
    return run.skipped ? run.skip_message : std::string{};
  }
}

/// Keeps what Google Benchmark measured, for the table and the report.
class Collector final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const std::string failure = failure_of(run);
      if (!failure.empty()) throw std::runtime_error{run.benchmark_name() + ": " + failure};
      // A single repetition has no aggregates; it is its own median.
      if (run.run_type == Run::RT_Iteration) medians_.try_emplace(run.run_name.function_name, run);
      if (run.run_type == Run::RT_Aggregate && run.aggregate_name == "median") medians_[run.run_name.function_name] = run;
      all_.push_back(run);
    }
  }
  [[nodiscard]] double counter(const std::string& name, const char* which) const {
    const auto run = medians_.find(name);
    if (run == medians_.end()) return 0;
    const auto found = run->second.counters.find(which);
    return found == run->second.counters.end() ? 0 : static_cast<double>(found->second);
  }
  void write(const std::filesystem::path& file) const {
    std::ostringstream out;
    benchmark::JSONReporter json;
    json.SetOutputStream(&out);
    json.SetErrorStream(&out);
    json.ReportContext(Context{});
    json.ReportRuns(all_);
    json.Finalize();
    write_report(file, out.str());
  }

 private:
  std::map<std::string, Run> medians_;
  std::vector<Run> all_;
};

std::string name_of(const std::string& operation, std::uint32_t blocks, std::uint32_t length, SubjectKind kind) {
  return fmt::format("{}/{}/{}/{}", operation, blocks, length, to_string(kind));
}

void print_row(const Collector& results, const std::string& operation, std::uint32_t blocks, std::uint32_t length) {
  print("{:<8}{:>10}{:>8}", operation, blocks, length);
  const double floor = results.counter(name_of(operation, blocks, length, SubjectKind::floor), "p50_ns");
  for (std::size_t kind = 0; kind < subject_count; ++kind) {
    const std::string name = name_of(operation, blocks, length, static_cast<SubjectKind>(kind));
    const double nanos = results.counter(name, "p50_ns");
    nanos > 0 ? print("{:>10.1f}{:>7.2f}", nanos, nanos / floor) : print("{:>10}{:>7}", "-", "");
  }
  const std::string by_default = name_of(operation, blocks, length, SubjectKind::terrace_adaptive);
  print("{:>14.1f}\n", results.counter(by_default, "p99_ns"));
}

using Measurement = void (*)(benchmark::State&, Fixture&, IndexSubject&);

struct Operation {
  std::string name;
  Measurement run;
  std::vector<std::uint32_t> lengths;
};

/// Registers a benchmark. All arguments must outlive the run.
void enlist(const std::string& name, Measurement run, Fixture& fixture, IndexSubject& subject) {
  benchmark::RegisterBenchmark(name.c_str(), [run, &fixture, &subject](benchmark::State& state) { run(state, fixture, subject); })
      ->UseManualTime()
      ->MinTime(seconds_a_benchmark);
}

void print_tokens_row(const Collector& results, std::uint32_t blocks, std::uint32_t length) {
  const double keys = results.counter(name_of("keys", blocks, length, SubjectKind::terrace_adaptive), "p50_ns");
  const double match = results.counter(name_of("tokens", blocks, length, SubjectKind::terrace_adaptive), "p50_ns");
  print("{:<8}{:>10}{:>8}{:>14.0f}{:>14.0f}{:>8.2f}\n", "tokens", blocks, length, keys, match, match / keys);
}

}  // namespace

void bench_index(const IndexBenchOptions& options) {
  std::string repetitions = fmt::format("--benchmark_repetitions={}", options.repetitions);
  std::string program = "terrace";
  std::string interleave = "--benchmark_enable_random_interleaving=true";
  std::vector<char*> words{program.data(), repetitions.data(), interleave.data()};
  int count = static_cast<int>(words.size());
  benchmark::Initialize(&count, words.data());

  const std::vector<Operation> operations{{"match", match, {16, 128, 2048}},
                                          {"hit", serve<Cached::all>, {16}},
                                          {"new", serve<Cached::none>, {16}},
                                          {"cycle", serve<Cached::half>, {16, 64, 2048}},
                                          {"evict", evict, {16, 256}}};

  Collector results;
  print("medians in ns (evict: of one block), and as multiples of the floor's\n\n{:<8}{:>10}{:>8}", "", "cached", "prompt");
  for (std::size_t kind = 0; kind < subject_count; ++kind) {
    print("{:>17}", to_string(static_cast<SubjectKind>(kind)));
  }
  print("{:>14}\n", "adaptive p99");
  for (const Operation& operation : operations) {
    for (const std::uint32_t length : operation.lengths) {
      for (const std::uint32_t blocks : options.blocks) {
        if (blocks < 2 * length) continue;
        Fixture fixture{blocks, length};
        benchmark::ClearRegisteredBenchmarks();
        for (std::size_t kind = 0; kind < subject_count; ++kind) {
          IndexSubject& subject = *fixture.subjects[kind];
          enlist(name_of(operation.name, blocks, length, static_cast<SubjectKind>(kind)), operation.run, fixture, subject);
        }
        benchmark::RunSpecifiedBenchmarks(&results);
        print_row(results, operation.name, blocks, length);
      }
    }
  }
  print("\nmatch from tokens, 64 a block: ns to make the keys, with the match, and its ratio\n");
  for (const std::uint32_t length : {16U, 128U, 2048U}) {
    for (const std::uint32_t blocks : options.blocks) {
      if (blocks < 16 * length) continue;
      Fixture fixture{blocks, length, {SubjectKind::terrace_adaptive}};
      IndexSubject& subject = *fixture.subjects.front();
      benchmark::ClearRegisteredBenchmarks();
      enlist(name_of("keys", blocks, length, SubjectKind::terrace_adaptive), make_keys, fixture, subject);
      enlist(name_of("tokens", blocks, length, SubjectKind::terrace_adaptive), match_tokens, fixture, subject);
      benchmark::RunSpecifiedBenchmarks(&results);
      print_tokens_row(results, blocks, length);
    }
  }
  print("\nmemory of the index, bytes a cached block\n");
  for (const std::uint32_t length : {4U, 16U, 128U, 2048U}) {
    for (const std::uint32_t blocks : options.blocks) {
      if (blocks < 2 * length) continue;
      const Fixture fixture{blocks, length};
      print("{:<8}{:>10}{:>8}", "bytes", blocks, length);
      for (const auto& subject : fixture.subjects) {
        print("{:>10.1f}{:>7}", static_cast<double>(subject->bytes()) / static_cast<double>(blocks), "");
      }
      print("\n");
    }
  }
  benchmark::Shutdown();
  if (!options.report.empty()) results.write(options.report);
}

}  // namespace terrace::tools
