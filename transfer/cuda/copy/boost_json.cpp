// Boost.JSON without its library: one translation unit holds it all, for this folder's method tables and what the tools read and
// write.
#include <boost/json/src.hpp>
