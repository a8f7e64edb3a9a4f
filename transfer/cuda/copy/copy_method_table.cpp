#include "transfer/cuda/copy/copy_method_table.hpp"

#include "base/check.hpp"
#include "base/whole_file.hpp"

#include <boost/json.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace terrace {
namespace {

namespace json = boost::json;
using enum CopyMethod;

constexpr std::int64_t format_version = 2;
constexpr std::array<std::string_view, copy_method_count> method_names{"batch", "plain", "kernel", "bulk_kernel"};
constexpr std::array<std::string_view, direction_count> direction_names{"swap_out", "swap_in"};

std::size_t index(CopyMethod method) { return static_cast<std::size_t>(method); }

template <class Classes>
std::size_t class_of(std::uint64_t value, const Classes& classes) {
  const auto above = std::ranges::upper_bound(classes, value);
  return above == classes.begin() ? 0 : static_cast<std::size_t>(above - classes.begin()) - 1;
}

template <class Classes>
std::optional<std::size_t> class_from(const json::object& cell, std::string_view name, const Classes& classes) {
  const json::value* const value = cell.if_contains(name);
  if (value == nullptr || !value->is_int64()) return std::nullopt;
  const auto found = std::ranges::find(classes, static_cast<std::uint64_t>(value->get_int64()));
  if (found == classes.end()) return std::nullopt;
  return static_cast<std::size_t>(found - classes.begin());
}

std::string_view text_of(const json::object& object, std::string_view name) {
  const json::value* const value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string_view{value->get_string()} : std::string_view{};
}

std::optional<CopyMethodTable::Rates> rates_from(const json::object& cell) {
  const json::value* const value = cell.if_contains("bytes_per_second");
  if (value == nullptr || !value->is_object()) return std::nullopt;
  CopyMethodTable::Rates rates{};
  for (const auto& [name, rate] : value->get_object()) {
    const std::optional<CopyMethod> method = parse_copy_method(name);
    if (!method || !rate.is_number()) return std::nullopt;
    rates[index(*method)] = rate.to_number<double>();
    if (!std::isfinite(rates[index(*method)]) || rates[index(*method)] < 0) return std::nullopt;
  }
  return rates;
}

}  // namespace

std::string_view to_string(CopyMethod method) { return method_names[index(method)]; }

std::optional<CopyMethod> parse_copy_method(std::string_view text) {
  const auto found = std::ranges::find(method_names, text);
  if (found == method_names.end()) return std::nullopt;
  return static_cast<CopyMethod>(found - method_names.begin());
}

CopyMethodTable::CopyMethodTable() {
  for (Cells& cells : cells_) {
    for (std::size_t bytes = 0; bytes < piece_bytes.size(); ++bytes) {
      for (std::size_t number = 0; number < piece_counts.size(); ++number) {
        Cell& cell = cells[bytes][number];
        if (number == 0) {
          cell.order = {plain, batch, kernel, bulk_kernel};
        } else if (piece_bytes[bytes] < (32 << 10) && piece_counts[number] >= 32) {
          cell.order = {kernel, bulk_kernel, batch, plain};
        } else {
          cell.order = {batch, plain, kernel, bulk_kernel};
        }
      }
    }
  }
}

void CopyMethodTable::measured(Direction direction, std::size_t bytes_class, std::size_t count_class, const Rates& rates) {
  Cell& cell = cells_[static_cast<std::size_t>(direction)].at(bytes_class).at(count_class);
  cell.rates = rates;
  const auto worth = [&](CopyMethod method) {
    return rates[index(method)] / (method == kernel || method == bulk_kernel ? kernel_advantage : 1);
  };
  // Insertion sort: there are only a few methods, and equally good methods keep their order.
  for (std::size_t i = 1; i < cell.order.size(); ++i) {
    for (std::size_t at = i; at > 0 && worth(cell.order[at]) > worth(cell.order[at - 1]); --at) {
      std::swap(cell.order[at], cell.order[at - 1]);
    }
  }
}

CopyMethod CopyMethodTable::choose(Direction direction, const PieceShape& shape, CopyMethods available) const {
  TERRACE_CHECK(available.test(index(plain)));
  if (!shape.aligned) {
    // A kernel would move them byte by byte.
    available.reset(index(kernel));
    available.reset(index(bulk_kernel));
  }
  const std::uint64_t mean = shape.count == 0 ? 0 : shape.bytes / shape.count;
  const Cell& best = cell(direction, class_of(mean, piece_bytes), class_of(shape.count, piece_counts));
  return *std::ranges::find_if(best.order, [&](CopyMethod method) { return available.test(index(method)); });
}

std::string CopyMethodTable::to_json(const CopyTableKey& key) const {
  json::array cells;
  for (std::size_t direction = 0; direction < direction_count; ++direction) {
    for (std::size_t bytes = 0; bytes < piece_bytes.size(); ++bytes) {
      for (std::size_t number = 0; number < piece_counts.size(); ++number) {
        const Rates& rates = cells_[direction][bytes][number].rates;
        if (std::ranges::all_of(rates, [](double rate) { return rate == 0; })) continue;
        json::object by_method;
        for (std::size_t method = 0; method < copy_method_count; ++method) {
          if (rates[method] > 0) by_method[method_names[method]] = rates[method];
        }
        cells.push_back(json::object{{"direction", direction_names[direction]},
                                     {"piece_bytes", static_cast<std::int64_t>(piece_bytes[bytes])},
                                     {"pieces", static_cast<std::int64_t>(piece_counts[number])},
                                     {"bytes_per_second", std::move(by_method)}});
      }
    }
  }
  return json::serialize(json::object{{"version", format_version},
                                      {"device", key.device},
                                      {"driver", key.driver},
                                      {"kernels", key.kernels},
                                      {"cells", std::move(cells)}});
}

Result<CopyMethodTable> CopyMethodTable::from_json(std::string_view text, const CopyTableKey& key) {
  boost::system::error_code error;
  const json::value parsed = json::parse(text, error);
  if (error || !parsed.is_object()) return Errc::corrupt;
  const json::object& table = parsed.get_object();
  const json::value* const version = table.if_contains("version");
  if (version == nullptr || !version->is_int64()) return Errc::corrupt;
  if (version->get_int64() != format_version) return Errc::incompatible;
  const auto of = [&](std::string_view name) { return std::string{text_of(table, name)}; };
  if (CopyTableKey{of("device"), of("driver"), of("kernels")} != key) return Errc::incompatible;
  const json::value* const cells = table.if_contains("cells");
  if (cells == nullptr || !cells->is_array()) return Errc::corrupt;
  CopyMethodTable made;
  for (const json::value& value : cells->get_array()) {
    if (!value.is_object()) return Errc::corrupt;
    const json::object& cell = value.get_object();
    const auto direction = std::ranges::find(direction_names, text_of(cell, "direction"));
    const std::optional<std::size_t> bytes = class_from(cell, "piece_bytes", piece_bytes);
    const std::optional<std::size_t> number = class_from(cell, "pieces", piece_counts);
    const std::optional<Rates> rates = rates_from(cell);
    if (direction == direction_names.end() || !bytes || !number || !rates) return Errc::corrupt;
    made.measured(static_cast<Direction>(direction - direction_names.begin()), *bytes, *number, *rates);
  }
  return made;
}

Result<CopyMethodTable> CopyMethodTable::load(const std::filesystem::path& file, const CopyTableKey& key) {
  constexpr std::size_t enough = std::size_t{1} << 20U;  // tables have some kilobytes
  try {
    return from_json(read_whole(file, enough), key);
  } catch (const std::runtime_error&) {
    return Errc::not_found;
  }
}

Result<void> CopyMethodTable::save(const std::filesystem::path& file, const CopyTableKey& key) const {
  if (is_no_ordinary_file(file)) return Errc::io_failed;  // such as /dev/null, which root could replace
  std::filesystem::path beside = file;
  beside += fmt::format(".{}", ::getpid());
  const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return Errc::io_failed;
  const bool written = write_whole(fd, to_json(key) + "\n");
  const bool closed = ::close(fd) == 0;
  std::error_code error;
  if (written && closed) std::filesystem::rename(beside, file, error);
  if (!written || !closed || error) {
    ::unlink(beside.c_str());
    return Errc::io_failed;
  }
  return {};
}

}  // namespace terrace
