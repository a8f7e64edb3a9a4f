#include "transfer/engine/open_pieces.hpp"

#include <algorithm>
#include <utility>

namespace terrace {

void OpenPieces::begin(TransferId id) {
  const std::lock_guard lock{mutex_};
  if (spare_.empty()) {
    entries_.try_emplace(id);
    return;
  }
  Entries::node_type node = std::move(spare_.back());
  spare_.pop_back();
  node.key() = id;
  Entry& entry = node.mapped();
  std::vector<Open> pieces = std::move(entry.pieces);
  pieces.clear();
  entry = Entry{};
  entry.pieces = std::move(pieces);
  entries_.insert(std::move(node));
}

void OpenPieces::start(const Piece& piece) {
  const std::lock_guard lock{mutex_};
  const auto found = entries_.find(piece.id);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  entry.pieces.push_back({piece.token, piece.layers ? piece.layers->first : 0});
  entry.started = piece.layers_started;
  entry.layers = piece.layers_of_transfer;
}

void OpenPieces::finish(TransferId id, std::uint64_t token, ErrorCode error) {
  const std::lock_guard lock{mutex_};
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  if (error && !entry.error) entry.error = error;
  std::erase_if(entry.pieces, [token](const Open& each) { return each.token == token; });
}

void OpenPieces::end(TransferId id, ErrorCode error) {
  const std::lock_guard lock{mutex_};
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  found->second.ended = true;
  if (!found->second.error) found->second.error = error;
}

void OpenPieces::forget_ended(std::span<const TransferEvent> events) {
  if (events.empty()) return;
  const std::lock_guard lock{mutex_};
  for (const TransferEvent& event : events) {
    if (event.kind != TransferEvent::Kind::finished) continue;
    if (Entries::node_type node = entries_.extract(event.id)) spare_.push_back(std::move(node));
  }
}

Result<void> OpenPieces::find(TransferId id, std::uint32_t layers, std::vector<std::uint64_t>& tokens) const {
  tokens.clear();
  const std::lock_guard lock{mutex_};
  const auto found = entries_.find(id);
  if (found == entries_.end()) return Errc::unknown_request;
  const Entry& entry = found->second;
  if (entry.error) return entry.error;
  if (entry.ended || layers == 0) return {};
  const std::uint32_t wanted = std::min(layers, entry.layers);
  if (entry.layers == 0 || entry.started < wanted) return Errc::not_ready;
  for (const Open& each : entry.pieces) {
    if (each.first_layer < wanted) tokens.push_back(each.token);
  }
  return {};
}

}  // namespace terrace
