#include "storage/redis/tls_stream.hpp"

#include "base/whole_file.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>

#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>

namespace terrace {
namespace {

std::string last_error() {
  const unsigned long error = ERR_peek_last_error();
  const char* const reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  return reason == nullptr ? "TLS failed" : std::string{"TLS: "} + reason;
}

}  // namespace

void FreeTls::operator()(ssl_st* stream) const { SSL_free(stream); }
void FreeTls::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }

TlsContext::TlsContext(const RedisOptions& options) : context_{SSL_CTX_new(TLS_client_method())} {
  if (context_ == nullptr) throw std::bad_alloc{};
  // OpenSSL opens these files for each connection, and would wait at a pipe.
  for (const std::string& file : {options.ca_file, options.cert_file, options.key_file}) {
    if (is_no_ordinary_file(file)) {
      throw std::invalid_argument{"the shared store: " + file + " with keys for TLS is no ordinary file"};
    }
  }
  const auto require = [&](bool well, const std::string& what) {
    if (well) return;
    const std::string why = last_error();
    ERR_clear_error();
    throw std::invalid_argument{"the shared store: " + what + " (" + why + ")"};
  };
  ERR_clear_error();
  SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
  // A write may return in the middle, and continues later with the same bytes.
  SSL_CTX_set_mode(context_.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // A server may close the connection without a TLS notice, because the ends of replies are known without it.
  SSL_CTX_set_options(context_.get(), SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_verify(context_.get(), options.verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  if (!options.ca_file.empty()) {
    require(SSL_CTX_load_verify_locations(context_.get(), options.ca_file.c_str(), nullptr) == 1,
            "ca_file " + options.ca_file + " has no certificates that can be read");
  } else {
    SSL_CTX_set_default_verify_paths(context_.get());
  }
  if (options.cert_file.empty()) return;
  require(SSL_CTX_use_certificate_chain_file(context_.get(), options.cert_file.c_str()) == 1,
          "cert_file " + options.cert_file + " has no certificate that can be read");
  const std::string& key = options.key_file.empty() ? options.cert_file : options.key_file;
  require(SSL_CTX_use_PrivateKey_file(context_.get(), key.c_str(), SSL_FILETYPE_PEM) == 1,
          "the file " + key + " has no key that can be read and is that of cert_file");
}

ByteStream::ByteStream(int socket, const TlsContext* context, const std::string& host) : socket_{socket} {
  if (context == nullptr) return;
  tls_.reset(SSL_new(context->get()));
  if (tls_ == nullptr || SSL_set_fd(tls_.get(), socket) != 1) throw std::bad_alloc{};
  SSL_set_connect_state(tls_.get());
  X509_VERIFY_PARAM* const rules = SSL_get0_param(tls_.get());
  // The zone of an address has a meaning only on this machine.
  const bool is_address = X509_VERIFY_PARAM_set1_ip_asc(rules, host.substr(0, host.find('%')).c_str()) == 1;
  if (is_address) return;
  ERR_clear_error();
  SSL_set_tlsext_host_name(tls_.get(), host.c_str());
  X509_VERIFY_PARAM_set1_host(rules, host.c_str(), host.size());
}

/// Handles a call in which OpenSSL moved no bytes.
ByteStream::Moved ByteStream::failed(int result) {
  const int call_error = errno;
  switch (SSL_get_error(tls_.get(), result)) {
    case SSL_ERROR_WANT_READ: return {.state = State::wait_to_read};
    case SSL_ERROR_WANT_WRITE: return {.state = State::wait_to_write};
    case SSL_ERROR_ZERO_RETURN: trouble_ = "the server closed the connection"; break;
    case SSL_ERROR_SYSCALL: trouble_ = std::generic_category().message(call_error); break;
    default: {
      trouble_ = last_error();
      const long verified = SSL_get_verify_result(tls_.get());
      if (verified != X509_V_OK && SSL_get_verify_mode(tls_.get()) != SSL_VERIFY_NONE) {
        trouble_ = std::string{"the server's certificate is not good: "} + X509_verify_cert_error_string(verified);
      }
    }
  }
  ERR_clear_error();
  return {.state = State::closed};
}

ByteStream::Moved ByteStream::failed_call(State wait_for) {
  const bool wait = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (!wait) trouble_ = std::generic_category().message(errno);
  return {.state = wait ? wait_for : State::closed};
}

ByteStream::State ByteStream::shake_hands() {
  if (tls_ == nullptr) return State::done;
  ERR_clear_error();
  const int result = SSL_do_handshake(tls_.get());
  return result == 1 ? State::done : failed(result).state;
}

ByteStream::Moved ByteStream::read(std::span<const iovec> pieces) {
  if (tls_ == nullptr) {
    std::size_t room = 0;
    for (const iovec& piece : pieces) room += piece.iov_len;
    const ssize_t bytes = ::readv(socket_, pieces.data(), static_cast<int>(pieces.size()));
    if (bytes < 0) return failed_call(State::wait_to_read);
    if (bytes == 0) trouble_ = "the server closed the connection";
    if (bytes == 0) return {.state = State::closed};
    const auto moved = static_cast<std::size_t>(bytes);
    return {.bytes = moved, .drained = moved < room};
  }
  Moved all;
  for (const iovec& piece : pieces) {
    if (piece.iov_len == 0) continue;
    std::size_t bytes = 0;
    ERR_clear_error();
    const int result = SSL_read_ex(tls_.get(), piece.iov_base, piece.iov_len, &bytes);
    if (result != 1) return all.bytes > 0 ? all : failed(result);
    all.bytes += bytes;
    if (bytes < piece.iov_len) break;
  }
  return all;
}

ByteStream::Moved ByteStream::write(std::span<const iovec> pieces) {
  if (tls_ == nullptr) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = pieces.size();
    const ssize_t bytes = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
    if (bytes < 0) return failed_call(State::wait_to_write);
    return {.bytes = static_cast<std::size_t>(bytes)};
  }
  std::size_t bytes = 0;
  ERR_clear_error();
  const int result = SSL_write_ex(tls_.get(), pieces.front().iov_base, pieces.front().iov_len, &bytes);
  return result == 1 ? Moved{.bytes = bytes} : failed(result);
}

}  // namespace terrace
