#include "storage/io/uring_calls.hpp"

#include <liburing.h>

namespace terrace {

int UringCalls::setup(unsigned entries, io_uring& ring, io_uring_params& params) {
  return ::io_uring_queue_init_params(entries, &ring, &params);
}

int UringCalls::register_buffer(io_uring& ring, unsigned place, const iovec& memory) {
  const __u64 no_tag = 0;
  return ::io_uring_register_buffers_update_tag(&ring, place, &memory, &no_tag, 1);
}

int UringCalls::ended(const IoOperation&, int, std::uint64_t, int result) { return result; }

UringCalls& UringCalls::system() {
  static UringCalls calls;
  return calls;
}

}  // namespace terrace
