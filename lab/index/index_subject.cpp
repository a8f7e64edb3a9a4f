#include "lab/index/index_subject.hpp"

#include "base/check.hpp"
#include "lab/index/index_map.hpp"
#include "lab/index/index_tree.hpp"
#include "runtime/cache/control/cache_manager.hpp"

#include <utility>

namespace terrace::tools {
namespace {

/// Makes the calls that an engine's scheduler makes for a request, without the data plane.
class TerraceSubject final : public IndexSubject {
 public:
  TerraceSubject(std::uint32_t capacity, PolicyFactory policy) : manager_{config(capacity, std::move(policy))} {}

  std::uint32_t match(std::span<const BlockKey> keys) override { return manager_.requests().match(keys).found[Source::device]; }

  std::uint32_t serve(std::span<const BlockKey> keys) override {
    const std::uint32_t hits = manager_.requests().match(keys).found[Source::device];
    const RequestId id = acquire(keys, static_cast<std::uint32_t>(keys.size()));
    TERRACE_CHECK(manager_.requests().commit(id, keys, Fence{}).has_value());
    manager_.settle();
    TERRACE_CHECK(manager_.requests().release(id, Fence{}).has_value());
    manager_.settle();
    return hits;
  }

  void evict(std::uint32_t blocks) override {
    const RequestId id = acquire({}, blocks);
    TERRACE_CHECK(manager_.requests().release(id, Fence{}).has_value());
    manager_.settle();
  }

  std::size_t bytes() const override { return manager_.bytes_held(); }

 private:
  static ManagerConfig config(std::uint32_t capacity, PolicyFactory policy) {
    ManagerConfig made;
    made.pools[0].device_blocks = capacity;
    made.policy = std::move(policy);
    return made;
  }

  RequestId acquire(std::span<const BlockKey> keys, std::uint32_t blocks) {
    AcquireRequest wanted;
    wanted.id = RequestId{++last_id_};
    wanted.keys = keys;
    wanted.units = HashUnits{blocks};
    const Result<Acquired> acquired = manager_.acquire(wanted);
    TERRACE_CHECK(acquired.has_value() && *acquired == Acquired::ready);
    return wanted.id;
  }

  CacheManager manager_;
  std::uint64_t last_id_ = 0;
};

}  // namespace

std::string_view to_string(SubjectKind kind) {
  switch (kind) {
    case SubjectKind::terrace_adaptive: return "terrace-adaptive";
    case SubjectKind::terrace_lru: return "terrace-lru";
    case SubjectKind::tree: return "tree";
    case SubjectKind::map: return "map";
    case SubjectKind::floor: return "floor";
  }
  return "?";
}

std::unique_ptr<IndexSubject> make_subject(SubjectKind kind, std::uint32_t capacity) {
  switch (kind) {
    case SubjectKind::terrace_adaptive: return std::make_unique<TerraceSubject>(capacity, adaptive_policy);
    case SubjectKind::terrace_lru: return std::make_unique<TerraceSubject>(capacity, lru_policy);
    case SubjectKind::tree: return std::make_unique<TreeIndex>(capacity);
    case SubjectKind::map: return std::make_unique<MapIndex<Prefetch::no>>(capacity);
    case SubjectKind::floor: return std::make_unique<MapIndex<Prefetch::yes>>(capacity);
  }
  return nullptr;
}

}  // namespace terrace::tools
