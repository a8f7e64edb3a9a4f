#include "runtime/config/table/nearest_name.hpp"
#include "runtime/config/table/values.hpp"
#include "terrace/config.hpp"
#include "tools/arguments.hpp"
#include "tools/live/command_line.hpp"
#include "tools/output.hpp"
#include "tools/usage_error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <stdexcept>

namespace terrace::tools {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;
using ServicePart = ServiceArguments::Part;

/// A size that `terrace set` knows.
struct Size {
  std::string_view name;
  std::string_view tier;
  bool in_bytes;
};
constexpr std::array sizes{Size{"device-blocks", "device", false},   Size{"device-capacity", "device", true},
                           Size{"host-blocks", "host", false},       Size{"host-capacity", "host", true},
                           Size{"storage-blocks", "storage", false}, Size{"storage-capacity", "storage", true}};

struct Wanted {
  std::vector<json::object> resizes;
  json::object settings;
};

Wanted read(const SetArguments& arguments) {
  if (arguments.words.empty()) throw UsageError{"name a setting and its new value, as in `terrace set host-capacity 8GiB`"};
  if (arguments.words.size() % 2 != 0) {
    throw UsageError{fmt::format("{}: its value is missing (NAME VALUE NAME VALUE...)", printable(arguments.words.back()))};
  }
  const std::vector<std::string> names = names_to_set();
  Wanted wanted;
  for (std::size_t i = 0; i < arguments.words.size(); i += 2) {
    const std::string& name = arguments.words[i];
    const std::string& word = arguments.words[i + 1];
    if (std::ranges::find(names, name) == names.end()) {
      throw UsageError{fmt::format("there is no setting \"{}\"{}; the settings are {}", printable(name), suggestion(name, names),
                                   fmt::join(names, ", "))};
    }
    const auto size = std::ranges::find(sizes, name, &Size::name);
    if (size == sizes.end()) {
      wanted.settings[name] = word;
      continue;
    }
    json::object resize{{"tier", size->tier}, {"pool", arguments.pool}};
    if (size->in_bytes) resize["bytes"] = count(to_size(name, word));
    else resize["blocks"] = to_whole_number(name, word, 0, UINT32_MAX);
    wanted.resizes.push_back(std::move(resize));
  }
  return wanted;
}

/// How far a resize has come; nothing: the size is reached. Throws std::runtime_error if it has stopped early.
std::optional<ProgressState> look(const json::object& status, const json::object& resize) {
  const json::value& pool = status.at("pools").as_array().at(resize.at("pool").to_number<std::size_t>());
  const std::string tier = text_in(resize, "tier");
  const std::uint64_t wanted = whole_in(resize, "blocks");
  const json::value& it = pool.as_object().at(tier);
  // The device tier changes at once, except for slots in use, which retire.
  const std::uint64_t now = tier == "device" ? wanted : whole_in(it, tier == "host" ? "usable" : "capacity_blocks");
  const std::uint64_t retiring = tier == "storage" ? 0 : whole_in(it, "retiring");
  const std::uint64_t missing = (now > wanted ? now - wanted : wanted - now) + retiring;
  // A store whose growth has stopped wants no more than it has.
  if (tier != "device" && now < wanted && !it.as_object().at("growth_error").as_string().empty()) {
    throw std::runtime_error{fmt::format("the {} tier stopped at {} of {} blocks: {}", tier, now, wanted,
                                         it.as_object().at("growth_error").as_string().c_str())};
  }
  if (tier != "device" && whole_in(it, tier == "host" ? "wanted" : "wanted_blocks") != wanted) {
    throw std::runtime_error{fmt::format("another command has changed the size of the {} tier meanwhile", tier)};
  }
  if (missing == 0) return std::nullopt;
  return ProgressState{wanted - std::min(wanted, missing), wanted, "resizing"};
}

constexpr std::chrono::milliseconds interval = 100ms;
constexpr unsigned conflict = 409;

bool is_true(const json::object& of, std::string_view name) { return of.contains(name) && of.at(name).as_bool(); }

/// What a clear waits for: "waits for 2 leases, 1 writes of blocks".
std::string waits_for(const json::object& status) {
  std::string shown;
  if (status.contains("work")) {
    for (const auto& [name, value] : status.at("work").as_object()) {
      if (const auto number = value.to_number<std::uint64_t>(); number > 0)
        shown += fmt::format("{}{} {}", shown.empty() ? "" : ", ", number, std::string_view{name});
    }
  }
  if (shown.empty()) shown = is_true(status, "erasing") ? "the disk" : "jobs of the engine, which still use blocks";
  return "waits for " + shown;
}

/// Waits until what was cleared does not come back, and is gone if the cache serves nothing until then.
void await_cleared(const AdminClient& client) {
  const Waiting waiting;
  waiting.show_until_done([&]() -> std::optional<ProgressState> {
    const json::object status = client.get("/v1/status");
    const bool clearing = status.contains("cache") && status.at("cache") == "clearing";  // a store has no such state
    if (!is_true(status, "erasing") && !clearing) return std::nullopt;
    if (is_true(status, "transfers_paused")) {
      throw std::runtime_error{
          "the cache is cleared, but what is stored cannot be removed while transfers are paused: terrace resume"};
    }
    return ProgressState{0, 0, waits_for(status)};
  });
}

void clear(const AdminClient& client, const ServiceArguments& arguments) {
  json::object order;
  if (arguments.part == ServicePart::update) order["weights-revision"] = arguments.weights_revision;
  const bool waits = arguments.until_resumed || arguments.release_host;
  if (waits) order["wait"] = true;
  if (arguments.release_host) order["release-host"] = true;
  if (arguments.keep_storage) order["keep-storage"] = true;
  if (arguments.keep_shared) order["keep-shared"] = true;
  const json::object answer = client.post(arguments.part == ServicePart::update ? "/v1/update" : "/v1/clear", order);
  if (!arguments.no_wait) await_cleared(client);
  if (arguments.json) return print_json(answer);
  print("{}{}{}\n", arguments.no_wait && is_true(answer, "erasing") ? "cleared; stored blocks are being removed" : "cleared",
        waits ? "; nothing is served until terrace resume" : "",
        is_true(answer, "shared_off") ? "; the shared store is not used until terrace update names the weights" : "");
}

void pause(const AdminClient& client, bool as_json) {
  const json::object answer = client.post("/v1/pause");
  if (as_json) print_json(answer);
  else print("transfers are paused until terrace resume: requests that need one wait, and under vLLM are computed\n");
}

void resume(const AdminClient& client, const ServiceArguments& arguments) {
  const json::object before = client.get("/v1/status");
  const bool served = !is_true(before, "transfers_paused") && (!before.contains("cache") || before.at("cache") == "normal");
  (void)client.post("/v1/unpause");
  const Waiting waiting;
  AdminClient::Answer answer = client.ask("POST", "/v1/resume");
  for (; answer.status == conflict && !arguments.no_wait; answer = client.ask("POST", "/v1/resume")) waiting.sleep(interval);
  const json::object resumed = client.checked(answer);
  if (arguments.json) print_json(resumed);
  else print("{}\n", served ? "nothing was paused" : "resumed");
}

}  // namespace

std::vector<std::string> names_to_set() {
  std::vector<std::string> names;
  names.reserve(sizes.size());
  for (const Size& size : sizes) names.emplace_back(size.name);
  for (const ConfigOption& option : Config{}.table()) {
    if (option.live) names.push_back(option.table.empty() ? option.key : option.table + "." + option.key);
  }
  return names;
}

void run_set(const SetArguments& arguments) {
  const Wanted wanted = read(arguments);
  const AdminClient client{arguments.target};
  const Waiting waiting;
  json::object results;
  json::array made;
  for (const json::object& resize : wanted.resizes) {
    json::object answer = client.post("/v1/resize", resize);
    if (!arguments.no_wait) waiting.show_until_done([&] { return look(client.get("/v1/status"), answer); });
    if (!arguments.json) {
      const std::string tier = text_in(answer, "tier");
      print("{}: {} blocks ({}){}\n", tier, whole_in(answer, "blocks"), to_string(Bytes{whole_in(answer, "bytes")}),
            arguments.no_wait ? ", under way" : "");
    }
    made.push_back(std::move(answer));
  }
  if (!wanted.settings.empty()) {
    const json::object settings = client.post("/v1/settings", wanted.settings);
    for (const auto& [name, given] : wanted.settings) {
      if (!arguments.json) print("{}: {}\n", std::string{name}, std::string{settings.at(name).as_string()});
    }
    results["settings"] = settings;
  }
  results["sizes"] = std::move(made);
  if (arguments.json) print_json(results);
}

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
