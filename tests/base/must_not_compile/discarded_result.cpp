#include "terrace/result.hpp"

namespace terrace {

Result<int> fails() { return Errc::no_room; }

int use() {
#ifdef TERRACE_DISCARD
  fails();
  return 0;
#else
  return fails().has_value() ? 1 : 0;
#endif
}

}  // namespace terrace
