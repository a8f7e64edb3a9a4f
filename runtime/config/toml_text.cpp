// The only file that includes toml++. It turns a text into values of the table, with the line of each.

#include "runtime/config/givens.hpp"
#include "runtime/config/table/nearest_name.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

// Some malformed texts violate internal assumptions of toml++. With NDEBUG it declares these cases unreachable, which is
// undefined behaviour. So its checks are enabled here, and a failed check throws an exception.
namespace terrace::config {
[[noreturn]] static void toml_is_wrong(const char* condition) { throw std::logic_error{condition}; }
}  // namespace terrace::config
#undef NDEBUG
#define TOML_ASSERT(condition) ((condition) ? static_cast<void>(0) : terrace::config::toml_is_wrong(#condition))
#include <toml++/toml.h>

namespace terrace::config {
namespace {

constexpr std::size_t text_bytes_max = 1 << 20;

/// A description of toml++ in one line, without a final mark.
std::string description(const toml::parse_error& error) {
  std::string line = one_line(error.what());
  line.erase(line.find_last_not_of(" .") + 1);
  return line;
}

std::string_view kind_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return "a list";
    case toml::node_type::string: return "a text";
    case toml::node_type::integer: return "a whole number";
    case toml::node_type::floating_point: return "a number";
    case toml::node_type::boolean: return "true or false";
    case toml::node_type::date:
    case toml::node_type::time:
    case toml::node_type::date_time: return "a date or time";
    case toml::node_type::none: break;
  }
  return "nothing";
}

std::string_view wanted_kind(Type type) {
  switch (type) {
    case Type::whole: return "a whole number";
    case Type::size: return "a size in quotes, as in \"64KiB\",";
    case Type::bandwidth: return "a size per second in quotes, as in \"50MiB/s\",";
    case Type::duration: return "a duration in quotes, as in \"500ms\",";
    case Type::share: return "a number from 0 to 1, or a percentage in quotes,";
    case Type::yes_no: return "true or false";
    case Type::paths: return "a list of texts";
    default: return "a text";
  }
}

/// The word that a scalar stands for. Nothing if an option of this type does not take such a scalar.
std::optional<std::string> word_of(Type type, const toml::node& node) {
  const bool is_number = type == Type::size || type == Type::bandwidth || type == Type::duration || type == Type::share;
  if (const auto number = node.value_exact<std::int64_t>()) {
    if (type == Type::whole || is_number) return fmt::format("{}", *number);
  } else if (const auto real = node.value_exact<double>()) {
    if (type == Type::duration || type == Type::share) return fmt::format("{}", *real);
  } else if (const auto truth = node.value_exact<bool>()) {
    if (type == Type::yes_no) return *truth ? "true" : "false";
  } else if (const auto text = node.value_exact<std::string>()) {
    if (type != Type::whole && type != Type::yes_no) return *text;
  }
  return std::nullopt;
}

class Reader {
 public:
  Reader(std::string_view name, Givens& givens) : name_{name}, givens_{givens} {}

  void read(const toml::table& root) {
    // The numbers of pools, ranks and groups come first, because later checks refer to them.
    givens_.set_counts(elements(root, "pool"), elements(root, "rank"), elements(root, "group"));
    const std::vector<std::string> known = tables();
    for (const auto& [key, node] : root) {
      const bool is_table = std::ranges::find(known, key.str()) != known.end();
      if (is_table) {
        read_known_table(key, node);
      } else if (node.is_table() || node.is_array_of_tables()) {
        refuse(key, fmt::format("there is no table [{}]{}", one_line(key.str()), suggestion(key.str(), known)));
      } else {
        read_option("", 0, key, node);
      }
    }
  }

 private:
  [[nodiscard]] std::string place(const toml::source_region& region) const {
    return fmt::format("{}:{}", name_, region.begin.line);
  }
  [[noreturn]] void refuse(const toml::key& key, const std::string& what) const {
    throw ConfigError{fmt::format("{}: {}", place(key.source()), what)};
  }
  [[nodiscard]] static std::size_t elements(const toml::table& root, std::string_view key) {
    const toml::array* const array = root[key].as_array();
    return array == nullptr ? 0 : array->size();
  }

  void read_known_table(const toml::key& key, const toml::node& node) {
    const std::string_view name = key.str();
    if (!is_array(name)) {
      const toml::table* const table = node.as_table();
      if (table == nullptr) refuse(key, fmt::format("{0} is a table, [{0}], not {1}", name, kind_of(node)));
      read_table(name, 0, *table);
      return;
    }
    const toml::array* const array = node.as_array();
    if (array == nullptr || !array->is_array_of_tables()) {
      refuse(key, fmt::format("{0} is an array of tables, [[{0}]], not {1}", name, kind_of(node)));
    }
    for (std::size_t n = 0; n < array->size(); ++n) read_table(name, n, *(*array)[n].as_table());
  }

  void read_table(std::string_view table, std::size_t n, const toml::table& contents) {
    for (const auto& [key, node] : contents) read_option(table, n, key, node);
  }

  void read_option(std::string_view table, std::size_t n, const toml::key& key, const toml::node& node) {
    const Option* const option = find_option(table, key.str());
    if (option == nullptr) refuse(key, unknown(table, key.str()));
    const ConfigOrigin origin{ConfigLevel::file, place(key.source())};
    givens_.add(*option, n, {value_of(*option, spelled(*option, origin), node), origin});
  }

  /// The message about a key that the table does not have.
  [[nodiscard]] static std::string unknown(std::string_view table, std::string_view key) {
    std::vector<std::string> here;
    std::string elsewhere;
    for (const Option& option : options()) {
      if (option.table == table) here.emplace_back(option.key);
      if (option.key == key && elsewhere.empty()) elsewhere = place_of(option.table);
    }
    std::string hint = suggestion(key, here);
    if (!elsewhere.empty()) hint = fmt::format("; it belongs {}", elsewhere);
    if (hint.empty()) hint = nearest_anywhere(key);
    return fmt::format("there is no option \"{}\" {}{}", one_line(key), place_of(table), hint);
  }
  [[nodiscard]] static std::string nearest_anywhere(std::string_view key) {
    std::vector<std::string> keys;
    for (const Option& option : options()) keys.emplace_back(option.key);
    const std::string_view nearest = nearest_name(key, keys);
    if (nearest.empty()) return "";
    const auto option = std::ranges::find(options(), nearest, &Option::key);
    return fmt::format("; did you mean {} {}?", option->key, place_of(option->table));
  }
  [[nodiscard]] static std::string place_of(std::string_view table) {
    if (table.empty()) return "in front of the tables";
    return is_array(table) ? fmt::format("in [[{}]]", table) : fmt::format("in [{}]", table);
  }

  [[nodiscard]] Value value_of(const Option& option, const std::string& name, const toml::node& node) const {
    if (option.type == Type::paths) {
      if (const toml::array* const array = node.as_array()) return paths_of(name, *array);
    }
    const std::optional<std::string> word = word_of(option.type, node);
    if (!word) throw ConfigError{fmt::format("{}: {} is needed, not {}", name, wanted_kind(option.type), kind_of(node))};
    return givens_.read(option, name, *word);
  }
  [[nodiscard]] static Value paths_of(const std::string& name, const toml::array& array) {
    std::vector<std::string> paths;
    for (const toml::node& each : array) {
      const auto path = each.value_exact<std::string>();
      if (!path) throw ConfigError{fmt::format("{}: a list of texts is needed, but it has {}", name, kind_of(each))};
      paths.push_back(read_path(name, *path));
    }
    return paths;
  }

  std::string name_;
  Givens& givens_;
};

}  // namespace

void read_toml(std::string_view text, std::string_view name, Givens& givens) {
  const std::string shown = one_line(name);
  if (text.size() > text_bytes_max) {
    throw ConfigError{
        fmt::format("{}: {} bytes are too long for a configuration: at most {}", shown, text.size(), text_bytes_max)};
  }
  std::optional<toml::table> root;
  try {
    root = toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw ConfigError{fmt::format("{}:{}: {}", shown, error.source().begin.line, description(error))};
  } catch (const std::logic_error&) {
    throw ConfigError{fmt::format("{}: the text is no TOML", shown)};
  }
  Reader{shown, givens}.read(*root);
}

}  // namespace terrace::config
