// Tries every rule on samples that follow it and samples that break it. A rule that never finds anything checks nothing.

#include "tests/house/rules.hpp"

#include <gtest/gtest.h>

#include <string>

namespace terrace::house {
namespace {

SourceFile file(std::string path, std::string text) { return {std::move(path), std::move(text)}; }

Findings included_from(const std::string& path, const std::string& header) {
  return includes_follow_the_arrows(file(path, "#pragma once\n\n#include " + header + "\n"));
}

bool allowed(const std::string& path, const std::string& header) { return included_from(path, header).empty(); }

TEST(Rules, includes_follow_the_arrows) {
  EXPECT_TRUE(allowed("base/a.hpp", "\"base/b.hpp\""));
  EXPECT_FALSE(allowed("base/a.hpp", "\"radix/keys/b.hpp\""));
  for (const std::string folder : {"radix/keys", "transfer/host", "storage/io"}) {
    EXPECT_TRUE(allowed(folder + "/a.hpp", "\"base/b.hpp\""));
    EXPECT_TRUE(allowed(folder + "/a.hpp", '"' + folder + "/b.hpp\""));
    EXPECT_FALSE(allowed(folder + "/a.hpp", "\"runtime/cache/types/b.hpp\""));
    for (const std::string other : {"radix/keys", "transfer/host", "storage/io"}) {
      EXPECT_EQ(allowed(folder + "/a.cpp", '"' + other + "/b.hpp\""), folder == other) << folder << " to " << other;
    }
  }
  for (const std::string& below : library_folders()) {
    EXPECT_TRUE(allowed("tests/any/a.cpp", '"' + below + "/b.hpp\"")) << below;
    const bool is_of_the_lab = below.starts_with("lab");
    EXPECT_EQ(allowed("tools/replay/a.cpp", '"' + below + "/b.hpp\""), !is_of_the_lab) << below;
    EXPECT_EQ(allowed("lab/index/a.cpp", '"' + below + "/b.hpp\""), below != "capi") << below;
    EXPECT_FALSE(allowed("examples/a.cpp", '"' + below + "/b.hpp\"")) << below;
  }
  EXPECT_FALSE(allowed("runtime/engine/a.cpp", "\"tools/b.hpp\""));
  EXPECT_FALSE(allowed("examples/a.cpp", "\"tools/b.hpp\""));
  EXPECT_TRUE(allowed("examples/eviction_policy.cpp", "\"radix/tree/b.hpp\""));
  EXPECT_FALSE(allowed("examples/eviction_policy.cpp", "\"storage/io/b.hpp\""));
  EXPECT_TRUE(allowed("tests/tools/a.cpp", "\"tools/b.hpp\""));
}

TEST(Rules, public_headers_stand_alone) {
  const auto stands_alone = [](const std::string& path, const std::string& header) {
    return public_headers_stand_alone(file(path, "#pragma once\n\n#include " + header + "\n")).empty();
  };
  const std::string ours = "include/terrace/a.hpp";
  for (const std::string header : {"\"terrace/b.hpp\"", "\"terrace/detail/b.hpp\"", "<vector>", "<boost/system/result.hpp>"}) {
    EXPECT_TRUE(stands_alone(ours, header)) << header;
  }
  for (const std::string header : {"\"base/b.hpp\"", "<fmt/format.h>", "<unistd.h>", "<sys/mman.h>", "<concurrentqueue.h>"}) {
    EXPECT_FALSE(stands_alone(ours, header)) << header;
    EXPECT_TRUE(stands_alone("runtime/engine/a.hpp", header)) << header;
  }
  const auto objections = [&](const std::string& line) { return public_headers_stand_alone(file(ours, line + "\n")).size(); };
  EXPECT_EQ(objections("#ifdef TERRACE_HAS_URING"), 1U);
  EXPECT_EQ(objections("# if defined(TERRACE_HAS_CUDA)"), 1U);
  EXPECT_EQ(objections("#if defined(__GNUC__)"), 0U);
  EXPECT_EQ(objections("#define TERRACE_API"), 0U);
  EXPECT_EQ(objections("class AnError : public std::invalid_argument {"), 1U);
  EXPECT_EQ(objections("class TERRACE_API AnError : public std::invalid_argument {"), 0U);
}

TEST(Rules, applications_include_public_headers_in_angle_brackets) {
  for (const std::string path : {"examples/a.cpp", "tests/install/consumer/a.cpp"}) {
    EXPECT_TRUE(allowed(path, "<terrace/keys.hpp>")) << path;
    EXPECT_FALSE(allowed(path, "\"terrace/keys.hpp\"")) << path;
  }
  EXPECT_FALSE(allowed("tests/radix/a.cpp", "<terrace/keys.hpp>"));
}

TEST(Rules, arrows_between_the_folders_of_one_part_point_one_way) {
  EXPECT_TRUE(allowed("radix/tree/a.hpp", "\"radix/eviction/b.hpp\""));
  EXPECT_FALSE(allowed("radix/eviction/a.hpp", "\"radix/tree/b.hpp\""));
  EXPECT_TRUE(allowed("transfer/cuda/a.hpp", "\"transfer/cuda/copy/b.hpp\""));
  EXPECT_FALSE(allowed("transfer/cuda/copy/a.hpp", "\"transfer/cuda/b.hpp\""));
  EXPECT_FALSE(allowed("radix/a.hpp", "<vector>")) << "nothing lies beside the folders of a part";
}

TEST(Rules, nothing_below_the_facades_includes_one) {
  for (const std::string folder : {"runtime/cache/control", "runtime/cache/pool", "runtime/cache/index"}) {
    for (const std::string facade : {"cache", "offload_cache", "async_cache", "system"}) {
      EXPECT_EQ(included_from(folder + "/a.hpp", "\"terrace/" + facade + ".hpp\""),
                Findings{folder + "/a.hpp:3: " + folder + "/ may not include terrace/" + facade + ".hpp"});
    }
    EXPECT_TRUE(allowed(folder + "/a.hpp", "\"terrace/request.hpp\""));
  }
  for (const std::string folder : {"runtime/engine", "runtime/engine", "runtime/system", "tools/replay", "tests/runtime"}) {
    EXPECT_TRUE(allowed(folder + "/a.hpp", "\"terrace/offload_cache.hpp\"")) << folder;
  }
}

TEST(Rules, product_code_never_includes_tests) {
  for (const std::string& folder : library_folders()) EXPECT_FALSE(allowed(folder + "/a.cpp", "\"tests/seed.hpp\"")) << folder;
  EXPECT_FALSE(allowed("examples/a.cpp", "\"tests/seed.hpp\""));
  EXPECT_TRUE(allowed("tests/base/a.cpp", "\"tests/seed.hpp\""));
}

TEST(Rules, includes_start_at_the_root_and_in_quotes) {
  EXPECT_FALSE(allowed("base/a.hpp", "\"b.hpp\""));
  EXPECT_FALSE(allowed("radix/keys/a.hpp", "\"../base/b.hpp\""));
  EXPECT_FALSE(allowed("radix/keys/a.hpp", "\"elsewhere/b.hpp\""));
  EXPECT_FALSE(allowed("radix/keys/a.hpp", "<base/b.hpp>"));
  EXPECT_TRUE(allowed("radix/keys/a.hpp", "<boost/system/result.hpp>"));
  EXPECT_TRUE(allowed("radix/keys/a.hpp", "<vector>"));
}

TEST(Rules, includes_are_found_however_they_are_written) {
  const Findings findings = includes_follow_the_arrows(
      file("base/a.hpp", "#  include   \"radix/keys/a.hpp\"  // why\n   #include \"radix/keys/b.hpp\"\n"
                         "#include\"radix/keys/c.hpp\"\n// #include \"radix/keys/d.hpp\"\n"));
  ASSERT_EQ(findings.size(), 3U);
  EXPECT_EQ(findings[0], "base/a.hpp:1: base/ may not include radix/keys/a.hpp");
  EXPECT_EQ(findings[2], "base/a.hpp:3: base/ may not include radix/keys/c.hpp");
}

TEST(Rules, know_no_folder_outside_the_house) {
  EXPECT_FALSE(allowed("attic/a.hpp", "<vector>"));
  EXPECT_FALSE(links_mirror_the_arrows(file("attic/CMakeLists.txt", "")).empty());
}

TEST(Rules, radix_knows_no_clock_thread_or_io) {
  for (const std::string header :
       {"<thread>", "<chrono>", "<fstream>", "<unistd.h>", "<boost/asio/strand.hpp>", "\"terrace/clock.hpp\""}) {
    const std::string text = "#include " + header + "\n";
    EXPECT_EQ(includes_keep_to_the_seams(file("radix/a.hpp", text)).size(), 1U) << header;
    EXPECT_TRUE(includes_keep_to_the_seams(file("transfer/a.hpp", text)).empty()) << header;
  }
  EXPECT_TRUE(includes_keep_to_the_seams(file("radix/a.hpp", "#include <vector>\n#include \"base/check.hpp\"\n")).empty());
}

TEST(Rules, moodycamel_stays_behind_its_seams) {
  const std::string text = "#include <concurrentqueue.h>\n";
  EXPECT_TRUE(includes_keep_to_the_seams(file("base/completion_queue.hpp", text)).empty());
  EXPECT_FALSE(includes_keep_to_the_seams(file("runtime/a.hpp", text)).empty());
  EXPECT_FALSE(includes_keep_to_the_seams(file("runtime/a.hpp", "#include <moodycamel/concurrentqueue.h>\n")).empty());
}

TEST(Rules, links_mirror_the_arrows) {
  const auto links = [](const std::string& folder, const std::string& text) {
    return links_mirror_the_arrows(file(folder + "/CMakeLists.txt", text));
  };
  EXPECT_TRUE(links("base", "terrace_library(base\n  LINKS Boost::headers)\n").empty());
  EXPECT_TRUE(
      links("radix/keys", "terrace_library(radix_keys\n  LINKS terrace::base\n  PRIVATE_LINKS OpenSSL::Crypto)\n").empty());
  EXPECT_EQ(links("base", "LINKS terrace::radix_keys\n").size(), 1U);
  EXPECT_EQ(links("radix/keys", "LINKS terrace::base terrace::storage_io\n").size(), 1U);
  EXPECT_EQ(links("radix/keys", "LINKS Boost::headers\n"), (Findings{"radix/keys/CMakeLists.txt: does not link terrace::base"}));
  EXPECT_EQ(links("radix/tree", "LINKS terrace::base\n").size(), 1U);
  EXPECT_EQ(links("storage/io", "LINKS terrace::base  # and not terrace::radix_keys\n").size(), 0U);
  EXPECT_EQ(links("tools", "LINKS terrace::runtime\n").size(), 0U);
  EXPECT_EQ(links("tools", "target_link_libraries(terrace PRIVATE terrace::tools)\n").size(), 0U);
  EXPECT_EQ(links("tools", "LINKS terrace::runtime GTest::gtest\n").size(), 1U);
}

TEST(Rules, a_header_starts_with_pragma_once) {
  EXPECT_TRUE(header_starts_with_pragma_once(file("base/a.hpp", "#pragma once\n\nint a;\n")).empty());
  EXPECT_FALSE(header_starts_with_pragma_once(file("base/a.hpp", "\n#pragma once\n")).empty());
  EXPECT_FALSE(header_starts_with_pragma_once(file("base/a.hpp", "#ifndef A\n#define A\n#endif\n")).empty());
  EXPECT_FALSE(header_starts_with_pragma_once(file("base/a.hpp", "")).empty());
  EXPECT_TRUE(header_starts_with_pragma_once(file("base/a.cpp", "int a;\n")).empty());
}

TEST(Rules, a_source_includes_its_own_header_first) {
  const auto objections = [](const std::string& path, const std::string& text) {
    return own_header_comes_first(file(path, text), [](const std::string& header) { return header == "base/a.hpp"; });
  };
  EXPECT_TRUE(objections("base/a.cpp", "// Why.\n\n#include \"base/a.hpp\"\n\n#include <vector>\n").empty());
  EXPECT_EQ(objections("base/a.cpp", "#include <vector>\n#include \"base/a.hpp\"\n").size(), 1U);
  EXPECT_EQ(objections("base/a.cpp", "int a;\n").size(), 1U);
  EXPECT_TRUE(objections("base/b.cpp", "#include <vector>\n").empty()) << "it has none";
}

TEST(Rules, a_file_is_no_longer_than_told) {
  std::string text;
  for (int i = 0; i < 600; ++i) text += "\n";
  EXPECT_TRUE(is_no_longer_than(file("base/a.hpp", text), 600).empty());
  EXPECT_EQ(is_no_longer_than(file("base/a.hpp", text + "\n"), 600).size(), 1U);
  EXPECT_EQ(is_no_longer_than(file("base/a.hpp", text + "int a;"), 600).size(), 1U);
}

TEST(Rules, lines_are_clean) {
  EXPECT_TRUE(lines_are_clean(file("base/a.hpp", "int a;\n\n  int b;\n")).empty());
  EXPECT_TRUE(lines_are_clean(file("base/a.hpp", "")).empty());
  EXPECT_EQ(lines_are_clean(file("base/a.hpp", "int a;\n\tint b;\n")), (Findings{"base/a.hpp:2: a tab"}));
  EXPECT_EQ(lines_are_clean(file("base/a.hpp", "int a; \n")).size(), 1U);
  EXPECT_EQ(lines_are_clean(file("base/a.hpp", "int a;\r\n")).size(), 1U);
  EXPECT_EQ(lines_are_clean(file("base/a.hpp", "int a;")).size(), 1U);
}

TEST(Rules, lines_are_no_wider_than_told_in_code_points) {
  const std::string wide(130, 'a');
  EXPECT_TRUE(lines_are_no_wider_than(file("base/a.hpp", wide + "\n"), 130).empty());
  EXPECT_EQ(lines_are_no_wider_than(file("base/a.hpp", "\n" + wide + "b\n"), 130), (Findings{"base/a.hpp:2: 131 columns"}));
  EXPECT_TRUE(lines_are_no_wider_than(file("base/a.hpp", wide.substr(1) + "×\n"), 130).empty());
}

TEST(Rules, nothing_is_left_for_later) {
  // Each marker is split in two, so that this file passes.
  for (const std::string& marker :
       {std::string{"TO"} + "DO", std::string{"to"} + "do", std::string{"FIX"} + "ME", std::string{"XX"} + "X"}) {
    EXPECT_EQ(nothing_is_left_for_later(file("base/a.hpp", "int a;  // " + marker + ": later\n")).size(), 1U) << marker;
    EXPECT_EQ(nothing_is_left_for_later(file("base/a.hpp", "// " + marker + "(me)\n")).size(), 1U) << marker;
    EXPECT_TRUE(nothing_is_left_for_later(file("base/a.hpp", "int a" + marker + "1;\n")).empty()) << "a word of its own only";
  }
  EXPECT_TRUE(nothing_is_left_for_later(file("base/a.hpp", "mkdtemp(\"/tmp/XXXXXX\");\n")).empty());
}

TEST(Rules, tests_are_known_by_their_names) {
  std::set<std::string> names;
  collect_tests(file("tests/a.cpp", "\nTEST(Suite, one) {\n}\nTEST_F(Fixture,two) {}\nTEST_P(Contract, three) {}\n"
                                    "TYPED_TEST(Typed,\n           four) {}\n// TEST(Suite, five)\n  TEST(Suite, six) {}\n"),
                names);
  EXPECT_EQ(names, (std::set<std::string>{"Suite.one", "Fixture.two", "Contract.three", "Typed.four"}));
}

constexpr const char* table_head = "| id | behaviour | call | test | state |\n|---|---|---|---|---|\n";

Findings parity(const std::string& row) {
  return parity_rows_name_tests(file("docs/parity.md", table_head + row + "\n"), {"Suite.one", "Suite.two"});
}

TEST(Rules, parity_rows_are_read) {
  const auto rows = parity_rows(file("docs/parity.md", std::string{table_head} + "| A1 | b | c | `Suite.one` | done |\n"
                                                                                 "| B12 | b | c |  | planned: with C |\n"
                                                                                 "| Ab | no row | | | |\n"));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].id, "A1");
  EXPECT_EQ(rows[0].test, "`Suite.one`");
  EXPECT_EQ(rows[0].state, "done");
  EXPECT_EQ(rows[1].id, "B12");
  EXPECT_EQ(rows[1].state, "planned: with C");
}

TEST(Rules, parity_rows_name_tests_that_exist) {
  EXPECT_TRUE(parity("| A1 | b | c | `Suite.one` | done |").empty());
  EXPECT_TRUE(parity("| A1 | b | c | `Suite.one`, `Suite.two` | partly: not the rest |").empty());
  EXPECT_TRUE(parity("| A1 | b |  |  | planned: with the rest |").empty());
  EXPECT_TRUE(parity("| A1 | b | c | `Suite.one` | different on purpose, because it is better |").empty());
  EXPECT_EQ(parity("| A1 | b | c | `Suite.three` | done |").size(), 1U);
  EXPECT_EQ(parity("| A1 | b | c | `Suite.one`, `Suite.three` | done |").size(), 1U);
  EXPECT_EQ(parity("| A1 | b | c |  | done |").size(), 1U);
  EXPECT_EQ(parity("| A1 | b | c | it works | partly |").size(), 1U);
  EXPECT_EQ(parity("| A1 | b | c | | planned |").size(), 1U);
  EXPECT_EQ(parity("| A1 | b | c | | different on purpose |").size(), 1U);
  EXPECT_EQ(parity("| A1 | b | c | | surely |").size(), 1U);
  EXPECT_EQ(parity("| A1 | b | a column too few | `Suite.one` |").size(), 1U);
}

TEST(Rules, fault_rows_name_tests_that_exist_or_say_that_there_is_none) {
  const auto faults = [](const std::string& row) {
    return fault_rows_name_tests(file("docs/reliability.md", "| fault | a | b | c |\n|---|---|---|---|\n" + row + "\n"),
                                 {"Suite.one", "Suite.two"});
  };
  EXPECT_TRUE(faults("| F01 | a | `Suite.one`, `Suite.two` | all of it |").empty());
  EXPECT_TRUE(faults("| F01 | a | none | |").empty());
  EXPECT_EQ(faults("| F01 | a | `Suite.three` | all of it |").size(), 1U);
  EXPECT_EQ(faults("| F01 | a | `Suite.one` | |").size(), 1U);
  EXPECT_EQ(faults("| F01 | a | it works | all of it |").size(), 1U);
  EXPECT_EQ(faults("| F01 | a column too few | `Suite.one` |").size(), 1U);
}

TEST(Rules, code_of_a_page_is_a_whole_program_or_says_of_which_it_is_part) {
  const auto objections = [](const std::string& text) {
    const auto text_of = [](const std::string& path) {
      return path == "examples/b.cpp" || path == "b.py" ? std::string{"int a;\nint b;\nint c;\n"} : std::string{};
    };
    return code_can_be_pasted(file("README.md", text), text_of, {"examples/a.cpp", "examples/b.cpp"});
  };
  EXPECT_TRUE(objections("See:\n```cpp\nint a;\nint b;\nint c;\n```\n```text\nint d;\n```\n").empty());
  EXPECT_TRUE(objections("```cpp\n// Part of examples/b.cpp\nint b;\n```\n```python\n# Part of b.py\nint c;\n```\n").empty());
  EXPECT_EQ(objections("```cpp\nint a;\nint b;\n```\n").size(), 1U) << "a part that does not say so";
  EXPECT_EQ(objections("```cpp\n// Part of examples/b.cpp\nint a;\nint c;\n```\n").size(), 1U);
  EXPECT_EQ(objections("```cpp\n// Part of examples/c.cpp\nint a;\n```\n").size(), 1U) << "no such file";
  EXPECT_EQ(objections("```cpp\n// Part of examples/b.cpp\n```\n").size(), 1U) << "no code";
}

TEST(Rules, code_of_a_document_is_quoted_from_the_file_that_was_linked_last) {
  const auto objections = [](const std::string& text) {
    return code_is_quoted(file("docs/how-to/a.md", text), [](const std::string& path) {
      return path == "examples/b.cpp" ? std::string{"int a;\nint b;\nint c;\n"} : std::string{};
    });
  };
  EXPECT_TRUE(objections("[b](../../examples/b.cpp):\n\n```cpp\nint a;\nint b;\n```\n\n```text\nint d;\n```\n").empty());
  EXPECT_TRUE(objections("[b](../../examples/b.cpp#x)\n```cpp\nint a;\n```\n```cpp\nint c;\n```\n").empty());
  EXPECT_EQ(objections("[b](../../examples/b.cpp)\n```cpp\nint a;\nint c;\n```\n").size(), 1U);
  EXPECT_EQ(objections("[b](../../examples/b.cpp), [c](c.md)\n```cpp\nint a;\n```\n").size(), 1U);
  EXPECT_EQ(objections("```cpp\nint a;\n```\n").size(), 1U) << "no link before it";
  EXPECT_EQ(objections("[b](../../examples/b.cpp)\n```cpp\n```\n").size(), 1U) << "no code";
}

TEST(Rules, keys_are_words_of_64_digits) {
  std::set<std::string> keys;
  const std::string key(64, 'a');
  collect_keys(file("docs/a.md", key + "\n\"" + std::string(64, '7') + "\" " + key + "0 " + std::string(64, 'g') + "\n"), keys);
  EXPECT_EQ(keys, (std::set<std::string>{key, std::string(64, '7')}));
}

TEST(Rules, links_of_documents_lead_somewhere) {
  const auto objections = [](const std::string& text) {
    return links_lead_somewhere(file("docs/a.md", text + "\n"),
                                [](const std::string& path) { return path == "docs/b.md" || path == "base/c.hpp"; });
  };
  EXPECT_TRUE(objections("[b](b.md), [its part](b.md#part), [c](../base/c.hpp), `base/c.hpp`").empty());
  EXPECT_TRUE(objections("[away](https://example.org/x.md), [here](#part)").empty());
  EXPECT_TRUE(objections("```cpp\n[x](int y) {}\n```\n[b](b.md)").empty());
  EXPECT_EQ(objections("```cpp\n[x](int y) {}\n```\n[b](c.md)").size(), 1U);
  EXPECT_TRUE(objections("`a.hpp`, `storage/*.hpp`, `base/`, `DIR/blocks-0000`").empty());
  EXPECT_EQ(objections("[b](c.md)").size(), 1U);
  EXPECT_EQ(objections("[b](../b.md)").size(), 1U);
  EXPECT_EQ(objections("see `base/d.hpp`").size(), 1U);
}

TEST(Rules, retired_names_are_those_of_the_glossarys_table) {
  const std::set<std::string> names = retired_names(
      file("docs/glossary.md", "| `Block` | KV of a run of tokens | |\n## Retired names\n| retired | now |\n|---|---|\n"
                               "| `Heir`, `heir` | `split_child` |\n## More\n| `Slot` | a place | |\n"));
  EXPECT_EQ(names, (std::set<std::string>{"Heir", "heir"}));
}

TEST(Rules, a_retired_name_is_found_in_code_and_comments_and_allowed_in_quotes) {
  const auto found = [](const std::string& text) { return uses_no_retired_name(file("radix/a.cpp", text), {"heir"}); };
  EXPECT_TRUE(found("const Node heiress;  // her\nprint(\"heir\");\n").empty());
  EXPECT_EQ(found("int a;\nNode heir;\n"), Findings{"radix/a.cpp:2: the glossary has another name for heir"});
  EXPECT_EQ(found("print(\"a\", heir);  // the heir\n").size(), 2U);
}

TEST(Rules, documents_name_functions_that_exist) {
  std::set<std::string> words;
  collect_words(file("runtime/a.hpp", "class Cache {\n  void poll(int x);\n};\n"), words);
  const auto objections = [&](const std::string& text) { return named_functions_exist(file("docs/a.md", text + "\n"), words); };
  EXPECT_TRUE(objections("`Cache::poll`, `Cache::poll()`, `terrace::base`, `anything else`, Cache::push").empty());
  EXPECT_EQ(objections("`Cache::push`").size(), 1U);
  EXPECT_EQ(objections("`Cash::poll`").size(), 1U);
}

}  // namespace
}  // namespace terrace::house
