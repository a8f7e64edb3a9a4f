#include "storage/redis/redis_options.hpp"

#include "storage/redis/resp_reader.hpp"
#include "storage/redis/tls_stream.hpp"
#include "tests/refusal.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>

namespace terrace::test {
namespace {

std::string refusal(std::string_view url) {
  return refusal_of<std::invalid_argument>([&] { (void)parse_redis_url(url); });
}

TEST(RedisOptions, are_read_from_an_url) {
  const RedisOptions plain = parse_redis_url("redis://cache");
  EXPECT_EQ(plain.hosts, (std::vector<RedisAddress>{{"cache", 6379}}));
  EXPECT_FALSE(plain.tls);
  EXPECT_FALSE(plain.cluster);

  const RedisOptions all =
      parse_redis_url("rediss://us%40er:p%3aa@ss@a:1,[::1]:2,c?cluster=1&verify=0&cert_file=c%20.pem&key_file=k.pem");
  EXPECT_EQ(all.hosts, (std::vector<RedisAddress>{{"a", 1}, {"::1", 2}, {"c", 6379}}));
  EXPECT_TRUE(all.tls && all.cluster && !all.verify);
  EXPECT_EQ(all.user, "us@er");
  EXPECT_EQ(all.password, "p:a@ss");
  EXPECT_EQ(all.cert_file, "c .pem");
  EXPECT_EQ(all.key_file, "k.pem");

  EXPECT_EQ(parse_redis_url("redis://:secret@h/3").database, 3U);
  EXPECT_EQ(parse_redis_url("redis://:secret@h/3").password, "secret");
}

TEST(RedisOptions, take_the_password_from_a_file) {
  const std::filesystem::path file = std::filesystem::path{testing::TempDir()} / "terrace_redis_password";
  const RedisOptions options{.password_file = file.string()};
  const auto why_not = [&] {
    try {
      return current_password(options);
    } catch (const std::invalid_argument& error) {
      return std::string{error.what()};
    }
  };
  std::ofstream{file} << "from a file\n";
  EXPECT_EQ(current_password(options), "from a file");
  std::ofstream{file} << "a new one\r\nand a comment\n";
  EXPECT_EQ(current_password(options), "a new one");
  std::ofstream{file} << "\n";
  EXPECT_NE(why_not().find("is empty"), std::string::npos);
  std::filesystem::remove(file);
  EXPECT_NE(why_not().find("cannot be read"), std::string::npos);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);  // nobody writes to it, so whoever opens it waits
  EXPECT_NE(why_not().find("no ordinary file"), std::string::npos);
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
  for (const char* url :
       {"redis://u:geheim@", "redis://u:geheim@h:x", "redis://u:geheim@h?y=1", "redis://u:geheim@h/geh", "redis://u:gehe/im@h",
        "redis://u:gehe?im@h", "redis://:1234/geheim@h", "redis://u:1?geheim@h=1", "redis://u:geheim", "redis://:geheim"}) {
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
                          "redis://h?cluster=%4",
                          "redis://h?cluster=%zz",
                          "redis://h?cluster=%00",
                          "rediss://h?key_file=x"}) {
    const std::string why = refusal(bad);
    EXPECT_FALSE(why.empty()) << bad;
    EXPECT_EQ(why.find('\n'), std::string::npos);
  }
}

TEST(RedisOptions, refuse_each_bad_parameter_with_its_name_and_what_is_right) {
  for (const auto& [bad, why] : std::initializer_list<std::pair<const char*, const char*>>{
           {"redis://h/x", "what follows the / after the host is not the number of a database, such as /1"},
           {"redis://h?nothing=1", "there is no parameter \"nothing\"; there is: cluster, verify, cert_file, key_file"},
           {"redis://h?prefix=a", "there is no parameter \"prefix\"; there is: cluster, verify, cert_file, key_file"},
           {"redis://h?cluster=1&cluster=0", "the parameter cluster is given twice"},
           {"redis://h?cluster", "the parameter cluster has no value"},
           {"rediss://h?cert_file=", "the parameter cert_file has no value"},
           {"redis://h?cluster=yes", "cluster is 0 or 1, not \"yes\""},
           {"redis://h?verify=0", "the parameter verify is for rediss://, because redis:// has no TLS"},
           {"redis://h?verify=1", "the parameter verify is for rediss://, because redis:// has no TLS"}}) {
    EXPECT_EQ(refusal(bad), why);
  }
}

TEST(TlsContext, refuses_a_file_that_is_a_pipe_or_a_device) {
  const std::filesystem::path pipe = std::filesystem::path{testing::TempDir()} / "terrace_tls_pipe";
  std::filesystem::remove(pipe);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);  // nobody writes to it, so whoever opens it waits
  for (std::string RedisOptions::*const file : {&RedisOptions::ca_file, &RedisOptions::cert_file, &RedisOptions::key_file}) {
    for (const std::string& named : {pipe.string(), std::string{"/dev/zero"}}) {
      RedisOptions options;
      options.cert_file = "/nowhere/cert.pem";
      options.*file = named;
      EXPECT_EQ(refusal_of<std::invalid_argument>([&] { const TlsContext context{options}; }),
                "the shared store: " + named + " with keys for TLS is no ordinary file");
    }
  }
  std::filesystem::remove(pipe);
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
