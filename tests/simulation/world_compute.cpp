#include "tests/simulation/world_client.hpp"

#include "base/check.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

namespace terrace::test {
namespace {

/// The words of a block's content. They depend on the whole key, because keys may share a part.
class Words {
 public:
  Words(const BlockKey& key, std::uint64_t weights) {
    std::array<std::uint64_t, 4> parts;
    std::memcpy(parts.data(), key.bytes.data(), sizeof parts);
    for (const std::uint64_t part : parts) seed_ = (seed_ ^ part) * 0x9E37'79B9'7F4A'7C15ULL;
    first_ = seed_ + weights * 0x9E37'79B9U;
  }
  [[nodiscard]] std::uint64_t at(std::size_t i) const { return first_ + i * (seed_ | 1); }

 private:
  std::uint64_t seed_ = 0;
  std::uint64_t first_ = 0;
};

/// The work of compute on a block: compare it, or write it.
struct Work {
  PoolId pool;
  SlotId slot;
  BlockKey key;
  bool hit = false;
};

}  // namespace

void fill_content(const BlockKey& key, std::uint64_t weights, std::size_t begin, std::span<std::byte> part) {
  const Words words{key, weights};
  for (std::size_t i = 0; i + 8 <= part.size(); i += 8) {
    const std::uint64_t word = words.at(begin + i);
    std::memcpy(part.data() + i, &word, sizeof word);
  }
}

bool has_content(const BlockKey& key, std::uint64_t weights, std::size_t begin, std::span<const std::byte> part) {
  const Words words{key, weights};
  for (std::size_t i = 0; i + 8 <= part.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, part.data() + i, sizeof word);
    if (word != words.at(begin + i)) return false;
  }
  return true;
}

/// Checks the layers, and launches what a model would do at that time: read them, and write into the new blocks.
void World::told_of_layers(Client& client, std::uint32_t layers) {
  TERRACE_CHECK(layers > client.layers && layers < options_.layers);
  TERRACE_CHECK(cache_->state(client.lease) != RequestState::ready);
  client.layers = layers;
  ++seen_->layers_told;
  std::vector<Work> work;
  const auto hits = static_cast<std::uint32_t>(cache_->hit_sources(client.lease)->size());
  const Fence reached = ranks_->devices().reached();
  // In the share of one rank.
  const auto arrived = [all = options_.layers, layers](std::span<const std::byte> share) {
    return share.first(share.size() / all * layers);
  };
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    const GroupRule& rule = rules_[g];
    const GroupId group{static_cast<std::uint16_t>(g)};
    const PoolId pool = rule.config().pool;
    const bool has_null = options_.manager.pool(pool).null_block;
    const SlotId null_slot{options_.manager.pool(pool).first_slot};
    const auto table = cache_->block_table(client.lease, group).value();
    const bool serves = cache_->group_state(client.lease, group) == GroupState::serves;
    for (std::uint32_t block = 0; block < table.size(); ++block) {
      if (has_null && table[block] == null_slot) continue;
      const bool is_hit = rule.cached() && serves && block < rule.full_blocks(hits);
      if (!is_hit) {
        work.push_back({pool, table[block], {}, false});
        continue;
      }
      const BlockKey key = key_in_group(client.keys[std::size_t{block + 1} * rule.units_per_block() - 1], group);
      work.push_back({pool, table[block], key, true});
      // A block that another request has committed may not be computed yet. A load has already waited for everything that it must
      // wait for.
      const Fence filled = cache_->manager().residency(pool).slots_of(Tier::device).fence(table[block]);
      if (filled > reached) continue;
      ++seen_->layers_seen;
      for (std::uint32_t rank = 0; rank < options_.ranks.count; ++rank) {
        const auto share = arrived(ranks_->device(rank).peek(pool, table[block]));
        if (!has_content(key, client.weights, ranks_->share_begin(rank, pool), share)) ++seen_->mismatches;
      }
    }
  }
  launch(client, [work = std::move(work), seen = seen_, weights = client.weights, ranks = &*ranks_, valid = client.valid,
                  arrived](std::uint32_t rank, BlockAccess& access) {
    for (const Work& w : work) {
      if (!w.hit) {
        // Writes a part of it, so that the block differs from the content of its key and must not be served.
        const auto target = access.write_target(w.pool, w.slot, {});
        std::memset(target.data(), 0xEE, target.size() / 2);
        access.written(w.pool, w.slot, {});
      } else if (*valid) {
        ++seen->verified;
        const auto share = arrived(access.read(w.pool, w.slot, {}));
        if (!has_content(w.key, weights, ranks->share_begin(rank, w.pool), share)) ++seen->mismatches;
      }
    }
  });
}

/// Launches what a model would do: read the blocks that exist, and write the others.
void World::compute(Client& client) {
  std::vector<Work> work;
  const auto hits = static_cast<std::uint32_t>(cache_->hit_sources(client.lease)->size());
  if (client.filled == 0) client.held = std::min(client.held, hits + client.chunk);
  const std::uint32_t known = std::max(client.filled, hits);
  const std::uint32_t now = std::min(static_cast<std::uint32_t>(client.keys.size()), client.held);
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    const GroupRule& rule = rules_[g];
    const GroupId group{static_cast<std::uint16_t>(g)};
    const PoolId pool = rule.config().pool;
    const bool has_null = options_.manager.pool(pool).null_block;
    const SlotId null_slot{options_.manager.pool(pool).first_slot};
    const auto table = cache_->block_table(client.lease, group).value();
    if (!rule.cached()) {
      TERRACE_CHECK(table.size() == rule.encoder_blocks(client.encoder_tokens));
      for (std::uint32_t block = 0; block < table.size(); ++block) {
        BlockKey mine = client.keys.front();
        mine.bytes[0] ^= static_cast<std::byte>(client.id.value());
        mine.bytes[1] ^= static_cast<std::byte>(client.id.value() >> 8);
        mine.bytes[2] ^= static_cast<std::byte>(block + 1);
        work.push_back({pool, table[block], mine, client.filled > 0});
      }
      continue;
    }
    TERRACE_CHECK(table.size() == rule.blocks_for(client.held));
    if (cache_->group_state(client.lease, group) == GroupState::does_not_serve) {
      ++seen_->unserved;
      continue;
    }
    for (std::uint32_t block = 0; block < rule.full_blocks(now); ++block) {
      if (has_null && table[block] == null_slot) {
        ++seen_->given_up;
        // Blocks to which the next token attends are never given up: the last block of a state, and the first needed block of a
        // window and all blocks after it.
        const std::uint32_t needed = rule.first_needed(std::uint64_t{known} * cache_->manager().unit_tokens());
        TERRACE_CHECK(known == 0 || (rule.config().kind == GroupKind::recurrent ? block != needed : block < needed));
        continue;
      }
      const BlockKey key = key_in_group(client.keys[std::size_t{block + 1} * rule.units_per_block() - 1], group);
      work.push_back({pool, table[block], key, block < rule.full_blocks(known)});
    }
  }
  if (client.filled == 0 && rules_.size() > 1) seen_->grouped_hits += hits;
  client.filled = now;
  launch(client, [work = std::move(work), seen = seen_, weights = client.weights, ranks = &*ranks_](std::uint32_t rank,
                                                                                                    BlockAccess& access) {
    for (const Work& w : work) {
      std::vector<std::byte> scratch(block_bytes_of(w.pool.value()));
      const std::size_t begin = ranks->share_begin(rank, w.pool);
      if (w.hit) {
        ++seen->verified;
        if (!has_content(w.key, weights, begin, access.read(w.pool, w.slot, scratch))) ++seen->mismatches;
      } else {
        fill_content(w.key, weights, begin, access.write_target(w.pool, w.slot, scratch));
        access.written(w.pool, w.slot, scratch);
      }
    }
  });
}

void World::launch(Client& client, RankWork work) {
  if (!throws_before_marking_) {
    client.fence = ranks_->devices().launch(std::move(work));
    return;
  }
  const auto shared = std::make_shared<const RankWork>(std::move(work));
  for (std::uint32_t rank = 0; rank < options_.ranks.count; ++rank) {
    ranks_->device(rank).launch_unseen([shared, rank](BlockAccess& access) { (*shared)(rank, access); });
  }
}

/// An exception between a launch and the commit: the lease ends, and the launched work continues.
void World::drop_lease(std::size_t which) {
  Client& client = *clients_[which];
  if (client.state == Client::State::ready) {
    throws_before_marking_ = random_.chance(0.5);
    compute(client);
    throws_before_marking_ = false;
  }
  // Loads may fail; then what compute reads of them means nothing.
  if (client.state == Client::State::pending) *client.valid = false;
  ++seen_->dropped;
  clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(which));
}

/// No counter decreases and token counts add up, whatever was preempted, planned again or dropped.
void World::check_counters() {
  using Words = std::array<std::uint64_t, sizeof(ManagerStats) / sizeof(std::uint64_t)>;
  const ManagerStats now = cache_->stats();
  const auto words = std::bit_cast<Words>(now);
  const auto before = std::bit_cast<Words>(stats_before_);
  for (std::size_t i = 0; i < words.size(); ++i) TERRACE_CHECK(words[i] >= before[i]);
  stats_before_ = now;
  for (const RequestTotals& t : {now.requests, now.preempted}) {
    TERRACE_CHECK(t.asked == t.found.sum() + t.external + t.miss);
  }
  if (cache_->manager().requests().quarantined_requests() > 0) ++seen_->quarantined;
}

}  // namespace terrace::test
