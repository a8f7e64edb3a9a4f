#include "storage/shared/shared_statistics.hpp"

namespace terrace {

void count_ended(SharedStoreStat& stat, const SharedEvent& event, std::uint64_t size) {
  if (event.error == Errc::deadline_exceeded) ++stat.timed_out;
  if (event.error == Errc::io_failed) ++stat.failed;
  if (event.error == Errc::refused) ++stat.declined;
  switch (event.kind) {
    case SharedEvent::Kind::probed:
      ++stat.probes;
      stat.keys_asked += size;
      stat.keys_there += event.leading;
      break;
    case SharedEvent::Kind::read:
      if (event.error == Errc::not_found) ++stat.reads_missing;
      if (event.error) break;
      ++stat.reads;
      stat.read += Bytes{size};
      break;
    case SharedEvent::Kind::written:
      if (event.error == Errc::full) ++stat.full;
      if (event.error) break;
      ++stat.writes;
      stat.written += Bytes{size};
      break;
  }
}

}  // namespace terrace
