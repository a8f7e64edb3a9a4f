#include "terrace/types.hpp"

#include <cstdint>

terrace::Blocks twice(std::uint32_t number) {
#ifdef TERRACE_NO_NAME
  const terrace::Blocks blocks = number;
#else
  const terrace::Blocks blocks{number};
#endif
  return blocks + blocks;
}
