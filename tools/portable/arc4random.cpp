// The library of the compiler, linked into portable programs, asks for arc4random, which glibc has since 2.36 only. Nothing of
// ours calls it (it is behind std::random_device); with one here programs run on older systems too.

#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" std::uint32_t arc4random() {
  std::uint32_t drawn = 0;
  if (::getrandom(&drawn, sizeof drawn, 0) != static_cast<ssize_t>(sizeof drawn)) std::abort();
  return drawn;
}
