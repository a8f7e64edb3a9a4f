#pragma once

#include <boost/system/error_code.hpp>
#include <boost/system/result.hpp>

#include <type_traits>

namespace terrace {

/// Failures that a caller may act on. A cache miss is none of them, and a broken promise of our own is TERRACE_CHECK.
enum class Errc {
  ok = 0,
  invalid_argument,   ///< the call makes no sense as given; nothing changed
  no_room,            ///< would fit once something in use is released
  never_fits,         ///< larger than the whole pool
  unknown_request,    ///< no such request, or already released
  duplicate_request,  ///< the id is in use
  not_ready,          ///< the request's blocks are not all there yet
  not_found,          ///< no such block in the store
  corrupt,            ///< key, fingerprint, length or checksum do not verify
  parent_missing,     ///< a block may be stored only after its parent
  full,               ///< the cap or the disk is reached, and nothing may be evicted
  io_failed,          ///< the device or disk reported an error, or moved fewer bytes than asked
  load_failed,        ///< a block on its way up did not arrive
  refused,            ///< a bounded queue is at its bound; try again later
  cancelled,          ///< never started
  deadline_exceeded,  ///< the caller's deadline passed first
  incompatible,       ///< a store of another geometry, model or format version
  in_use,             ///< another process, or a request, holds it
  paused,             ///< being cleared: nothing is served until it is resumed
  cleared,            ///< what it counted on was cleared meanwhile; ask again
  stopped,            ///< shutting down
};

[[nodiscard]] const boost::system::error_category& terrace_category() noexcept;

[[nodiscard]] inline boost::system::error_code make_error_code(Errc e) noexcept {
  return {static_cast<int>(e), terrace_category()};
}

using ErrorCode = boost::system::error_code;

/// A value or the reason there is none, as an error_code that Asio speaks. Allocates nothing.
template <class T>
class [[nodiscard]] Result : public boost::system::result<T> {
 public:
  using boost::system::result<T>::result;
};

}  // namespace terrace

template <>
struct boost::system::is_error_code_enum<terrace::Errc> : std::true_type {};
