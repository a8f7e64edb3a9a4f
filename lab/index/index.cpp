#include "lab/benches.hpp"

#include "base/random.hpp"
#include "lab/index/index_subject.hpp"
#include "lab/index/trace_prompts.hpp"
#include "lab/rounds.hpp"
#include "terrace/keys.hpp"
#include "tools/output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

namespace terrace::tools {
namespace {

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

/// A cache full of prompts, and the progress of a benchmark with it: each run continues where the last one stopped; otherwise it
/// would ask for the blocks that were inserted last.
struct Subject {
  std::unique_ptr<IndexSubject> index;
  std::uint64_t turn = 0;
  Random random{7};

  void rename(BlockKey& key) {
    const std::uint64_t fresh = random.engine()();
    std::memcpy(key.bytes.data(), &fresh, sizeof fresh);
  }
};

/// Caches full of prompts of one length.
struct Fixture {
  /// `turn`: each prompt is cached in turns of this many blocks, and after each turn another prompt branches off with one block,
  /// so that a tree needs a node for each turn. 0: each prompt is cached at once.
  Fixture(std::uint32_t blocks, std::uint32_t length, std::size_t kinds = subject_count, std::uint32_t turn = 0)
      : length{length}, cached{blocks, length, 1}, keys(length) {
    const std::uint32_t branches = turn == 0 ? 0 : blocks / turn;
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      Subject& subject = subjects.emplace_back(Subject{make_subject(static_cast<SubjectKind>(kind), blocks + branches)});
      for (std::size_t i = 0; i < cached.size(); ++i) {
        for (std::uint32_t end = turn; end < length && turn > 0; end += turn) {
          std::ranges::copy(cached[i].first(end + 1), keys.begin());
          subject.rename(keys[end]);
          subject.index->serve(std::span{keys}.first(end + 1));
        }
        subject.index->serve(cached[i]);
      }
    }
  }

  /// Chooses the cached prompts in a scattered order, so that the processor's caches do not hold them (unless all of them fit).
  /// Copies the keys, because a real caller has just made them, so they are in the processor's cache.
  std::span<BlockKey> next_prompt(Subject& subject) {
    const std::uint64_t scattered = ++subject.turn * 0x9E37'79B9'7F4A'7C15U % cached.size();
    std::ranges::copy(cached[static_cast<std::size_t>(scattered)], keys.begin());
    return keys;
  }

  std::uint32_t length;
  Prompts cached;
  std::vector<BlockKey> keys;  ///< scratch memory
  std::vector<Subject> subjects;
};

/// The time of each call, until they have taken long enough.
class Calls {
 public:
  [[nodiscard]] bool go_on() const { return seconds_ < seconds_min; }
  template <class Call>
  void time(Call&& call) {
    const double seconds = seconds_of(call);
    seconds_ += seconds;
    nanos_.push_back(seconds * 1e9);
  }
  [[nodiscard]] double percentile_ns(std::size_t percent) {
    std::ranges::sort(nanos_);
    return nanos_[nanos_.size() * percent / 100];
  }

 private:
  static constexpr double seconds_min = 0.05;

  double seconds_ = 0;
  std::vector<double> nanos_;
};

void expect_found(std::uint32_t hits, const Fixture& fixture) {
  if (hits != fixture.length) throw std::runtime_error{"a cached prompt was not found"};
}

void match(Fixture& fixture, Subject& subject, Calls& calls) {
  const std::span<const BlockKey> keys = fixture.next_prompt(subject);
  std::uint32_t hits = 0;
  calls.time([&] { hits = subject.index->match(keys); });
  expect_found(hits, fixture);
}

enum class Cached : std::uint8_t { none, half, all };

/// Serves a prompt of which this part is cached. The rest is new, so as many blocks are evicted. If it is the half, then over two
/// rounds through the prompts LRU finds the first half of each prompt again.
template <Cached cached>
void serve(Fixture& fixture, Subject& subject, Calls& calls) {
  const std::span<BlockKey> keys = fixture.next_prompt(subject);
  const std::size_t known = cached == Cached::all ? keys.size() : cached == Cached::half ? keys.size() / 2 : 0;
  for (BlockKey& key : keys.subspan(known)) subject.rename(key);
  calls.time([&] { subject.index->serve(keys); });
}

constexpr std::uint32_t evicted_blocks = 256;

void evict(Fixture& fixture, Subject& subject, Calls& calls) {
  calls.time([&] { subject.index->evict(evicted_blocks); });
  // The same number of blocks is inserted. All are new, because the policy decided which blocks were evicted.
  for (std::uint32_t n = 0; n < evicted_blocks; n += fixture.length) {
    for (BlockKey& key : fixture.keys) subject.rename(key);
    subject.index->serve(fixture.keys);
  }
}

struct Operation {
  std::string_view name;
  void (*run)(Fixture&, Subject&, Calls&);
  std::vector<std::uint32_t> lengths;
  double blocks_a_call = 1;  ///< the unit of the times
  std::uint32_t turn = 0;    ///< as for Fixture
};

Row row_of(std::string_view operation, std::uint32_t blocks, std::uint32_t length) {
  return {{"operation", operation}, {"blocks", blocks}, {"prompt_blocks", length}};
}

/// Lets the subjects take turns. A first round only warms up.
Row measure(const Operation& operation, std::uint32_t blocks, std::uint32_t length, unsigned rounds) {
  Fixture fixture{blocks, length, subject_count, operation.turn};
  std::vector<Figures> figures(subject_count);
  for (unsigned round = 0; round <= rounds; ++round) {
    for (std::size_t turn = 0; turn < subject_count; ++turn) {
      const std::size_t kind = (turn + round) % subject_count;
      Calls calls;
      while (calls.go_on()) operation.run(fixture, fixture.subjects[kind], calls);
      if (round == 0) continue;
      figures[kind].add("p50_ns", calls.percentile_ns(50) / operation.blocks_a_call);
      figures[kind].add("p99_ns", calls.percentile_ns(99) / operation.blocks_a_call);
    }
  }
  Row row = row_of(operation.name, blocks, length);
  const double floor = figures[static_cast<std::size_t>(SubjectKind::floor)].median("p50_ns");
  for (std::size_t kind = 0; kind < subject_count; ++kind) {
    Row of_subject;
    of_subject["floors"] = figures[kind].median("p50_ns") / floor;
    figures[kind].add_medians(of_subject);
    row[to_string(static_cast<SubjectKind>(kind))] = std::move(of_subject);
  }
  return row;
}

/// Measures how long it takes to make the keys of a prompt from its tokens, without a lookup and with it. These prompts are
/// cached in addition to those of the fixture.
Row measure_tokens(std::uint32_t blocks, std::uint32_t length, unsigned rounds) {
  constexpr std::uint32_t block_tokens = 64;
  Fixture fixture{blocks, length, 1};
  const Subject& subject = fixture.subjects.front();
  const std::vector<std::vector<TokenId>> prompts = random_prompts(3, 8, length * block_tokens);
  std::uint64_t turn = 0;
  const auto next_keys = [&] {
    KeyChain chain{BlockKey{}, block_tokens};
    chain.append(prompts[++turn % prompts.size()]);
    return chain;
  };
  for (std::size_t n = 0; n < prompts.size(); ++n) subject.index->serve(next_keys().keys());
  Figures figures;
  for (unsigned round = 0; round <= rounds; ++round) {
    Calls keys;
    while (keys.go_on()) {
      std::size_t made = 0;
      keys.time([&] { made = next_keys().keys().size(); });
      expect_found(static_cast<std::uint32_t>(made), fixture);
    }
    Calls matches;
    while (matches.go_on()) {
      std::uint32_t hits = 0;
      matches.time([&] { hits = subject.index->match(next_keys().keys()); });
      expect_found(hits, fixture);
    }
    if (round == 0) continue;
    figures.add("keys_ns", keys.percentile_ns(50));
    figures.add("match_ns", matches.percentile_ns(50));
  }
  Row row = row_of("tokens", blocks, length);
  figures.add_medians(row);
  row["ratio"] = figures.median("match_ns") / figures.median("keys_ns");
  return row;
}

Row measure_memory(std::uint32_t blocks, std::uint32_t length) {
  const Fixture fixture{blocks, length};
  Row row = row_of("bytes", blocks, length);
  for (std::size_t kind = 0; kind < subject_count; ++kind) {
    const double bytes = static_cast<double>(fixture.subjects[kind].index->bytes()) / static_cast<double>(blocks);
    row[to_string(static_cast<SubjectKind>(kind))] = bytes;
  }
  return row;
}

constexpr Column time_columns[] = {{"operation", "", -8},
                                   {"blocks", "cached", 10},
                                   {"prompt_blocks", "prompt", 8},
                                   {"terrace-adaptive.p50_ns", "adaptive", 10, 1},
                                   {"terrace-adaptive.floors", "floors", 7, 2},
                                   {"terrace-lru.p50_ns", "lru", 10, 1},
                                   {"terrace-lru.floors", "floors", 7, 2},
                                   {"tree.p50_ns", "tree", 10, 1},
                                   {"tree.floors", "floors", 7, 2},
                                   {"map.p50_ns", "map", 10, 1},
                                   {"map.floors", "floors", 7, 2},
                                   {"floor.p50_ns", "floor", 10, 1},
                                   {"terrace-adaptive.p99_ns", "adaptive p99", 14, 1}};
constexpr Column token_columns[] = {{"operation", "", -8},   {"blocks", "cached", 10},       {"prompt_blocks", "prompt", 8},
                                    {"keys_ns", "keys", 14}, {"match_ns", "with match", 14}, {"ratio", "", 8, 2}};
constexpr Column memory_columns[] = {{"operation", "", -8},
                                     {"blocks", "cached", 10},
                                     {"prompt_blocks", "prompt", 8},
                                     {"terrace-adaptive", "adaptive", 10, 1},
                                     {"terrace-lru", "lru", 10, 1},
                                     {"tree", "", 10, 1},
                                     {"map", "", 10, 1},
                                     {"floor", "", 10, 1}};

void check(const IndexBenchOptions& options) {
  // Prompts that find half of their blocks evict as many, which others must not need.
  constexpr std::uint32_t blocks_min = 256;
  for (const std::uint32_t blocks : options.blocks) {
    if (blocks < blocks_min) {
      throw std::invalid_argument{fmt::format("--blocks {}: must be at least {} without --trace", blocks, blocks_min)};
    }
  }
}

/// Adds the times of the requests to the figures of a subject. Returns the hits, which are the same in each round.
std::uint64_t replay_once(SubjectKind kind, const TracePrompts& prompts, std::uint32_t capacity, Figures& figures) {
  const auto subject = make_subject(kind, capacity);
  std::uint64_t hits = 0;
  std::vector<double> micros;
  micros.reserve(prompts.size());
  for (const auto& prompt : prompts) micros.push_back(1e6 * seconds_of([&] { hits += subject->serve(prompt); }));
  figures.add_micros(std::move(micros));
  return hits;
}

constexpr Column trace_columns[] = {{"subject", "", -16},         {"hit_percent", "hits, %", 9, 2},
                                    {"mean_us", "mean us", 9, 2}, {"floors", "floors", 8, 2},
                                    {"p50_us", "p50 us", 9, 2},   {"p99_us", "p99 us", 9, 2},
                                    {"max_us", "max us", 9, 1},   {"mblocks_per_second", "Mblocks/s", 11, 2}};

Row bench_trace(const IndexBenchOptions& options) {
  const std::uint32_t capacity = options.blocks.front();
  const TracePrompts prompts = read_prompts(options.trace, options.trace_block_tokens, options.block_tokens, capacity);
  const std::uint64_t blocks = block_count(prompts);

  std::array<Figures, subject_count> figures;
  std::array<std::uint64_t, subject_count> hits{};
  for (unsigned round = 0; round < options.rounds; ++round) {
    for (std::size_t kind = 0; kind < subject_count; ++kind) {
      hits[kind] = replay_once(static_cast<SubjectKind>(kind), prompts, capacity, figures[kind]);
    }
  }
  constexpr auto floor = static_cast<std::size_t>(SubjectKind::floor);
  for (std::size_t kind = 0; kind < subject_count; ++kind) {
    if (static_cast<SubjectKind>(kind) == SubjectKind::terrace_adaptive) continue;
    if (hits[kind] != hits[floor]) throw std::runtime_error{"the indexes disagree on the hits: one of them is wrong"};
  }

  Row report{{"trace", options.trace.string()},      {"requests", prompts.size()}, {"blocks", blocks}, {"capacity", capacity},
             {"block_tokens", options.block_tokens}, {"rounds", options.rounds}};
  print("{} requests, {} blocks of {} tokens, {} cached at most; medians of {} rounds\n\n", prompts.size(), blocks,
        options.block_tokens, capacity, options.rounds);
  print_head(trace_columns);
  for (std::size_t kind = 0; kind < subject_count; ++kind) {
    const std::string_view subject = to_string(static_cast<SubjectKind>(kind));
    const double mean_us = figures[kind].median("mean_us");
    Row row{{"subject", subject},
            {"hits", hits[kind]},
            {"hit_percent", 100 * static_cast<double>(hits[kind]) / static_cast<double>(blocks)},
            {"floors", mean_us / figures[floor].median("mean_us")},
            {"mblocks_per_second", static_cast<double>(blocks) / (mean_us * static_cast<double>(prompts.size()))}};
    figures[kind].add_medians(row);
    print_row(trace_columns, row);
    report[subject] = std::move(row);
  }
  return report;
}

}  // namespace

Row bench_index(const IndexBenchOptions& options) {
  if (!options.trace.empty()) return bench_trace(options);
  check(options);
  const std::vector<Operation> operations{{"match", match, {16, 128, 2048}},
                                          {"turns", match, {2048}, 1, 64},
                                          {"hit", serve<Cached::all>, {16}},
                                          {"new", serve<Cached::none>, {16}},
                                          {"cycle", serve<Cached::half>, {16, 64, 2048}},
                                          {"evict", evict, {16, 256}, evicted_blocks}};
  boost::json::array rows;
  /// Measures each length at each size that has room for some prompts of it.
  const auto each = [&](std::span<const Column> columns, const std::vector<std::uint32_t>& lengths, std::uint32_t prompts_min,
                        const auto& measure_one) {
    for (const std::uint32_t length : lengths) {
      for (const std::uint32_t blocks : options.blocks) {
        if (blocks < prompts_min * length) continue;
        add_row(rows, columns, measure_one(blocks, length));
      }
    }
  };
  print("medians in ns (evict: of one block), and as multiples of the floor's\n\n");
  print_head(time_columns);
  for (const Operation& operation : operations) {
    each(time_columns, operation.lengths, 2,
         [&](std::uint32_t blocks, std::uint32_t length) { return measure(operation, blocks, length, options.rounds); });
  }
  print("\nmatch from tokens, 64 a block: ns to make the keys, with the match, and its ratio\n");
  print_head(token_columns);
  each(token_columns, {16, 128, 2048}, 16,
       [&](std::uint32_t blocks, std::uint32_t length) { return measure_tokens(blocks, length, options.rounds); });
  print("\nmemory of the index, bytes a cached block\n");
  print_head(memory_columns);
  each(memory_columns, {4, 16, 128, 2048}, 2, measure_memory);
  return {{"rounds", options.rounds}, {"index", std::move(rows)}};
}

}  // namespace terrace::tools
