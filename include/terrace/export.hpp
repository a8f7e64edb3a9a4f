#pragma once

/// \file
/// TERRACE_API marks what the shared library exports: the classes and functions of these headers. Everything else in the library
/// is hidden. An application never defines or uses it.

#if __cplusplus < 202002L
#error "Terrace's headers need C++20: compile with -std=c++20"
#endif

#if defined(__GNUC__)
#define TERRACE_API __attribute__((visibility("default")))
#else
#define TERRACE_API
#endif
