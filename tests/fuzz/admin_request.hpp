#pragma once

#include <string_view>

namespace terrace::test {

/// Routes a request of the admin endpoint: "METHOD TARGET", and after the first line end the body. Ends the process if the answer
/// is wrong: an exception, a body that is no JSON, an error without one sentence, or a command from what is no POST.
void run_admin_request(std::string_view text);

}  // namespace terrace::test
