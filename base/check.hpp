#pragma once

/// TERRACE_CHECK(condition): a promise of our own, checked in every build, release included: a wrong block served is worse
/// than a stop. Never for bytes that come from disk, device, peer or caller; those are Results.
#define TERRACE_CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::terrace::check_failed(#condition, __FILE__, __LINE__))

namespace terrace {

/// Called with what broke and where, before the process ends. Must not throw; may end the process itself.
using CheckHandler = void (*)(const char* condition, const char* file, int line);

/// Replaces what happens on a broken check (the default prints one line on standard error and aborts). Set it before any
/// thread starts.
void set_check_handler(CheckHandler handler) noexcept;

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace terrace
