#include "terrace/result.hpp"

#include <string>

namespace terrace {
namespace {

class Category final : public boost::system::error_category {
 public:
  Category() : error_category{terrace_category_id} {}

  [[nodiscard]] const char* name() const noexcept override { return "terrace"; }

  [[nodiscard]] std::string message(int code) const override {
    switch (static_cast<Errc>(code)) {
      case Errc::ok: return "no error";
      case Errc::invalid_argument: return "invalid argument";
      case Errc::no_room: return "no room until something in use is released";
      case Errc::never_fits: return "larger than the whole pool";
      case Errc::unknown_request: return "no such request";
      case Errc::duplicate_request: return "the request id is in use";
      case Errc::not_ready: return "the request's blocks are not ready";
      case Errc::not_found: return "no such block";
      case Errc::corrupt: return "the block is damaged";
      case Errc::parent_missing: return "the block's parent is not stored";
      case Errc::full: return "full, and nothing may be evicted";
      case Errc::io_failed: return "input/output failed";
      case Errc::load_failed: return "a block could not be loaded";
      case Errc::refused: return "the queue is full";
      case Errc::cancelled: return "cancelled";
      case Errc::deadline_exceeded: return "the deadline passed";
      case Errc::incompatible: return "the store has another geometry or format";
      case Errc::in_use: return "in use by another process or request";
      case Errc::paused: return "the cache is being cleared, or has been cleared and waits to be resumed";
      case Errc::cleared: return "the cache was cleared meanwhile";
      case Errc::stopped: return "shutting down";
    }
    return "unknown error";
  }
};

}  // namespace

const boost::system::error_category& terrace_category() noexcept {
  static const Category category;
  return category;
}

}  // namespace terrace
