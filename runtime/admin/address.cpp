#include "runtime/admin/address.hpp"

#include "base/whole_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

namespace terrace {

std::filesystem::path admin_folder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");  // NOLINT(concurrency-mt-unsafe): only read
  if (runtime != nullptr && *runtime == '/') return std::filesystem::path{runtime} / "terrace";
  if (::geteuid() == 0) return "/run/terrace";
  return fmt::format("/tmp/terrace-{}", ::geteuid());
}

namespace admin {
namespace {

constexpr std::string_view unix_scheme = "unix:";
constexpr std::string_view tcp_scheme = "tcp:";

[[noreturn]] void refuse(std::string_view text) {
  throw std::invalid_argument{fmt::format(
      "admin.listen is \"{}\": it must be unix:PATH, unix:, tcp:127.0.0.1:PORT or tcp:[::1]:PORT (this machine only)", text)};
}

}  // namespace

void refuse_path(std::size_t bytes) {
  throw std::invalid_argument{
      fmt::format("admin.listen: the path of a Unix socket has at most {} bytes, this has {}", socket_path_max, bytes)};
}

void throw_errno(int error, const std::string& what) { throw std::system_error{error, std::generic_category(), what}; }

Address parse_address(std::string_view text) {
  Address address;
  if (text.starts_with(unix_scheme)) {
    const std::string_view path = text.substr(unix_scheme.size());
    if (path.size() > socket_path_max) refuse_path(path.size());
    if (path.find('\0') != std::string_view::npos) refuse(unix_scheme);
    address.socket = path;
    return address;
  }
  if (!text.starts_with(tcp_scheme)) refuse(text);
  const std::string_view rest = text.substr(tcp_scheme.size());
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) refuse(text);
  const std::string_view host = rest.substr(0, colon);
  const std::string_view port = rest.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc{} || end != port.data() + port.size() || port.empty()) refuse(text);
  if (host != "127.0.0.1" && host != "localhost" && host != "[::1]") refuse(text);
  address.is_unix = false;
  address.host = host == "[::1]" ? "::1" : "127.0.0.1";
  return address;
}

Address checked_address(const AdminOptions& options) {
  Address address = parse_address(options.listen);
  if (address.is_unix || !options.token_file.empty()) return address;
  throw std::invalid_argument{
      "admin.listen over TCP needs admin.token-file: every user of this machine can connect, and commands can clear the cache"};
}

std::string to_string(const Address& address) {
  if (address.is_unix) return fmt::format("{}{}", unix_scheme, address.socket.string());
  return address.host == "::1" ? fmt::format("tcp:[::1]:{}", address.port) : fmt::format("tcp:{}:{}", address.host, address.port);
}

std::string read_token(const std::filesystem::path& file) {
  constexpr std::size_t shortest = 16;
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) throw_errno(errno, fmt::format("admin.token-file {}", file.string()));
  if ((info.st_mode & 077U) != 0) {
    throw std::invalid_argument{
        fmt::format("admin.token-file {}: other users can read it; run chmod 600 {}", file.string(), file.string())};
  }
  constexpr std::size_t enough = 4096;
  std::string token;
  try {
    token = read_whole(file, enough);
  } catch (const std::runtime_error& reason) {
    throw std::invalid_argument{fmt::format("admin.token-file {}: it cannot be read: {}", file.string(), reason.what())};
  }
  token.erase(std::min(token.find('\n'), token.size()));
  if (!token.empty() && token.back() == '\r') token.pop_back();
  if (token.size() < shortest) {
    throw std::invalid_argument{fmt::format("admin.token-file {}: a token has at least {} characters, this has {}", file.string(),
                                            shortest, token.size())};
  }
  return token;
}

}  // namespace admin
}  // namespace terrace
