#pragma once

#include "runtime/admin/address.hpp"
#include "runtime/admin/mailbox.hpp"
#include "runtime/admin/routes.hpp"
#include "terrace/admin.hpp"
#include "terrace/clock.hpp"

#include <chrono>
#include <memory>
#include <string>

namespace terrace::admin {

/// The HTTP server of the admin endpoint, on its own thread. It never calls the cache: queries are answered from the last
/// snapshot, and commands go through the mailbox.
///
/// Limits: a body has at most 64 KiB, all headers together 8 KiB; a connection that has sent no complete request after
/// `silence_max`, or accepts no byte of a reply for that time, is closed. If there are more than AdminOptions::connections_max
/// connections, the oldest one that has sent no valid request is closed; if all have sent one, the new one is closed. Several
/// requests may use a connection, except after a wrong token.
///
/// If the client closes the connection, or its sending side, before the cache takes the command, the command is not carried out.
///
/// Ownership: mailbox and clock must outlive it. It closes the mailbox when it ends; the cache must carry out no command then.
/// Threads: it has its own thread; the calls are for one thread.
class Listener {
 public:
  /// Listens when it returns. Throws std::invalid_argument (the options are wrong), std::system_error, and std::runtime_error
  /// (the socket belongs to another process), each with one clear sentence, and leaves nothing behind.
  Listener(const AdminOptions& options, Mailbox& mailbox, const Clock& clock, Room room,
           Duration silence_max = std::chrono::seconds{10});
  /// Waits for the thread.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// The address with the port or socket name that was chosen: "unix:/run/terrace/vllm-4711.sock".
  [[nodiscard]] std::string address() const;
  /// Accepts nothing from now on and removes the socket. Does not wait.
  void stop() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace terrace::admin
