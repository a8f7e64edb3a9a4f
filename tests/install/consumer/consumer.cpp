// An application. It uses the public headers as an engine does, and tries what may break where a library begins: exceptions,
// error codes, and classes of the application's own.

#include <terrace/keys.hpp>
#include <terrace/log.hpp>
#include <terrace/policies.hpp>
#include <terrace/result.hpp>
#include <terrace/types.hpp>
#include <terrace/waker.hpp>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("FAILED: %s\n", what);
  ++failures;
}

class OwnWaker final : public terrace::Waker {
 public:
  void wake() noexcept override { ++wakes; }
  int wakes = 0;
};

void keys_are_made() {
  terrace::KeyChain chain{terrace::root_key({}), 16};
  const std::vector<terrace::TokenId> tokens(40, 7);
  chain.append(tokens);
  expect(chain.keys().size() == 2 && chain.tokens_waiting() == 8, "40 tokens are two blocks of 16, and 8 tokens wait");
}

void errors_are_told_apart() {
  const terrace::Result<terrace::BlockKey> key = terrace::parse_block_key("no key");
  expect(key.has_error() && key.error() == terrace::Errc::invalid_argument, "an error of the library has its code here");
  expect(key.error().category() == terrace::terrace_category(), "there is one category");
  try {
    (void)terrace::hash_unit(std::span<const std::uint32_t>{});
    expect(false, "no group has no hash unit");
  } catch (const std::invalid_argument& error) {
    expect(!std::string_view{error.what()}.empty(), "the exception says why");
  }
}

void classes_are_one_on_both_sides() {
  const std::unique_ptr<terrace::EvictionPolicy> policy = terrace::lru_policy(8);
  expect(dynamic_cast<terrace::EvictionPolicy*>(policy.get()) != nullptr, "a policy of the library is a policy here");
  OwnWaker own;
  terrace::Waker& waker = own;
  waker.wake();
  expect(dynamic_cast<OwnWaker*>(&waker) != nullptr && own.wakes == 1, "a waker of the application is its own");
  expect(terrace::to_string(terrace::LogLevel::warning) == "warning", "functions are exported");
}

}  // namespace

int main() {
  keys_are_made();
  errors_are_told_apart();
  classes_are_one_on_both_sides();
  if (failures == 0) std::puts("the consumer works");
  return failures == 0 ? 0 : 1;
}
