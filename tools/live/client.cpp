#include "tools/live/client.hpp"

#include "runtime/admin/address.hpp"
#include "terrace/admin.hpp"
#include "tools/usage_error.hpp"

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

namespace terrace::tools {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace json = boost::json;

using Socket = asio::generic::stream_protocol::socket;
using Endpoint = asio::generic::stream_protocol::endpoint;

/// Scrapes and statuses are far smaller.
constexpr std::uint64_t answer_max = 512ULL << 20U;
constexpr Duration connect_patience = std::chrono::seconds{5};

std::string explained(const std::string& name, const boost::system::error_code& error) {
  const bool refused = error == asio::error::connection_refused || error.value() == ENOENT;
  const char* const hint = refused                               ? " (no process listens there)"
                           : error == asio::error::access_denied ? " (the endpoint is for the user of the process, and for root)"
                                                                 : "";
  return fmt::format("{}: {}{}", name, error.message(), hint);
}

/// A process that hangs accepts nothing, and the system does not say when there is room for one who waits.
boost::system::error_code connect_to_unix(Socket& socket, const std::filesystem::path& path, TimePoint until) {
  const Endpoint endpoint{asio::local::stream_protocol::endpoint{path.string()}};
  boost::system::error_code error;
  socket.open(endpoint.protocol(), error);
  socket.non_blocking(true, error);
  while (!error && ::connect(socket.native_handle(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0) {
    if (errno != EAGAIN) return {errno, boost::system::system_category()};
    if (SteadyClock{}.now() >= until) return asio::error::timed_out;
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  return error;
}

/// Who listens on the socket must be this user, or root. Root itself may ask everybody.
void check_peer(Socket& socket, const std::string& name) {
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool known = ::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  if (::geteuid() == 0 || (known && (peer.uid == ::geteuid() || peer.uid == 0))) return;
  throw UsageError{fmt::format("{}: the process that listens there belongs to user {}, so it is not asked", name, peer.uid)};
}

admin::Address address_of(const std::string& socket) {
  const bool has_scheme = socket.starts_with("unix:") || socket.starts_with("tcp:");
  try {
    return admin::parse_address(has_scheme ? socket : "unix:" + socket);
  } catch (const std::invalid_argument&) {
    throw UsageError{fmt::format("--socket {}: it must be a path, unix:PATH, tcp:127.0.0.1:PORT or tcp:[::1]:PORT", socket)};
  }
}

/// The address of the only process.
admin::Address found() {
  const std::filesystem::path folder = admin_folder();
  const std::vector<std::filesystem::path> sockets = as_usage<std::runtime_error>([&] { return admin::live_sockets(folder); });
  if (sockets.empty()) {
    throw UsageError{
        fmt::format("no process listens in {}: start one with option admin.listen (terrace replay --admin unix:), or "
                    "name its socket with --socket",
                    folder.string())};
  }
  if (sockets.size() > 1) {
    std::vector<std::string> names;
    names.reserve(sockets.size());
    for (const auto& socket : sockets) names.push_back(socket.string());
    throw UsageError{fmt::format("several processes listen; choose one with --socket: {}", fmt::join(names, ", "))};
  }
  return {.socket = sockets.front()};
}

}  // namespace

AdminClient::AdminClient(const Target& target) {
  const admin::Address address = target.socket.empty() || target.socket == "unix:" ? found() : address_of(target.socket);
  name_ = admin::to_string(address);
  if (!target.token_file.empty()) token_ = as_usage<std::exception>([&] { return admin::read_token(target.token_file); });
}

AdminClient::Answer AdminClient::ask(std::string_view method, const std::string& path, const std::string& body,
                                     Duration patience) const {
  const admin::Address address = admin::parse_address(name_);
  http::request<http::string_body> request{http::string_to_verb(method), path, 11};
  request.set(http::field::host, "terrace");
  request.set(http::field::connection, "close");
  if (!token_.empty()) request.set(http::field::authorization, "Bearer " + token_);
  if (!body.empty()) request.set(http::field::content_type, "application/json");
  request.body() = body;
  request.prepare_payload();

  asio::io_context io;
  Socket socket{io};
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(answer_max);
  boost::system::error_code result = asio::error::timed_out;
  const auto talk = [&](const boost::system::error_code& connected) {
    if (connected) {
      result = connected;
      return;
    }
    http::async_write(socket, request, [&](const boost::system::error_code& written, std::size_t) {
      // An endpoint that refuses early may close before it has read everything. Its reply says why.
      (void)written;
      http::async_read(socket, buffer, parser, [&](const boost::system::error_code& read, std::size_t) { result = read; });
    });
  };
  if (address.is_unix) {
    const boost::system::error_code connected = connect_to_unix(socket, address.socket, SteadyClock{}.now() + connect_patience);
    if (connected == asio::error::timed_out) throw Unreachable{fmt::format("{}: the process accepts no connection", name_)};
    if (!connected) check_peer(socket, name_);
    talk(connected);
  } else {
    socket.async_connect(asio::ip::tcp::endpoint{asio::ip::make_address(address.host), address.port}, talk);
  }
  io.run_for(patience);
  if (result) throw Unreachable{explained(name_, result)};
  Answer answer{parser.get().result_int(), parser.get().body(), {}};
  boost::system::error_code not_json;
  // A capture is long, and nobody reads its values here.
  constexpr std::size_t parsed_max = std::size_t{4} << 20U;
  if (answer.text.size() > parsed_max) return answer;
  answer.body = json::parse(answer.text, not_json);
  if (not_json) answer.body = nullptr;
  return answer;
}

json::object AdminClient::checked(const Answer& answer) const {
  const json::object* const object = answer.body.if_object();
  if (answer.status >= 200 && answer.status < 300 && object != nullptr) return *object;
  std::string sentence = fmt::format("{}: status {}", name_, answer.status);
  if (object != nullptr && object->if_contains("error") != nullptr && object->at("error").is_string()) {
    sentence = object->at("error").get_string().c_str();
  }
  if (answer.status == 400 || answer.status == 404) throw UsageError{sentence};
  throw std::runtime_error{sentence};
}

json::object AdminClient::get(const std::string& path) const {
  constexpr unsigned not_yet = 503;
  Answer answer = ask("GET", path);
  // A process that has just started has told nothing yet.
  for (int tries = 0; answer.status == not_yet && tries < 100; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    answer = ask("GET", path);
  }
  return checked(answer);
}

json::object AdminClient::status_of_cache() const {
  json::object status = get("/v1/status");
  if (status.contains("store")) {
    throw UsageError{fmt::format("{}: this process has a store only, and no cache; terrace top shows the store", name_)};
  }
  return status;
}

json::object AdminClient::post(const std::string& path, const json::object& body) const {
  return checked(ask("POST", path, json::serialize(body)));
}

}  // namespace terrace::tools
