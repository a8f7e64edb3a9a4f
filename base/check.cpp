#include "base/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace terrace {
namespace {

void print(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "terrace: broken invariant: %s (%s:%d)\n", condition, file, line);
}

CheckHandler handler_ = print;

}  // namespace

void set_check_handler(CheckHandler handler) noexcept { handler_ = handler; }

void check_failed(const char* condition, const char* file, int line) {
  handler_(condition, file, line);
  std::abort();
}

void stop_for_misuse(const std::string& sentence) {
  std::fprintf(stderr, "terrace: misuse: %s\n", sentence.c_str());
  std::abort();
}

}  // namespace terrace
