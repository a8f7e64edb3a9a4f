#pragma once

#include "terrace/export.hpp"

#include <boost/system/error_code.hpp>
#include <boost/system/result.hpp>

#include <type_traits>

namespace terrace {

/// The failures on which a caller may act. A cache miss is not a failure. A broken guarantee of Terrace's own code is not one
/// either: TERRACE_CHECK stops the process.
enum class Errc {
  ok = 0,
  invalid_argument,   ///< the arguments are not valid; nothing has changed
  no_room,            ///< fits only after something in use is released
  never_fits,         ///< larger than the whole pool
  unknown_request,    ///< there is no such request, or it was released
  duplicate_request,  ///< the request id is in use
  not_ready,          ///< some of the request's blocks have not arrived yet
  not_found,          ///< the store does not have the block
  corrupt,            ///< the key, fingerprint, length or checksum is wrong
  parent_missing,     ///< the parent is not stored, and a block may be stored only after its parent
  full,               ///< the size limit is reached or the disk is full, and nothing may be evicted
  io_failed,          ///< the device or disk reported an error, or moved fewer bytes than requested
  load_failed,        ///< a block could not be loaded into a higher tier
  refused,            ///< a bounded queue is full; try again later
  cancelled,          ///< cancelled before it started
  deadline_exceeded,  ///< the caller's deadline has passed
  incompatible,       ///< the data were written for another geometry, model, device or format version
  in_use,             ///< another process or a request uses it
  paused,             ///< the cache is being cleared and serves nothing until it is resumed
  cleared,            ///< the cache was cleared since the operation began; try again
  stopped,            ///< the cache is shutting down
};

[[nodiscard]] TERRACE_API const boost::system::error_category& terrace_category() noexcept;
/// The categories of all errors of Terrace have this id, and are equal.
inline constexpr boost::ulong_long_type terrace_category_id = 0x7e22'ace0'6b1f'c0de;

[[nodiscard]] inline boost::system::error_code make_error_code(Errc e) noexcept {
  return {static_cast<int>(e), terrace_category()};
}

/// Says what went wrong. Compare it with an Errc. message() is a sentence for people: what was wrong, and, if the call can know
/// it, what would be right. The sentence is part of the code: it is the same later and on other threads.
///
///     if (!stored) log(stored.error().message());  // "order.slots must have one slot for each key from order.first on"
using ErrorCode = boost::system::error_code;

/// A value, or an error code that says why there is no value. The error code is of the type that Asio uses. A Result allocates
/// nothing.
template <class T>
class [[nodiscard]] Result : public boost::system::result<T> {
 public:
  using boost::system::result<T>::result;
};

}  // namespace terrace

namespace boost::system {
template <>
struct is_error_code_enum<terrace::Errc> : std::true_type {};
}  // namespace boost::system
