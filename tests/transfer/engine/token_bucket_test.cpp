#include "transfer/engine/token_bucket.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace terrace {
namespace {

using std::chrono::seconds;

constexpr TimePoint bucket_start{std::chrono::hours{1}};

TEST(TokenBucket, without_a_rate_lets_everything_go) {
  TokenBucket bucket{BytesPerSecond{0}, Bytes{4}};
  bucket.take(Bytes{4}, bucket_start);
  EXPECT_FALSE(bucket.limited());
  EXPECT_LE(bucket.allowed_at(Bytes{4}), bucket_start);
}

TEST(TokenBucket, follows_the_example_of_its_comment) {
  TokenBucket bucket{BytesPerSecond{1}, Bytes{4}};
  EXPECT_LE(bucket.allowed_at(Bytes{4}), bucket_start);
  bucket.take(Bytes{3}, bucket_start + seconds{10});
  EXPECT_EQ(bucket.allowed_at(Bytes{2}), bucket_start + seconds{11});
  EXPECT_EQ(bucket.allowed_at(Bytes{4}), bucket_start + seconds{13});
}

TEST(TokenBucket, saves_no_more_than_its_depth) {
  TokenBucket bucket{BytesPerSecond{1}, Bytes{4}};
  const TimePoint much_later = bucket_start + seconds{1000};
  bucket.take(Bytes{4}, much_later);
  EXPECT_EQ(bucket.allowed_at(Bytes{1}), much_later + seconds{1});
}

TEST(TokenBucket, lets_its_rate_through_over_time) {
  TokenBucket bucket{BytesPerSecond{1000}, Bytes{300}};
  TimePoint now = bucket_start;
  std::uint64_t gone = 0;
  while (gone < 30'000) {
    now = std::max(now, bucket.allowed_at(Bytes{300}));
    bucket.take(Bytes{300}, now);
    gone += 300;
  }
  // The first 300 tokens were in the bucket.
  EXPECT_EQ(now - bucket_start, std::chrono::milliseconds{29'700});
}

}  // namespace
}  // namespace terrace
