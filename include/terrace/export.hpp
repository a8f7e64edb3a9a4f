#pragma once

/// \file
/// TERRACE_API marks the classes and functions that the shared library exports. All other symbols of the library are
/// hidden. Applications do not define or use this macro.

#if __cplusplus < 202002L
#error "Terrace's headers need C++20: compile with -std=c++20"
#endif

#if defined(__GNUC__)
#define TERRACE_API __attribute__((visibility("default")))
#else
#define TERRACE_API
#endif
