// The inline read() of fortified builds would hide the read() below.
#undef _FORTIFY_SOURCE

#include "tests/base/read_hook.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <functional>
#include <utility>

namespace terrace::test {
namespace {

struct Hook {
  std::function<void()> before;
  std::function<void()> after;
};

thread_local Hook hook;

}  // namespace

ReadHook::ReadHook(std::function<void()> before, std::function<void()> after) { hook = {std::move(before), std::move(after)}; }

ReadHook::~ReadHook() { hook = {}; }

}  // namespace terrace::test

/// Replaces read() of the C library.
extern "C" ssize_t read(int file, void* into, std::size_t bytes) {
  if (terrace::test::hook.before) terrace::test::hook.before();
  const long got = syscall(SYS_read, file, into, bytes);
  if (terrace::test::hook.after) terrace::test::hook.after();
  return got;
}
