// Boost.JSON is used without its library: this file contains its implementation. This folder's method tables and the tools use
// it.
#include <boost/json/src.hpp>
