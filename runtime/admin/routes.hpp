#pragma once

#include "runtime/admin/command.hpp"
#include "runtime/admin/mailbox.hpp"
#include "runtime/admin/observations.hpp"
#include "runtime/admin/snapshot.hpp"
#include "runtime/admin/status.hpp"
#include "terrace/admin.hpp"
#include "terrace/clock.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace terrace::admin {

/// A request as it came over the wire.
struct Request {
  std::string_view method;         ///< "GET"
  std::string_view target;         ///< "/v1/jobs/7?x=y"
  std::string_view authorization;  ///< the header's value; empty: there is none
  std::string_view body;
};

/// How much more memory and storage there is. Called on the thread of the endpoint, and may read files. Nothing: not known.
struct Room {
  std::function<std::optional<Bytes>()> host{};
  std::function<std::optional<Bytes>(PoolId)> storage{};
};

/// Decides what a request gets: a reply at once, or a command for the cache or store. Does no I/O of its own. Threads: one, that
/// of the endpoint.
class Routes {
 public:
  /// `token` empty: none is asked for. References must outlive this object.
  Routes(const AdminOptions& options, std::string token, const Mailbox& mailbox, Observations& observations, const Clock& clock,
         Room room);

  /// Never throws for what a request may contain.
  [[nodiscard]] std::variant<Reply, Command> route(const Request& request) const;
  /// Takes the last snapshot into the history. Call it about once a second.
  void look(History::WallTime wall) const;

 private:
  [[nodiscard]] bool allowed(std::string_view authorization) const;
  /// `snapshot` is the last one; nullptr: there is none yet.
  [[nodiscard]] Reply ask(std::string_view path, std::string_view query, const AdminSnapshot* snapshot) const;
  [[nodiscard]] std::variant<Reply, Command> order(std::string_view path, std::string_view body) const;
  [[nodiscard]] Reply healthz(const AdminSnapshot& snapshot) const;
  [[nodiscard]] Reply metrics(const AdminSnapshot& snapshot) const;
  [[nodiscard]] Reply status(const AdminSnapshot& snapshot) const;
  [[nodiscard]] Reply config(const AdminSnapshot* snapshot) const;
  [[nodiscard]] Reply jobs(std::string_view id, const AdminSnapshot& snapshot) const;
  [[nodiscard]] Reply captured(CaptureKind kind, const AdminSnapshot* snapshot) const;
  [[nodiscard]] Reply history(std::string_view query) const;
  [[nodiscard]] Duration age(const AdminSnapshot& snapshot) const { return std::max(clock_.now() - snapshot.made, Duration{}); }
  [[nodiscard]] Health health(const AdminSnapshot& snapshot) const {
    return health_of(snapshot, age(snapshot), interval_, mailbox_.waiting());
  }
  [[nodiscard]] std::optional<Reply> refused(const Resize& resize) const;

  bool commands_;
  Duration interval_;
  std::vector<ConfigValue> config_;
  std::string token_;
  const Mailbox& mailbox_;
  Observations& observations_;
  const Clock& clock_;
  Room room_;
};

/// The text without the user and password of a URL in it: "redis://…@host".
[[nodiscard]] std::string without_secrets(std::string_view text);

}  // namespace terrace::admin
