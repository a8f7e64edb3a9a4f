#include "tools/store/command_line.hpp"

#include "tools/arguments.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <utility>

namespace terrace::tools {
namespace {

constexpr const char* exit_statuses = R"(
Exit status: 0 done; 1 a check failed; 2 bad arguments, no store there, or one
that is in use; 3 failed while running; 130 interrupted. Each status but 0
comes with one line on standard error.
)";

constexpr const char* overview = R"(
DIR is the directory of --storage file:DIR, or the store's own directory in it:
DIR/store, or another name if one was given. stat, list, show and verify only
read. They also work while a process has the store open; then they show its
state at the moment of the command. remove needs a store that is not in use.
Slots that the owner has quarantined since its start are not recorded on disk:
they count as free here.
)";

constexpr const char* list_help = R"(
DIR may also be a folder with several stores in it or below it: then it lists
these, a line each, with label, size, last write and owner.

Parents come before their children. Orphans (blocks whose parent is missing)
come last. A namespace is shown as the first 16 digits of the root key of model,
adapter and tenant.

Examples:
  terrace store list /mnt
  terrace store list /var/cache/terrace --limit 20
  terrace store list /var/cache/terrace --namespace 3fa4 --json)";

constexpr const char* show_help = R"(
Shows the catalog's record of the block, where its bytes are, whether they match
their checksum (exit status 1 if not), and all its ancestors, root first.

Example:
  terrace store show /var/cache/terrace 09fd2c)";

constexpr const char* verify_help = R"(
Reads every block in the order of its place on the disk and compares it with
its checksum. Reads bypass the page cache if the file system allows it. While a
process has the store open, a block that it evicts counts as changed. A block
that does not match is read again for five seconds before it counts as wrong,
because the owner may be about to remove its record.

A power failure may leave records of blocks that were evicted before. They are
reported as wrong. They do no harm, because the owner verifies what it reads.

Examples:
  terrace store verify /var/cache/terrace
  terrace store verify /var/cache/terrace --bandwidth 50MiB
      leaves most of the disk to the process that uses the store
  terrace store verify /var/cache/terrace --threads 16 --json)";

constexpr const char* remove_help = R"(
Removes the blocks and all their descendants. After that, a power failure does
not bring them back. Like any start of the store, this allocates its whole
capacity.

Examples:
  terrace store remove /var/cache/terrace 09fd2c 8812aa
  terrace store remove /var/cache/terrace --all --yes)";

CLI::App* add_part(CLI::App& store, StoreArguments& arguments, ExitStatus (*run)(const StoreArguments&), const char* name,
                   const char* what, std::string footer) {
  CLI::App* const command = store.add_subcommand(name, what);
  command->add_option("directory", arguments.directory, "The store's directory")->type_name("DIR")->required();
  command->add_flag("--json", arguments.json, "One JSON object on standard output");
  command->footer(std::move(footer));
  command->callback([&arguments, run] { arguments.run = run; });
  return command;
}

}  // namespace

void add_store_options(CLI::App& store, StoreArguments& arguments) {
  store.require_subcommand(1);
  store.footer(std::string{overview} + exit_statuses + "\n`terrace store COMMAND --help` has examples.");
  add_part(store, arguments, print_stat, "stat", "Shows whose the store is, geometry, used and free slots, namespaces, owner",
           "\nExample:\n  terrace store stat /var/cache/terrace");

  CLI::App* const list =
      add_part(store, arguments, print_list, "list", "Lists the blocks of a store, or the stores below a folder", list_help);
  add_value(*list, "--limit", arguments.limit, WholeNumber<std::uint64_t>{}, "COUNT", "Most blocks to list");
  list->add_option("--namespace", arguments.wanted_namespace,
                   "Only blocks of namespaces that begin with these hexadecimal digits")
      ->type_name("DIGITS");

  CLI::App* const show = add_part(store, arguments, show_block, "show", "Shows everything about one block", show_help);
  show->add_option("key", arguments.key, "First hexadecimal digits of its key, as many as are unambiguous")->required();

  CLI::App* const verify = add_part(store, arguments, verify_store, "verify", "Reads and checks all data",
                                    std::string{verify_help} + "\n" + exit_statuses);
  add_value(*verify, "--threads", arguments.threads, WholeNumber<unsigned>{1, 256}, "COUNT", "Threads that read and check")
      ->default_str(fmt::format("{}", arguments.threads));
  add_value(*verify, "--bandwidth", arguments.bandwidth, to_positive_bandwidth, "SIZE/s",
            "Most bytes read per second (default: no limit)");

  CLI::App* const remove = add_part(store, arguments, remove_blocks, "remove",
                                    "Removes blocks and all their descendants from a store that is not in use", remove_help);
  remove->add_option("keys", arguments.keys, "Hexadecimal digits of the blocks' keys, as show takes them");
  remove->add_flag("--all", arguments.all, "Remove every block");
  remove->add_flag("--yes", arguments.yes, "Confirms --all");
}

}  // namespace terrace::tools
