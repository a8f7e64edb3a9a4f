#include "capi/status.hpp"

#include "terrace/request.hpp"

#include <boost/system/system_error.hpp>

#include <poll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

namespace terrace::capi {
namespace {

/// A failure must be reported even if there is no memory, so the sentence has static storage.
thread_local std::array<char, 1024> last_error{};
thread_local std::array<char, 128> status_text{};

static_assert(static_cast<int>(Errc::stopped) == TERRACE_STOPPED);
static_assert(static_cast<int>(Errc::corrupt) == TERRACE_CORRUPT && static_cast<int>(Errc::refused) == TERRACE_REFUSED);

terrace_status system_status(int number) noexcept { return number > 0 ? -number : TERRACE_INTERNAL; }

/// Stores "FUNCTION: WHAT".
terrace_status fail(std::string_view function, terrace_status status, const char* what) noexcept {
  std::array<char, last_error.size()> sentence{};
  (void)std::snprintf(sentence.data(), sentence.size(), "%.*s: %s", static_cast<int>(function.size()), function.data(), what);
  return capi::fail(status, sentence.data());
}

}  // namespace

terrace_status status_of(const ErrorCode& error) noexcept {
  if (!error) return TERRACE_OK;
  return error.category() == terrace_category() ? error.value() : system_status(error.value());
}

terrace_status fail(terrace_status status, std::string_view sentence) noexcept {
  const std::size_t size = std::min(sentence.size(), last_error.size() - 1);
  std::memcpy(last_error.data(), sentence.data(), size);
  last_error[size] = '\0';
  return status;
}

terrace_status fail(std::string_view function, const ErrorCode& error) noexcept {
  std::array<char, 512> message{};
  return fail(function, status_of(error), error.message(message.data(), message.size()));
}

terrace_status fail_with_exception(std::string_view function) noexcept {
  const auto say = [&](terrace_status status, const char* what) { return fail(function, status, what); };
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return say(TERRACE_NO_MEMORY, "not enough memory");
  } catch (const std::invalid_argument& error) {  // also a ConfigError
    return say(TERRACE_INVALID_ARGUMENT, error.what());
  } catch (const Refusal& error) {
    return say(error.status, error.what());
  } catch (const boost::system::system_error& error) {
    return say(status_of(error.code()), error.what());
  } catch (const std::system_error& error) {
    // An error code of Terrace was converted to a code of the standard library, with a category of the same name.
    const bool ours = std::string_view{error.code().category().name()} == terrace_category().name();
    if (!ours) return say(system_status(error.code().value()), error.what());
    // Remove the meaning of the code that the standard library appends: the sentence is complete, and the status has the meaning.
    std::string sentence = error.what();
    const std::string meaning = ": " + error.code().message();
    if (sentence.ends_with(meaning)) sentence.resize(sentence.size() - meaning.size());
    return say(error.code().value(), sentence.c_str());
  } catch (const std::runtime_error& error) {
    return say(TERRACE_UNAVAILABLE, error.what());
  } catch (const std::exception& error) {
    return say(TERRACE_INTERNAL, error.what());
  } catch (...) {
    return say(TERRACE_INTERNAL, "an unknown exception");
  }
}

TimePoint time_from_now(int64_t nanoseconds) noexcept {
  if (nanoseconds == TERRACE_NEVER) return never;
  const TimePoint now = std::chrono::steady_clock::now();
  if (nanoseconds > (never - now).count()) return never;
  return nanoseconds <= 0 ? now : now + std::chrono::nanoseconds{nanoseconds};
}

TimePoint deadline_of(int64_t nanoseconds) noexcept { return nanoseconds == 0 ? never : time_from_now(nanoseconds); }

Duration expected_after(int64_t nanoseconds) {
  if (nanoseconds >= 0) return nanoseconds == TERRACE_NEVER ? no_use : Duration{nanoseconds};
  throw std::invalid_argument{"the time of the next use is " + std::to_string(nanoseconds) +
                              ", must be nanoseconds from 0 on, or TERRACE_NEVER"};
}

int64_t until(TimePoint when) noexcept {
  if (when == never) return TERRACE_NEVER;
  return std::max<int64_t>(0, std::chrono::nanoseconds{when - std::chrono::steady_clock::now()}.count());
}

Result<void> wait_for(int descriptor, int64_t next_poll, int64_t timeout) noexcept {
  const int64_t time = std::max<int64_t>(0, std::min(next_poll, timeout));
  constexpr int64_t second = 1'000'000'000;
  const timespec limit{time / second, time % second};
  pollfd readable{descriptor, POLLIN, 0};
  const int ready = ::ppoll(&readable, 1, time == TERRACE_NEVER ? nullptr : &limit, nullptr);
  if (ready < 0 && errno != EINTR) return ErrorCode{errno, boost::system::system_category()};
  return {};
}

}  // namespace terrace::capi

using namespace terrace::capi;

uint32_t terrace_c_version(void) { return TERRACE_C_VERSION_MAJOR << 16U | TERRACE_C_VERSION_MINOR; }

const char* terrace_version(void) { return TERRACE_VERSION; }

const char* terrace_status_text(terrace_status status) {
  try {
    std::string text = "unknown status " + std::to_string(status);
    if (status == TERRACE_UNAVAILABLE) {
      text = "not available on this machine";
    } else if (status == TERRACE_NO_MEMORY) {
      text = "not enough memory";
    } else if (status == TERRACE_INTERNAL) {
      text = "a fault of the library";
    } else if (status < 0 && status != INT32_MIN) {
      text = boost::system::system_category().message(-status);
    } else if (status >= 0 && status <= TERRACE_STOPPED) {
      text = terrace::terrace_category().message(status);
    }
    const std::size_t size = std::min(text.size(), status_text.size() - 1);
    std::memcpy(status_text.data(), text.data(), size);
    status_text[size] = '\0';
    return status_text.data();
  } catch (...) {
    return "not enough memory to describe the status";
  }
}

const char* terrace_last_error(void) { return last_error.data(); }
