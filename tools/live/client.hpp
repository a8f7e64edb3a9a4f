#pragma once

#include "terrace/clock.hpp"

#include <boost/json.hpp>
#include <boost/system/system_error.hpp>
#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace terrace::tools {

/// The process could not be reached, or did not answer in time. The exit status is 3.
class Unreachable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// How the user names a process that serves.
struct Target {
  std::string socket;                ///< "unix:PATH", a path, or "tcp:127.0.0.1:PORT"; empty: the only one in admin_folder()
  std::filesystem::path token_file;  ///< for TCP
};

/// Asks the admin endpoint of one process. Threads: one.
class AdminClient {
 public:
  /// Throws UsageError: the target is written wrong, no process was found, or several were, which are listed.
  explicit AdminClient(const Target& target);

  struct Answer {
    unsigned status = 0;
    std::string text;
    boost::json::value body;  ///< null if the text is not JSON
  };
  /// Makes a connection, sends one request and waits for the answer for `patience`. Throws Unreachable.
  [[nodiscard]] Answer ask(std::string_view method, const std::string& path, const std::string& body = {},
                           Duration patience = std::chrono::seconds{15}) const;
  /// The same, and throws if the endpoint refuses: UsageError for what is wrong in the request, std::runtime_error otherwise,
  /// with the sentence of the endpoint.
  [[nodiscard]] boost::json::object get(const std::string& path) const;
  [[nodiscard]] boost::json::object post(const std::string& path, const boost::json::object& body = {}) const;

  /// The same for an answer of ask().
  [[nodiscard]] boost::json::object checked(const Answer& answer) const;

  /// The answer to "/v1/status" of a process with a cache. Throws UsageError if the process has a store only.
  [[nodiscard]] boost::json::object status_of_cache() const;

  /// The address for messages.
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::string token_;
};

/// A member of an object in an answer: a whole number, or a text. They throw what Boost.JSON throws.
template <class Object>
[[nodiscard]] std::uint64_t whole_in(const Object& object, std::string_view name) {
  return object.at(name).template to_number<std::uint64_t>();
}
template <class Object>
[[nodiscard]] std::string text_in(const Object& object, std::string_view name) {
  return std::string{object.at(name).as_string()};
}

/// Runs `work`, which reads answers of a process. Throws std::runtime_error with a sentence if they are not what they must be, as
/// those of another version, or of a program that is no Terrace.
template <class Work>
auto understood(Work&& work) {
  const auto fail = [](const char* what) {
    return std::runtime_error{fmt::format("the answer of the process is not what this version expects: {}", what)};
  };
  try {
    return std::forward<Work>(work)();
  } catch (const boost::system::system_error& error) {
    throw fail(error.code().message().c_str());
  } catch (const std::logic_error& error) {
    throw fail(error.what());
  }
}

}  // namespace terrace::tools
