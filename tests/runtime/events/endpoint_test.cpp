#include "runtime/events/endpoint.hpp"

#include "tests/refusal.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace terrace::events {
namespace {

TEST(Endpoint, a_rank_has_the_port_or_path_of_its_number) {
  EXPECT_EQ(endpoint_of_rank("endpoint", "tcp://*:5557", 0), "tcp://*:5557");
  EXPECT_EQ(endpoint_of_rank("endpoint", "tcp://*:5557", 3), "tcp://*:5560");
  EXPECT_EQ(endpoint_of_rank("endpoint", "tcp://[::1]:5557", 1), "tcp://[::1]:5558");
  EXPECT_EQ(endpoint_of_rank("endpoint", "tcp://127.0.0.1:0", 3), "tcp://127.0.0.1:0");
  EXPECT_EQ(endpoint_of_rank("endpoint", "ipc:///run/kv", 0), "ipc:///run/kv");
  EXPECT_EQ(endpoint_of_rank("endpoint", "ipc:///run/kv", 2), "ipc:///run/kv_dp2");
}

TEST(Endpoint, a_wrong_address_is_refused_with_the_name_of_its_option) {
  for (const char* const wrong : {"", "5557", "tcp://", "tcp://*", "tcp://*:", "tcp://:5557", "tcp://*:port", "tcp://*:-1",
                                  "tcp://*:65536", "tcp://*:5557/x", "ipc://", "inproc://kv", "http://host:80"}) {
    const std::string sentence =
        "replay_endpoint is \"" + std::string{wrong} + "\", must be tcp://ADDRESS:PORT (a port from 0 to 65535) or ipc://PATH";
    EXPECT_EQ(test::refusal_of<std::invalid_argument>([&] { (void)endpoint_of_rank("replay_endpoint", wrong, 0); }), sentence);
  }
  EXPECT_EQ(test::refusal_of<std::invalid_argument>([] { (void)endpoint_of_rank("endpoint", "tcp://*:65535", 2); }),
            "endpoint \"tcp://*:65535\" with the data-parallel rank 2 has the port 65537, must be at most 65535");
}

}  // namespace
}  // namespace terrace::events
