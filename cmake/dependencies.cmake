# Every dependency is named here, with what it is for. tools/install-packages installs them from the distribution. The CUDA
# toolkit, which is optional and of no distribution, is in cuda.cmake.

# A project that adds this one by add_subdirectory() links targets that are found here.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL TRUE)

find_package(Threads REQUIRED)

# Asio (event loop, coroutines), Beast (the admin endpoint), System (error_code, result), JSON (trace lines, reports, the admin
# endpoint). Header-only use.
# Debian 12 has 1.74 as its default and 1.81 beside it; Ubuntu 24.04 has 1.83.
find_package(Boost 1.81 REQUIRED)

# Formatting of messages and tables.
if(TERRACE_PORTABLE)
  # Distributions have no archive of it, but all of it in headers.
  find_path(FMT_INCLUDE_DIR fmt/format.h REQUIRED)
  add_library(terrace_fmt INTERFACE)
  add_library(fmt::fmt ALIAS terrace_fmt)
  target_include_directories(terrace_fmt SYSTEM INTERFACE ${FMT_INCLUDE_DIR})
  target_compile_definitions(terrace_fmt INTERFACE FMT_HEADER_ONLY=1)
else()
  find_package(fmt REQUIRED)
endif()

# SHA-256 with the processor's own instructions, for block keys. AES-256-GCM, HKDF and random numbers, for sealed values of shared
# stores (storage/shared). TLS to their servers (storage/redis).
find_package(OpenSSL REQUIRED COMPONENTS Crypto SSL)

if(TERRACE_BUILD_PROGRAM OR TERRACE_BUILD_TESTS)
  # .gz traces.
  find_package(ZLIB REQUIRED)

  # Command line of the tools.
  find_package(CLI11 REQUIRED)

endif()

# moodycamel::ConcurrentQueue: lock-free queues between threads. Included by base/completion_queue.hpp and
# storage/io/threaded_io.hpp alone.
find_path(CONCURRENTQUEUE_INCLUDE_DIR concurrentqueue.h
          PATH_SUFFIXES concurrentqueue concurrentqueue/moodycamel moodycamel REQUIRED)
add_library(terrace_concurrentqueue INTERFACE)
target_include_directories(terrace_concurrentqueue SYSTEM INTERFACE ${CONCURRENTQUEUE_INCLUDE_DIR})

# XXH3: checksums of stored blocks at memory speed.
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
set(preferred_suffixes ${CMAKE_FIND_LIBRARY_SUFFIXES})
if(TERRACE_PORTABLE)
  # The archive lacks what chooses the widest instructions as it runs.
  set(CMAKE_FIND_LIBRARY_SUFFIXES .so)
endif()
find_library(XXHASH_LIBRARY xxhash REQUIRED)
set(CMAKE_FIND_LIBRARY_SUFFIXES ${preferred_suffixes})
add_library(terrace_xxhash INTERFACE)
target_include_directories(terrace_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIR})
target_link_libraries(terrace_xxhash INTERFACE ${XXHASH_LIBRARY})

# toml++: configuration files. Included by runtime/config/toml_text.cpp alone, in its header-only form, so that programs need no
# shared library of it.
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h REQUIRED)
add_library(terrace_tomlplusplus INTERFACE)
target_include_directories(terrace_tomlplusplus SYSTEM INTERFACE ${TOMLPLUSPLUS_INCLUDE_DIR})
target_compile_definitions(terrace_tomlplusplus INTERFACE TOML_HEADER_ONLY=1)

# liburing: I/O of file stores with deep queues and few threads. Optional: without it, or where the kernel at hand forbids
# io_uring, threads do the I/O. 2.2 is the least that serves (sparse tables of buffers).
set(TERRACE_HAS_URING OFF)
if(TERRACE_WITH_URING)
  find_path(URING_INCLUDE_DIR liburing.h)
  find_library(URING_LIBRARY uring)
  if(URING_INCLUDE_DIR AND URING_LIBRARY)
    set(TERRACE_HAS_URING ON)
    add_library(terrace_uring INTERFACE)
    target_include_directories(terrace_uring SYSTEM INTERFACE ${URING_INCLUDE_DIR})
    target_link_libraries(terrace_uring INTERFACE ${URING_LIBRARY})
    target_compile_definitions(terrace_uring INTERFACE TERRACE_HAS_URING)
  endif()
endif()

# prometheus-cpp: the text format of `/metrics`. Optional: without it the admin endpoint says so. Not in portable programs: there
# is no archive of it.
if(NOT TERRACE_PORTABLE)
  find_package(prometheus-cpp QUIET COMPONENTS core)
endif()

if(TERRACE_BUILD_TESTS)
  # ZeroMQ, with its interface for C++: subscribers of EventPublisher, which speaks the protocol itself.
  find_package(cppzmq QUIET)
  find_package(GTest REQUIRED)
endif()
