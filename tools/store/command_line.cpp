#include "tools/store/command_line.hpp"

#include "tools/store/change.hpp"
#include "tools/store/inspect.hpp"
#include "tools/store/verify.hpp"
#include "tools/usage_error.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <utility>

namespace terrace::tools {
namespace {

using Part = StoreArguments::Part;

constexpr const char* exit_statuses = R"(
Exit status: 0 done; 1 a check failed; 2 bad arguments, no store there, or one
that is in use; 3 failed while running; 130 interrupted. Each but 0 comes with
one line on standard error.
)";

constexpr const char* overview = R"(
DIR is that of --storage file:DIR, or a store's own directory in there:
DIR/store, or the name that it was given. stat, list, show and verify only read,
and work beside the process that has the store; what they say of it then is true
of the moment when they looked. remove needs a stopped store. Which slots the
owner has quarantined since its start it does not write down: they count as
free here.
)";

constexpr const char* list_help = R"(
Parents come before their children, orphans (blocks whose parent is not there)
last. A namespace is shown as the first 16 digits of the root key of model,
adapter and tenant.

Examples:
  terrace store list /var/cache/terrace --limit 20
  terrace store list /var/cache/terrace --namespace 3fa4 --json)";

constexpr const char* show_help = R"(
Says what the catalog has of the block, where its bytes lie, whether they
verify (exit status 1 if not), and on which blocks it stands, root first.

Example:
  terrace store show /var/cache/terrace 09fd2c)";

constexpr const char* verify_help = R"(
Reads every block and compares it with its checksum, in the order in which they
lie, past the page cache where the file system lets it. Beside an owner, a
block that is given up meanwhile counts as changed; one that does not verify is
looked at for five more seconds before it counts as wrong, since its owner may
be about to write down that it is gone.

A power failure may leave records of blocks that the owner had given up already:
they are reported as wrong. They do no harm: the owner verifies what it reads.

Examples:
  terrace store verify /var/cache/terrace
  terrace store verify /var/cache/terrace --bandwidth 50MiB
      beside an owner that needs the disk
  terrace store verify /var/cache/terrace --threads 16 --json)";

constexpr const char* remove_help = R"(
Each block goes with all that stand on it. When this returns, a power failure
does not bring them back. Like any start of the store it takes the whole
capacity.

Examples:
  terrace store remove /var/cache/terrace 09fd2c 8812aa
  terrace store remove /var/cache/terrace --all --yes)";

CLI::App* add_part(CLI::App& store, StoreArguments& arguments, Part part, const char* name, const char* what,
                   std::string footer) {
  CLI::App* const command = store.add_subcommand(name, what);
  command->add_option("directory", arguments.directory, "The store's directory")->type_name("DIR")->required();
  command->add_flag("--json", arguments.json, "One JSON object on standard output");
  command->footer(std::move(footer));
  command->callback([&arguments, part] { arguments.part = part; });
  return command;
}

VerifyOptions verify_options(const StoreArguments& arguments) {
  constexpr unsigned threads_max = 256;
  if (arguments.threads == 0 || arguments.threads > threads_max) {
    throw UsageError{fmt::format("--threads {}: must be from 1 to {}", arguments.threads, threads_max)};
  }
  VerifyOptions options{.threads = arguments.threads, .json = arguments.json};
  if (arguments.bandwidth.empty()) return options;
  const Result<Bytes> bandwidth = parse_bytes(arguments.bandwidth);
  if (!bandwidth || count(*bandwidth) == 0) {
    throw UsageError{fmt::format("--bandwidth {}: not a size above 0; write it as 50MiB or 4096", arguments.bandwidth)};
  }
  options.bandwidth = *bandwidth;
  return options;
}

RemoveOptions remove_options(const StoreArguments& arguments) {
  if (arguments.all && !arguments.keys.empty()) throw UsageError{"keys and --all: give the ones or the other"};
  if (!arguments.all && arguments.keys.empty()) throw UsageError{"nothing to remove: give keys, or --all"};
  if (arguments.all && !arguments.yes) throw UsageError{"--all removes every block: say --yes, too"};
  if (!arguments.all && arguments.yes) throw UsageError{"--yes: only with --all"};
  return {.keys = arguments.keys, .all = arguments.all, .json = arguments.json};
}

}  // namespace

void add_store_options(CLI::App& store, StoreArguments& arguments) {
  store.require_subcommand(1);
  store.footer(std::string{overview} + exit_statuses + "\n`terrace store COMMAND --help` has examples.");
  add_part(store, arguments, Part::stat, "stat", "Format, geometry, what is used and free, namespaces, owner",
           "\nExample:\n  terrace store stat /var/cache/terrace");

  CLI::App* const list =
      add_part(store, arguments, Part::list, "list", "The blocks: key, depth, namespace, generation", list_help);
  list->add_option("--limit", arguments.limit, "Blocks to list at most")->type_name("COUNT");
  list->add_option("--namespace", arguments.wanted_namespace, "Only of the namespace that begins with these hexadecimal digits")
      ->type_name("DIGITS");

  CLI::App* const show = add_part(store, arguments, Part::show, "show", "All about one block", show_help);
  show->add_option("key", arguments.key, "Hexadecimal digits of its key, from the first; as many as it takes")->required();

  CLI::App* const verify = add_part(store, arguments, Part::verify, "verify", "Reads all data and checks them",
                                    std::string{verify_help} + "\n" + exit_statuses);
  verify->add_option("--threads", arguments.threads, "Threads that read and check")->type_name("COUNT")->capture_default_str();
  verify->add_option("--bandwidth", arguments.bandwidth, "Read no more than this a second (default: what the disk gives)")
      ->type_name("SIZE");

  CLI::App* const remove =
      add_part(store, arguments, Part::remove, "remove", "Blocks and all that stand on them, of a stopped store", remove_help);
  remove->add_option("keys", arguments.keys, "Hexadecimal digits of the blocks' keys, as show takes them");
  remove->add_flag("--all", arguments.all, "Remove every block");
  remove->add_flag("--yes", arguments.yes, "Confirms --all");
}

ExitStatus run_store(const StoreArguments& arguments) {
  switch (arguments.part) {
    case Part::stat: print_stat(arguments.directory, arguments.json); return ExitStatus::done;
    case Part::list:
      print_list(arguments.directory,
                 {.limit = arguments.limit, .wanted_namespace = arguments.wanted_namespace, .json = arguments.json});
      return ExitStatus::done;
    case Part::show: return show_block(arguments.directory, arguments.key, arguments.json);
    case Part::verify: return verify_store(arguments.directory, verify_options(arguments));
    case Part::remove: remove_blocks(arguments.directory, remove_options(arguments)); return ExitStatus::done;
  }
  return ExitStatus::bad_input;
}

}  // namespace terrace::tools
