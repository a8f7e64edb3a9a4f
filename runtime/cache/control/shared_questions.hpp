#pragma once

#include "base/slab.hpp"
#include "base/vector_pool.hpp"
#include "runtime/cache/control/hit_planner.hpp"
#include "runtime/cache/control/manager_state.hpp"
#include "runtime/cache/control/shared_answer.hpp"
#include "runtime/cache/orders/actions.hpp"
#include "terrace/clock.hpp"
#include "terrace/offload_orders.hpp"
#include "terrace/types.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace terrace {

/// Asks the shared store which blocks it has: for requests, for prefetches, and for OffloadCache::find. Whoever asks waits only
/// for this answer, and at most until its deadline.
///
///     worth_asking() --> ask() --> probe under way --> on_probed(): the answer of each asker
///                                    |    |
///                                    |    +--(the asker's deadline)--> on_time(): the answer "nothing", the probe is cancelled
///                                    +--(leave())--> no answer
///
/// An asker joins a probe that is under way if the probe asks for all of its keys at the same places.
///
/// If the store does not have a block, that is remembered for a short time (SharedConfig::miss_lifetime), in a table of fixed
/// size. So a missing prefix that many requests ask for costs one probe in that time. Blocks that the store has are not
/// remembered: their reads follow at once.
///
/// OffloadCache::find does not wait: its caller calls it again for the answer.
///
///     find() --> asked --(the answer)--> answered --(told once, and SharedConfig::miss_lifetime)--> forgotten
///
/// It does no I/O and reads no clock. Ownership: CacheManager owns it. Threads: the manager's.
class SharedQuestions {
 public:
  /// Who asks, and the number that it has given to the question.
  struct Asker {
    enum class Kind : std::uint8_t { request, prefetch, find };
    Kind kind = Kind::request;
    std::uint64_t number = 0;

    friend bool operator==(const Asker&, const Asker&) = default;
  };
  /// Which of these blocks the store has. Its spans belong to whoever made it.
  struct Question {
    std::span<const BlockKey> keys;     ///< at least one
    std::uint32_t from = 0;             ///< a single group: the place of the first key in its prefix
    std::span<const GroupId> groups{};  ///< several groups: by key. The store answers for each block.
    /// The places in `keys` of the blocks that no tier has and without which the hit cannot become longer.
    std::span<const std::uint32_t> needed{};
  };
  /// An answer, in the form of SharedAnswer::set.
  struct Answer {
    Asker asker;
    std::uint32_t end = 0;  ///< 0: the store has nothing
    std::vector<std::uint8_t> there{};
  };
  /// Upper bound of the probes under way, and of the questions of find(). When it is reached, nobody asks.
  static constexpr std::size_t probes_max = 4096;

  /// Both outlive this object. Orders are appended to the actions of the first pool.
  SharedQuestions(ManagerState& state, HitPlanner& planner);
  SharedQuestions(const SharedQuestions&) = delete;
  SharedQuestions& operator=(const SharedQuestions&) = delete;

  /// The tiers can serve `found` units of `keys`, and `hits` of them will be used. Returns the question for more blocks, if an
  /// answer could make the hit longer, a load would be faster than computing, and the store is not known to lack the next block.
  /// It is valid until the next call, and as long as `keys`. `answer` gets the question's parts.
  [[nodiscard]] std::optional<Question> worth_asking(std::span<const BlockKey> keys, std::uint32_t found, std::uint32_t hits,
                                                     Source farthest, SharedAnswer& answer);
  /// There is one answer, unless the asker leaves. The asker waits at most until `deadline`, and at most for
  /// SharedConfig::probe_timeout.
  void ask(Asker asker, const Question& question, TimePoint deadline);
  /// The asker does not need the answer any more. Does nothing if it has no open question.
  void leave(Asker asker);
  /// For OffloadCache::find. The tiers have the blocks of the first `local` keys, and not the next one. The result includes these
  /// blocks. Callers with the same keys share a question.
  [[nodiscard]] OffloadFound find(std::span<const BlockKey> keys, std::uint32_t local);
  /// The time from the first to the last call of find() for the same question, if the last call was the first with its answer.
  [[nodiscard]] std::optional<Duration> take_looked() { return std::exchange(looked_, std::nullopt); }

  /// The probe with this token has ended: the store has the first `leading` of its keys.
  void on_probed(std::uint32_t token, ErrorCode error, std::uint32_t leading);
  /// The time has changed (ManagerState::now).
  void on_time();
  [[nodiscard]] TimePoint next_deadline() const { return next_deadline_; }
  /// After a clear, the same keys stand for other blocks: forgets which blocks were missing.
  void forget() { missing_.fill({}); }

  [[nodiscard]] bool has_answers() const { return !answers_.empty(); }
  /// The answers for requests and prefetches since the last call, in order. Swaps the vectors, so that their memory is reused.
  void take_answers(std::vector<Answer>& answers) {
    answers.clear();
    answers.swap(answers_);
  }

  /// Returns true if the store is known not to have this block, by a recent answer.
  [[nodiscard]] bool is_missing(const BlockKey& key) const;
  /// asking(): number of askers that wait for an answer. probes(): number of probes that have not ended.
  [[nodiscard]] std::size_t asking() const { return looks_.size(); }
  [[nodiscard]] std::size_t probes() const { return probes_.size(); }
  [[nodiscard]] bool asks(Asker asker) const;
  /// Average time of recent answers of the store, in seconds. 0: not known.
  [[nodiscard]] double round_trip_seconds() const { return round_trip_seconds_; }
  void check_invariants() const;

 private:
  using Index = std::uint32_t;
  struct Probe {
    std::vector<BlockKey> keys;
    std::uint32_t from = 0;
    std::uint32_t askers = 0;  ///< number of askers that still wait
    TimePoint begun{};
    std::vector<GroupId> groups{};        ///< as in Question. The store has spans of this and of `there`.
    std::vector<std::uint32_t> needed{};  ///< as in Question
    std::vector<std::uint8_t> there{};    ///< several groups: the store writes the answer here, a byte for each key
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
  /// A question of find(). It is named by a digest of all its keys: a wrong answer costs at most a miss.
  struct Find {
    std::uint64_t name = 0;
    std::uint32_t from = 0;  ///< index of the first key that was asked for
    std::uint32_t end = 0;   ///< the store has the keys from `from` to before this one
    TimePoint begun{};
    TimePoint until{};  ///< the answer is used until this time, and at least once
    bool answered = false;
    bool told = false;
  };
  static constexpr std::size_t missing_max = 1024;

  [[nodiscard]] Question ask_groups(std::span<const BlockKey> keys, std::uint32_t found, Source farthest, SharedAnswer& answer);
  [[nodiscard]] static std::size_t place_of(const BlockKey& key) { return key.prefix64() % missing_max; }
  void missed(const BlockKey& key);
  void tell(Asker asker, std::uint32_t end, std::span<const std::uint8_t> there);
  void end_look(std::size_t place);
  void measure(const Probe& probe);
  void find_next_deadline();
  [[nodiscard]] bool has_room_for_find();
  void forget_find(Index index);
  void forget_finds_before_clear();

  ManagerState& state_;
  HitPlanner& planner_;
  SharedActions& actions_;
  Slab<Probe> probes_;
  std::vector<std::uint32_t> open_;  ///< probes that have askers, the oldest first
  std::vector<Look> looks_;
  std::vector<Answer> answers_;  ///< not taken yet
  std::array<Missing, missing_max> missing_{};
  Slab<Find> finds_;
  boost::unordered_flat_map<std::uint64_t, Index> finds_by_name_;
  Epoch finds_epoch_;  ///< the epoch of all finds
  std::optional<Duration> looked_;
  VectorPool<BlockKey> spare_keys_;
  TimePoint next_deadline_ = never;
  double round_trip_seconds_ = 0;
  std::vector<BlockKey> asked_keys_;   ///< of the last question for several groups, like the next two
  std::vector<GroupId> asked_groups_;  ///< by key
  std::vector<std::uint32_t> needed_;  ///< by group
  std::vector<Source> sources_;        ///< scratch
};

}  // namespace terrace
