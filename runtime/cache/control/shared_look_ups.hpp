#pragma once

#include "base/slab.hpp"
#include "base/vector_pool.hpp"
#include "runtime/cache/orders/actions.hpp"
#include "runtime/cache/types/config.hpp"
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

/// Asks the shared store which blocks it has, for requests and others. A request that asks waits only for this answer, and at
/// most until its deadline.
///
///     look() --> probe under way --> on_probed(): the answer of each asker
///                  |    |
///                  |    +--(the asker's deadline)--> on_time(): the answer "nothing", and the probe is cancelled
///                  +--(leave())--> no answer
///
/// A request joins a probe that is under way if the probe asks for all of its keys at the same places.
///
/// If the store does not have a block, that is remembered for a short time (SharedConfig::miss_lifetime), in a table of fixed
/// size. So a missing prefix that many requests ask for costs one probe in that time. Blocks that the store has are not
/// remembered: their reads follow at once.
///
/// It does no I/O and reads no clock. Ownership: CacheManager owns it. Threads: the manager's.
class SharedLookUps {
 public:
  /// The part of the manager that asks, and the number that it has given to the question.
  struct Asker {
    enum class Kind : std::uint8_t { request, prefetch, find };
    Kind kind = Kind::request;
    std::uint64_t number = 0;

    friend bool operator==(const Asker&, const Asker&) = default;
  };
  struct Answer {
    Asker asker;
    /// The store has the blocks of the asker's prefix from the place where the question begins to before this place. 0: it has
    /// none.
    std::uint32_t end = 0;
    /// One byte for each key of look_each(), not 0 if the store has it. Empty if no key is known to be there.
    std::vector<std::uint8_t> there{};
    bool complete = false;  ///< of look_each(): the store does not have the keys with byte 0. If false, this is not known
  };
  /// Upper bound of the probes under way. When it is reached, further requests do not ask.
  static constexpr std::size_t probes_max = 4096;

  /// Orders are appended to `actions`. All arguments outlive this object.
  SharedLookUps(const SharedConfig& config, SharedActions& actions, SharedTotals& totals);
  SharedLookUps(const SharedLookUps&) = delete;
  SharedLookUps& operator=(const SharedLookUps&) = delete;

  /// Returns true if look() may be called.
  [[nodiscard]] bool has_room() const { return probes_.size() < probes_max; }
  /// Returns true if the store is known not to have this block, by a recent answer.
  [[nodiscard]] bool is_missing(const BlockKey& key, TimePoint now) const;
  /// Asks for `keys`, at least one: the blocks of a prefix from place `from` on. There is one answer, unless the asker leaves.
  /// The asker waits at most until `deadline`, and at most for SharedConfig::probe_timeout.
  void look(Asker asker, std::span<const BlockKey> keys, std::uint32_t from, TimePoint deadline, TimePoint now);
  /// The same for blocks of several groups. The store answers for each block individually. `groups`: the group of each key. An
  /// asker joins only a probe for the same keys.
  void look_each(Asker asker, std::span<const BlockKey> keys, std::span<const GroupId> groups, TimePoint deadline, TimePoint now);
  /// Records that the store does not have this block. Askers of look_each() call it for the blocks that matter.
  void missed(const BlockKey& key, TimePoint now) { missing_[place_of(key)] = {key, now + config_.miss_lifetime}; }
  /// The asker does not need the answer any more. Does nothing if it has no open question.
  void leave(Asker asker);
  /// The probe with this token has ended: the store has the first `leading` of its keys.
  void on_probed(std::uint32_t token, ErrorCode error, std::uint32_t leading, TimePoint now);
  void on_time(TimePoint now);
  [[nodiscard]] TimePoint next_deadline() const { return next_deadline_; }
  /// After a clear, the same keys stand for other blocks: forgets which blocks were missing.
  void forget() { missing_.fill({}); }

  [[nodiscard]] bool has_answers() const { return !answers_.empty(); }
  /// The answers since the last call, in order. Swaps the vectors, so that their memory is reused.
  void take_answers(std::vector<Answer>& answers) {
    answers.clear();
    answers.swap(answers_);
  }

  /// asking(): number of askers that wait for an answer. probes(): number of probes that have not ended.
  [[nodiscard]] std::size_t asking() const { return looks_.size(); }
  [[nodiscard]] std::size_t probes() const { return probes_.size(); }
  [[nodiscard]] bool asks(Asker asker) const;
  /// Average time of recent answers of the store, in seconds. 0: not known.
  [[nodiscard]] double round_trip_seconds() const { return round_trip_seconds_; }
  void check_invariants() const;

 private:
  struct Probe {
    std::vector<BlockKey> keys;
    std::uint32_t from = 0;
    std::uint32_t askers = 0;  ///< number of askers that still wait
    TimePoint begun{};
    std::vector<GroupId> groups{};      ///< for look_each(), like `there`; the store has spans of both
    std::vector<std::uint8_t> there{};  ///< the store writes the answer here
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
