#pragma once

#include <string_view>

namespace terrace::test {

/// Gives the bytes to a client of the Redis protocol as the answers of a server to three commands: one whose payload lands, one
/// that is kept whole, and one that nobody wants. Ends the process if the outcome depends on how the bytes arrive, if more lands
/// than there is room for, or if a map or a redirection that is read from them is none.
void run_redis_replies(std::string_view bytes);

}  // namespace terrace::test
