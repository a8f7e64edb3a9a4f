#include "runtime/events/endpoint.hpp"

#include <fmt/format.h>

#include <charconv>
#include <stdexcept>

namespace terrace::events {

std::string endpoint_of_rank(std::string_view option, const std::string& endpoint, std::uint32_t rank) {
  const auto refuse = [&] {
    throw std::invalid_argument{
        fmt::format("{} is \"{}\", must be tcp://ADDRESS:PORT (a port from 0 to 65535) or ipc://PATH", option, endpoint)};
  };
  constexpr std::string_view tcp = "tcp://";
  constexpr std::string_view ipc = "ipc://";
  if (endpoint.starts_with(ipc) && endpoint.size() > ipc.size()) {
    return rank == 0 ? endpoint : fmt::format("{}_dp{}", endpoint, rank);
  }
  const std::size_t colon = endpoint.rfind(':');
  if (!endpoint.starts_with(tcp) || colon <= tcp.size()) refuse();
  std::uint32_t port = 0;
  const char* const end = endpoint.data() + endpoint.size();
  const auto read = std::from_chars(endpoint.data() + colon + 1, end, port);
  constexpr std::uint32_t port_max = 65535;
  if (read.ec != std::errc{} || read.ptr != end || port > port_max) refuse();
  if (rank == 0 || port == 0) return endpoint;
  if (rank > port_max - port) {
    throw std::invalid_argument{fmt::format("{} \"{}\" with the data-parallel rank {} has the port {}, must be at most {}",
                                            option, endpoint, rank, std::uint64_t{port} + rank, port_max)};
  }
  return fmt::format("{}:{}", endpoint.substr(0, colon), port + rank);
}

}  // namespace terrace::events
