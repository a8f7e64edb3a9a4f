// Boost.JSON without its library: one translation unit holds it all, for this folder's path tables and what the tools read and
// write.
#include <boost/json/src.hpp>
