// Boost.JSON is used without its library: this file contains its implementation. Method tables, the admin endpoint and the tools
// use it.
#include <boost/json/src.hpp>
