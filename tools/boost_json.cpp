// Boost.JSON without its library: one translation unit holds it all.
#include <boost/json/src.hpp>
