#pragma once

#include "base/slab.hpp"
#include "base/vector_pool.hpp"
#include "runtime/orders/actions.hpp"
#include "runtime/types/config.hpp"
#include "terrace/clock.hpp"
#include "terrace/result.hpp"
#include "terrace/statistics.hpp"
#include "terrace/types.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// Asks the shared store which blocks it has, for requests and others. A request that asks waits for nobody but this answer, and
/// for that only until its deadline.
///
///     look() --> probe under way --> on_probed(): the answer of each asker
///                  |    |
///                  |    +--(the asker's deadline)--> on_time(): the answer "nothing", and the probe is cancelled
///                  +--(leave())--> no answer
///
/// A request joins a probe that is under way if that asks for all of its keys at the same places.
///
/// A block that the store just said it does not have is remembered for a short time (SharedConfig::miss_lifetime), in a table of
/// fixed size, so that a prefix that many ask for and nobody has costs one probe in that time. What the store has is not
/// remembered: the reads show it.
///
/// It does no I/O and reads no clock. Ownership: CacheManager owns it. Threads: the manager's.
class SharedLookUps {
 public:
  /// The part of the manager that asks, and its own number for the question.
  struct Asker {
    enum class Kind : std::uint8_t { request, prefetch, find };
    Kind kind = Kind::request;
    std::uint64_t number = 0;

    friend bool operator==(const Asker&, const Asker&) = default;
  };
  struct Answer {
    Asker asker;
    /// The blocks before this place in the asker's prefix, from the place where it began to ask, are there. 0: none is.
    std::uint32_t end = 0;
    /// One byte for each key of look_each(), not 0 if it is there; empty if none is known to be.
    std::vector<std::uint8_t> there{};
    bool complete = false;  ///< of look_each(): a key whose byte is 0 is not there
  };
  /// At most so many probes are under way. More requests than that do not ask.
  static constexpr std::size_t probes_max = 4096;

  /// The work goes to `actions`. All outlive this object.
  SharedLookUps(const SharedConfig& config, SharedActions& actions, SharedTotals& totals);
  SharedLookUps(const SharedLookUps&) = delete;
  SharedLookUps& operator=(const SharedLookUps&) = delete;

  /// Whether look() is possible.
  [[nodiscard]] bool has_room() const { return probes_.size() < probes_max; }
  /// The store has just said that it does not have this block.
  [[nodiscard]] bool is_missing(const BlockKey& key, TimePoint now) const;
  /// Asks for `keys`, at least one: the blocks of a prefix from place `from` on. There is one answer, unless the asker leaves.
  /// `deadline`: of the asker; it waits until then at the longest, and no longer than SharedConfig::probe_timeout.
  void look(Asker asker, std::span<const BlockKey> keys, std::uint32_t from, TimePoint deadline, TimePoint now);
  /// The same for blocks of several groups, each of which is asked for by itself. `groups`: the group of each key. An asker joins
  /// only a probe for the same keys.
  void look_each(Asker asker, std::span<const BlockKey> keys, std::span<const GroupId> groups, TimePoint deadline, TimePoint now);
  /// The store does not have this block. Is called by those who asked by look_each() and know which block is of interest.
  void missed(const BlockKey& key, TimePoint now) { missing_[place_of(key)] = {key, now + config_.miss_lifetime}; }
  /// The asker does not want to know any more. Nothing happens if it does not ask.
  void leave(Asker asker);
  /// The probe with this token has ended. Of its keys, `leading` are there.
  void on_probed(std::uint32_t token, ErrorCode error, std::uint32_t leading, TimePoint now);
  void on_time(TimePoint now);
  [[nodiscard]] TimePoint next_deadline() const { return next_deadline_; }
  /// Blocks mean something else from now on: forgets what was missing.
  void forget() { missing_.fill({}); }

  [[nodiscard]] bool has_answers() const { return !answers_.empty(); }
  /// The answers since the last call, in order. Swaps the vectors, so that their memory is used again.
  void take_answers(std::vector<Answer>& answers) {
    answers.clear();
    answers.swap(answers_);
  }

  /// Requests that wait for an answer, and probes that have not ended.
  [[nodiscard]] std::size_t asking() const { return looks_.size(); }
  [[nodiscard]] std::size_t probes() const { return probes_.size(); }
  [[nodiscard]] bool asks(Asker asker) const;
  /// How long the store lately took to answer, in seconds. 0: not known.
  [[nodiscard]] double round_trip_seconds() const { return round_trip_seconds_; }
  void check_invariants() const;

 private:
  struct Probe {
    std::vector<BlockKey> keys;
    std::uint32_t from = 0;
    std::uint32_t askers = 0;  ///< that still wait
    TimePoint begun{};
    std::vector<GroupId> groups{};      ///< of look_each(), like the next one; the store has spans of both
    std::vector<std::uint8_t> there{};  ///< the store writes it
  };
  struct Look {
    Asker asker;
    std::uint32_t probe = 0;
    std::uint32_t from = 0;
    std::uint32_t end = 0;
    TimePoint deadline = never;
  };
  struct Missing {
    BlockKey key;
    TimePoint until{};
  };
  static constexpr std::size_t missing_max = 1024;

  [[nodiscard]] static std::size_t place_of(const BlockKey& key) { return key.prefix64() % missing_max; }
  void end_look(std::size_t place);
  void wait_for(Asker asker, std::uint32_t token, std::uint32_t from, std::uint32_t end, TimePoint until);
  void measure(const Probe& probe, TimePoint now);
  void answer_each(std::uint32_t token, const Probe& probe, ErrorCode error);
  void find_next_deadline();

  const SharedConfig& config_;
  SharedActions& actions_;
  SharedTotals& totals_;
  Slab<Probe> probes_;
  std::vector<std::uint32_t> open_;  ///< probes that have askers, the oldest first
  std::vector<Look> looks_;
  std::vector<Answer> answers_;  ///< not taken yet
  std::array<Missing, missing_max> missing_{};
  VectorPool<BlockKey> spare_keys_;
  TimePoint next_deadline_ = never;
  double round_trip_seconds_ = 0;
};

}  // namespace terrace
