#include "storage/resilience/error_class.hpp"

#include <boost/system/generic_category.hpp>
#include <boost/system/system_category.hpp>

#include <cerrno>

namespace terrace {
namespace {

ErrorClass class_of(Errc error) noexcept {
  switch (error) {
    case Errc::ok: return ErrorClass::none;
    case Errc::not_found:
    case Errc::parent_missing: return ErrorClass::missing;
    case Errc::corrupt: return ErrorClass::corrupt;
    case Errc::io_failed:
    case Errc::load_failed:
    case Errc::deadline_exceeded: return ErrorClass::transient;
    case Errc::full:
    case Errc::no_room: return ErrorClass::full;
    case Errc::invalid_argument:
    case Errc::never_fits:
    case Errc::unknown_request:
    case Errc::duplicate_request:
    case Errc::not_ready:
    case Errc::refused:
    case Errc::cancelled:
    case Errc::incompatible:
    case Errc::in_use:
    case Errc::paused:
    case Errc::cleared:
    case Errc::stopped: return ErrorClass::refused;
  }
  return ErrorClass::refused;
}

ErrorClass class_of_errno(int error) noexcept {
  switch (error) {
    case 0: return ErrorClass::none;
    case ENOENT: return ErrorClass::missing;
    case EBADMSG:
    case EILSEQ: return ErrorClass::corrupt;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return ErrorClass::full;
    case EIO:
    case EREMOTEIO:
    case EAGAIN:
    case EINTR:
    case EBUSY:
    case ETIMEDOUT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENODEV:
    case ENXIO:
    case ESTALE: return ErrorClass::transient;
    default: return ErrorClass::refused;
  }
}

}  // namespace

ErrorClass class_of(const ErrorCode& error) noexcept {
  if (error.category() == terrace_category()) return class_of(static_cast<Errc>(error.value()));
  const bool is_errno =
      error.category() == boost::system::generic_category() || error.category() == boost::system::system_category();
  if (is_errno) return class_of_errno(error.value());
  return error ? ErrorClass::refused : ErrorClass::none;
}

const char* to_string(ErrorClass error_class) noexcept {
  switch (error_class) {
    case ErrorClass::none: return "none";
    case ErrorClass::missing: return "missing";
    case ErrorClass::corrupt: return "corrupt";
    case ErrorClass::transient: return "transient";
    case ErrorClass::refused: return "refused";
    case ErrorClass::full: return "full";
  }
  return "?";
}

}  // namespace terrace
