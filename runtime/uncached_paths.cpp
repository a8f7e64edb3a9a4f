#include "runtime/uncached_paths.hpp"

namespace terrace {

bool UncachedPaths::pump() {
  if (paths_.empty()) return false;
  freed_ = false;
  for (Path& path : paths_) path = give_up(path);
  std::erase_if(paths_, [](const Path& path) { return path.length == 0; });
  return freed_;
}

Path UncachedPaths::give_up(Path path) {
  PrefixTree& tree = residency_.tree();
  // As nearly always while it waits: its end is still read. Nothing before that may go, and this is asked at every step.
  const Copy last = residency_.copy(tree.at(path, path.length - 1), Tier::device);
  if (last.present() && last.state() != CopyState::ready) return path;
  // What others hold, or have copies behind of, is theirs to give up.
  tree.unpin(path);
  std::uint32_t held = path.length;
  while (held > 0 && !tree.pinned(tree.at(path, held - 1))) --held;
  tree.pin(path);
  std::uint32_t left = path.length;
  for (; left > held; --left) {
    const BlockRef block = tree.at(path, left - 1);
    const CopyState state = residency_.copy(block, Tier::device).state();
    if (state == CopyState::absent) continue;
    if (state != CopyState::ready) break;
    if (tree.any_staying_below(block, Tier::device) || tree.any_staying_below(block, Tier::host)) {
      left = held;
      break;
    }
    residency_.drop(block, Tier::device);
    ++stats_.dropped_uncached;
    freed_ = true;
  }
  Path waits;
  if (left > held) {
    waits = tree.first(path, left);
    tree.pin(waits);
  }
  tree.unpin(path);
  return waits;
}

}  // namespace terrace
