#include "tools/replay/options/faults.hpp"

namespace terrace::tools {

std::string_view to_string(Fault fault) {
  switch (fault) {
    case Fault::none: return "none";
    case Fault::flip: return "flip";
    case Fault::late: return "late";
    case Fault::no_fence: return "no-fence";
  }
  return "?";
}

EmulatedFaults emulated(Fault fault) {
  EmulatedFaults faults;
  switch (fault) {
    case Fault::none: break;
    case Fault::flip: faults.flip_every = 7; break;
    case Fault::late: faults.late_every = 5; break;
    case Fault::no_fence: faults.ignore_fences = true; break;
  }
  return faults;
}

std::string_view planted_unit(Fault fault) { return fault == Fault::flip ? "blocks" : "copies"; }

}  // namespace terrace::tools
