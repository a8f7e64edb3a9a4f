#include "tools/live/command_line.hpp"
#include "tools/live/waiting.hpp"
#include "tools/output.hpp"

#include <chrono>
#include <stdexcept>
#include <string>

namespace terrace::tools {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;
using ServicePart = ServiceArguments::Part;

constexpr std::chrono::milliseconds interval = 100ms;
constexpr unsigned conflict = 409;

bool is_true(const json::object& of, std::string_view name) { return of.contains(name) && of.at(name).as_bool(); }

/// Waits until what was cleared does not come back, and is gone if the cache serves nothing until then.
void await_cleared(const AdminClient& client) {
  const Waiting waiting;
  while (true) {
    const json::object status = client.get("/v1/status");
    const bool clearing = status.contains("cache") && status.at("cache") == "clearing";  // a store has no such state
    if (!is_true(status, "erasing") && !clearing) return;
    if (is_true(status, "transfers_paused")) {
      throw std::runtime_error{
          "the cache is cleared, but what is stored cannot be removed while transfers are paused: terrace resume"};
    }
    waiting.sleep(interval);
  }
}

void clear(const AdminClient& client, const ServiceArguments& arguments) {
  json::object order;
  if (arguments.part == ServicePart::update) order["weights-revision"] = arguments.weights_revision;
  if (arguments.until_resumed) order["wait"] = true;
  if (arguments.keep_storage) order["keep-storage"] = true;
  if (arguments.keep_shared) order["keep-shared"] = true;
  const json::object answer = client.post(arguments.part == ServicePart::update ? "/v1/update" : "/v1/clear", order);
  if (!arguments.no_wait) await_cleared(client);
  if (arguments.json) return print_json(answer);
  print("{}{}{}\n", arguments.no_wait && is_true(answer, "erasing") ? "cleared; stored blocks are being removed" : "cleared",
        arguments.until_resumed ? "; nothing is served until terrace resume" : "",
        is_true(answer, "shared_off") ? "; the shared store is not used until terrace update names the weights" : "");
}

void pause(const AdminClient& client, bool as_json) {
  const json::object answer = client.post("/v1/pause");
  if (as_json) print_json(answer);
  else print("transfers are paused\n");
}

void resume(const AdminClient& client, const ServiceArguments& arguments) {
  (void)client.post("/v1/unpause");
  const Waiting waiting;
  AdminClient::Answer answer = client.ask("POST", "/v1/resume");
  for (; answer.status == conflict && !arguments.no_wait; answer = client.ask("POST", "/v1/resume")) waiting.sleep(interval);
  const json::object resumed = client.checked(answer);
  if (arguments.json) print_json(resumed);
  else print("resumed\n");
}

}  // namespace

void run_service(const ServiceArguments& arguments) {
  const AdminClient client{arguments.target};
  switch (arguments.part) {
    case ServicePart::clear:
    case ServicePart::update: return clear(client, arguments);
    case ServicePart::pause: return pause(client, arguments.json);
    case ServicePart::resume: return resume(client, arguments);
  }
}

}  // namespace terrace::tools
