#pragma once

#include <string>

/// TERRACE_CHECK(condition) stops the process if the condition is false. It checks what Terrace's own code guarantees. It stays
/// on in release builds, because serving a wrong block is worse than stopping. Do not use it for data that come from a disk, a
/// device, a peer or a caller: such errors are Results.
#define TERRACE_CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::terrace::check_failed(#condition, __FILE__, __LINE__))

namespace terrace {

/// A function that is called with the failed condition and its place, before the process ends. It must not throw. It may end the
/// process itself.
using CheckHandler = void (*)(const char* condition, const char* file, int line);

/// Sets the handler for failed checks. The default handler prints one line on standard error. When a handler returns, the process
/// aborts. Call this function before any other thread starts.
void set_check_handler(CheckHandler handler) noexcept;

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

/// Ends the process because the program that embeds Terrace breaks a rule of a public header, in a call that can return no error.
/// Prints the sentence, which names the rule, and aborts.
[[noreturn]] void stop_for_misuse(const std::string& sentence);

}  // namespace terrace
