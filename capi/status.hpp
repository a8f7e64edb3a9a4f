#pragma once

#include "terrace.h"
#include "terrace/clock.hpp"
#include "terrace/result.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

/// The parts that all functions of the C interface share: status numbers, the sentence of the last failure, extensible
/// structures.
namespace terrace::capi {

/// Returns the status of an error: the positive code for an error of Terrace, the negative errno for an error of the system.
[[nodiscard]] terrace_status status_of(const ErrorCode& error) noexcept;

/// Stores the sentence for terrace_last_error(), and returns the status. A sentence that is too long is truncated.
terrace_status fail(terrace_status status, std::string_view sentence) noexcept;
/// Does the same for a call that failed with an error code: "FUNCTION: message of the code".
terrace_status fail(std::string_view function, const ErrorCode& error) noexcept;
/// Does the same for the exception that is being handled.
terrace_status fail_with_exception(std::string_view function) noexcept;

/// Calls `call`, which returns a terrace_status, and turns every exception into one.
template <class Call>
terrace_status guarded(std::string_view function, const Call& call) noexcept {
  try {
    return call();
  } catch (...) {
    return fail_with_exception(function);
  }
}

/// Returns the status of a Result, and stores its sentence.
template <class T>
terrace_status finish(std::string_view function, const Result<T>& result) noexcept {
  return result ? TERRACE_OK : fail(function, result.error());
}

/// Fails if a pointer that must be given is null.
inline terrace_status null_pointer(std::string_view function, std::string_view name) {
  return fail(TERRACE_INVALID_ARGUMENT, std::string{function} + ": " + std::string{name} + " is null");
}
#define TERRACE_NEEDS(pointer) \
  if ((pointer) == nullptr) return terrace::capi::null_pointer(__func__, #pointer)

/// Fails if a handle is null, or belongs to the parent of this forked process.
terrace_status handle_of_another_process(std::string_view function) noexcept;
#define TERRACE_HANDLE(handle) \
  TERRACE_NEEDS(handle);       \
  if (!(handle)->is_here()) return terrace::capi::handle_of_another_process(__func__)

/// Checks the struct_size of a caller's structure. `first` is its size in version 0.1. A size larger than this library's is
/// refused: it comes from a later header or from uninitialised memory, so the memory may not exist.
template <class T>
terrace_status check_struct(std::string_view function, std::string_view name, const T* given, std::size_t first) {
  if (given == nullptr) return null_pointer(function, name);
  const std::size_t size = given->struct_size;
  if (size >= first && size <= sizeof(T)) return TERRACE_OK;
  return fail(TERRACE_INVALID_ARGUMENT, std::string{function} + ": struct_size of " + std::string{name} + " is " +
                                            std::to_string(size) + "; set it to the sizeof of the structure, " +
                                            std::to_string(first) + " to " + std::to_string(sizeof(T)) + " for this library (" +
                                            terrace_version() + "); a program with a later header needs a later library");
}

/// Reads a structure of the caller, which may come from an earlier header. Fields that it does not have are 0.
template <class T>
terrace_status read_struct(std::string_view function, std::string_view name, const T* in, T& out, std::size_t first) {
  if (const terrace_status wrong = check_struct(function, name, in, first)) return wrong;
  out = T{};
  std::memcpy(&out, in, in->struct_size);
  return TERRACE_OK;
}

/// Writes the fields of a structure that the caller knows.
template <class T>
terrace_status write_struct(std::string_view function, std::string_view name, T value, T* out, std::size_t first) {
  if (const terrace_status wrong = check_struct(function, name, out, first)) return wrong;
  value.struct_size = out->struct_size;
  std::memcpy(out, &value, out->struct_size);
  return TERRACE_OK;
}

/// Converts a caller's nanoseconds from now to a point in time. Negative times are in the past.
[[nodiscard]] TimePoint time_from_now(int64_t nanoseconds) noexcept;
/// Does the same for the deadline in a structure, where 0 means none.
[[nodiscard]] TimePoint deadline_of(int64_t nanoseconds) noexcept;
/// Returns the nanoseconds from now until `when`, at least 0; TERRACE_NEVER for `never`.
[[nodiscard]] int64_t until(TimePoint when) noexcept;
/// Waits until the descriptor is readable, or one of the two times has come.
[[nodiscard]] terrace_status wait_for(std::string_view function, int descriptor, int64_t next_poll, int64_t timeout) noexcept;

}  // namespace terrace::capi
