#include "storage/redis/redis_options.hpp"

#include "storage/redis/resp_value.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace terrace::test {
namespace {

std::string refusal(std::string_view url) {
  try {
    (void)parse_redis_url(url);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(RedisOptions, are_read_from_an_url) {
  const RedisOptions plain = parse_redis_url("redis://cache");
  EXPECT_EQ(plain.hosts, (std::vector<RedisAddress>{{"cache", 6379}}));
  EXPECT_FALSE(plain.tls);
  EXPECT_FALSE(plain.cluster);

  const RedisOptions all = parse_redis_url(
      "rediss://us%40er:p%3aa@ss@a:1,[::1]:2,c?cluster=1&prefix=team-1:kv&expiry=90m&connections=3&window=8MiB&verify=0&"
      "ca_file=/x/ca.pem&cert_file=c.pem&key_file=k.pem");
  EXPECT_EQ(all.hosts, (std::vector<RedisAddress>{{"a", 1}, {"::1", 2}, {"c", 6379}}));
  EXPECT_TRUE(all.tls && all.cluster && !all.verify);
  EXPECT_EQ(all.user, "us@er");
  EXPECT_EQ(all.password, "p:a@ss");
  EXPECT_EQ(all.prefix, "team-1:kv");
  EXPECT_EQ(all.expiry.after, std::chrono::minutes{90});
  EXPECT_EQ(all.connections, 3U);
  EXPECT_EQ(all.window, MiB * 8);
  EXPECT_EQ(all.ca_file, "/x/ca.pem");
  EXPECT_EQ(all.cert_file, "c.pem");
  EXPECT_EQ(all.key_file, "k.pem");

  EXPECT_FALSE(parse_redis_url("redis://h?expiry=0").expiry.expires());
  EXPECT_EQ(parse_redis_url("redis://:secret@h/3").database, 3U);
  EXPECT_EQ(parse_redis_url("redis://:secret@h/3").password, "secret");
}

TEST(RedisOptions, take_the_password_from_the_environment_or_a_file) {
  ::setenv("TERRACE_TEST_PASSWORD", "from the environment", 1);
  EXPECT_EQ(parse_redis_url("redis://u@h?password_env=TERRACE_TEST_PASSWORD").password, "from the environment");
  ::unsetenv("TERRACE_TEST_PASSWORD");
  EXPECT_NE(refusal("redis://u@h?password_env=TERRACE_TEST_PASSWORD").find("is not set"), std::string::npos);

  const std::filesystem::path file = std::filesystem::path{testing::TempDir()} / "terrace_redis_password";
  std::ofstream{file} << "from a file\n";
  const RedisOptions options = parse_redis_url("redis://u@h?password_file=" + file.string());
  EXPECT_EQ(current_password(options), "from a file");
  std::ofstream{file} << "a new one\r\nand a comment\n";
  EXPECT_EQ(current_password(options), "a new one");
  std::ofstream{file} << "\n";
  EXPECT_NE(refusal("redis://u@h?password_file=" + file.string()).find("is empty"), std::string::npos);
  std::filesystem::remove(file);
  EXPECT_NE(refusal("redis://u@h?password_file=" + file.string()).find("cannot be read"), std::string::npos);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);  // nobody writes to it, so whoever opens it waits
  EXPECT_NE(refusal("redis://u@h?password_file=" + file.string()).find("no ordinary file"), std::string::npos);
  std::filesystem::remove(file);
}

TEST(RedisOptions, hide_a_secret_in_the_words_of_a_server) {
  EXPECT_EQ(without("a geheim and geheimgeheim", "geheim"), "a *** and ******");
  EXPECT_EQ(without("cut off: gehe", "geheim"), "cut off: ***");
  EXPECT_EQ(without("a gehege", "geheim"), "a ***ge");
  EXPECT_EQ(without("aba", "b"), "a***a");
  EXPECT_EQ(without("anything", ""), "anything");
  EXPECT_EQ(without(readable("says g\xc3\xa9heim"), "g\xc3\xa9heim"), "says ***");
}

TEST(RedisOptions, never_show_the_password) {
  const std::string text = shown(parse_redis_url("rediss://user:geheim@a:1,[::1]:2?cluster=1"));
  EXPECT_EQ(text, "rediss://user@a:1,[::1]:2?cluster=1");
  EXPECT_EQ(shown(parse_redis_url("redis://:geheim@h/3")), "redis://h:6379/3");
  for (const char* url : {"redis://u:geheim@", "redis://u:geheim@h:x", "redis://u:geheim@h?y=1", "redis://u:geheim@h/geh",
                          "redis://u:gehe/im@h", "redis://u:gehe?im@h", "redis://:1234/geheim@h", "redis://u:1?geheim@h=1"}) {
    EXPECT_NE(refusal(url), "");
    EXPECT_EQ(refusal(url).find("gehe"), std::string::npos) << refusal(url);
  }
}

TEST(RedisOptions, refuse_each_bad_url_with_one_sentence) {
  for (const char* bad : {"",
                          "http://h",
                          "redis:/h",
                          "redis://",
                          "redis://?cluster=1",
                          "redis://u:p@",
                          "redis://h:0",
                          "redis://h:65536",
                          "redis://h:x",
                          "redis://[::1",
                          "redis://h h",
                          "redis://h,",
                          "redis://,h",
                          "redis://a,b",
                          "redis://h/x",
                          "redis://h/1?cluster=1",
                          "redis://h?cluster=yes",
                          "redis://h?verify=0",
                          "redis://h?ca_file=x",
                          "rediss://h?key_file=x",
                          "redis://h?nothing=1",
                          "redis://h?expiry=24",
                          "redis://h?expiry=0s",
                          "redis://h?expiry=h",
                          "redis://h?connections=0",
                          "redis://h?connections=65",
                          "redis://h?window=0",
                          "redis://h?window=4MB",
                          "redis://h?prefix=",
                          "redis://h?prefix=a{b",
                          "redis://h?prefix=%4",
                          "redis://h?prefix=%zz",
                          "redis://h?prefix=%00"}) {
    const std::string why = refusal(bad);
    EXPECT_TRUE(why.starts_with("the URL of the shared store: ")) << bad << ": " << why;
    EXPECT_EQ(why.find('\n'), std::string::npos);
  }
}

TEST(RedisAddress, is_read_and_shown) {
  RedisAddress address;
  EXPECT_TRUE(parse_address("[fe80::1]:7", address));
  EXPECT_EQ(to_string(address), "[fe80::1]:7");
  for (const char* url : {"redis://[fe80::1%25eth0]:7", "redis://[fe80::1%eth0]:7"}) {
    EXPECT_EQ(parse_redis_url(url).hosts, (std::vector<RedisAddress>{{"fe80::1%eth0", 7}}));
  }
  for (const char* bad : {"", ":1", "[]", "a:", "[::1]7", "a:b:c", "a@b"}) EXPECT_FALSE(parse_address(bad, address)) << bad;
}

}  // namespace
}  // namespace terrace::test
