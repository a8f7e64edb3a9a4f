// The compiler's runtime library, which is linked into portable programs, needs arc4random for std::random_device. glibc has it
// since version 2.36 only. With this definition the programs also run on older systems.

#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" std::uint32_t arc4random() {
  std::uint32_t drawn = 0;
  if (::getrandom(&drawn, sizeof drawn, 0) != static_cast<ssize_t>(sizeof drawn)) std::abort();
  return drawn;
}
