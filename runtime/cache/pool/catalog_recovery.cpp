#include "runtime/cache/pool/catalog_recovery.hpp"

namespace terrace {

void CatalogRecovery::add(std::span<const StoredBlock> blocks, std::span<std::optional<std::uint64_t>> numbers) {
  const bool flat = residency_.tree().flat();
  for (std::size_t begin = 0; begin < blocks.size();) {
    std::size_t end = begin + 1;
    const auto goes_on = [&] {
      const StoredBlock& last = blocks[end - 1];
      const StoredBlock& next = blocks[end];
      return !flat && next.depth == last.depth + 1 && next.parent == last.key && next.group == last.group &&
             next.tenant == last.tenant;
    };
    while (end < blocks.size() && goes_on()) ++end;
    add_run(blocks.subspan(begin, end - begin), numbers.subspan(begin, end - begin));
    begin = end;
  }
}

void CatalogRecovery::add_run(std::span<const StoredBlock> run, std::span<std::optional<std::uint64_t>> numbers) {
  const std::uint32_t depth = residency_.tree().flat() ? 0 : run.front().depth;
  // Without their parent these blocks could never be hits. Their numbers stay empty.
  if (depth > trail_.size() || (depth > 0 && trail_[depth - 1] != run.front().parent)) return;
  trail_.resize(depth);
  for (const StoredBlock& block : run) trail_.push_back(block.key);
  const Prefix parent = residency_.tree().first(at_, depth);
  const Residency::Restored restored =
      residency_.restore(parent, std::span{trail_}.subspan(depth), run.front().tenant, run.front().group, numbers);
  at_ = restored.prefix;
  // The process that wrote the blocks may have been killed before it flushed them. So they need a flush like new blocks.
  if (restored.blocks > 0) flushes_.on_stored(restored.blocks);
}

}  // namespace terrace
