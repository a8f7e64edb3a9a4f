# terrace_test(NAME SOURCES... LINKS... LABELS... [SHARDS N] [COST SECONDS] [LONG FILTER]): one test program. CTest runs it as a
# whole, or in N parts, by tests/run_program.py, which names the case that fails, crashes or hangs. COST: about how long it takes,
# if that is long; what takes longest begins first.
# LONG: cases that take a sample in the default run. All of it is the entry NAME.long, with the label `long` (TERRACE_LONG=1,
# tests/seed.hpp).
# A .cpp file of the folder that no terrace_test names fails the configure step: a test that never runs is no test.

# The distribution's own, because the tests of the Python package need its pytest and numpy (python/CMakeLists.txt).
find_program(TERRACE_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)

# A case that is silent for so long hangs. CTest itself waits longer than any program takes, so that the case is named.
set(TERRACE_CASE_LIMIT 300)
if(TERRACE_SANITIZE)
  set(TERRACE_CASE_LIMIT 1200)
endif()
set(TERRACE_PROGRAM_LIMIT 7200)

function(terrace_test name)
  cmake_parse_arguments(ARG "" "SHARDS;COST;LONG" "SOURCES;LINKS;LABELS" ${ARGN})
  terrace_units(units ${name} TESTS ${ARG_SOURCES})
  add_executable(${name} ${units})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  # The tests themselves are not what a release build makes fast; -O1 compiles a third faster.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} terrace_test_paths GTest::gtest_main terrace_build_flags)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  set(run ${TERRACE_PYTHON} ${PROJECT_SOURCE_DIR}/tests/run_program.py $<TARGET_FILE:${name}>)
  set(environment TERRACE_CASE_LIMIT=${TERRACE_CASE_LIMIT})
  if(NOT ARG_COST)
    set(ARG_COST 1)
  endif()
  if(ARG_SHARDS)
    foreach(shard RANGE 1 ${ARG_SHARDS})
      math(EXPR index "${shard} - 1")
      add_test(NAME ${name}.${shard} COMMAND ${run})
      set_tests_properties(${name}.${shard} PROPERTIES LABELS "${ARG_LABELS}" COST ${ARG_COST}
        TIMEOUT ${TERRACE_PROGRAM_LIMIT} ENVIRONMENT "${environment};GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
    endforeach()
  else()
    add_test(NAME ${name} COMMAND ${run})
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" COST ${ARG_COST}
      TIMEOUT ${TERRACE_PROGRAM_LIMIT} ENVIRONMENT "${environment}")
  endif()
  if(ARG_LONG)
    add_test(NAME ${name}.long COMMAND ${run} --gtest_filter=${ARG_LONG})
    set_tests_properties(${name}.long PROPERTIES LABELS "${ARG_LABELS};long" COST 100
      TIMEOUT ${TERRACE_PROGRAM_LIMIT} ENVIRONMENT "TERRACE_CASE_LIMIT=3600;TERRACE_LONG=1")
  endif()
  set_property(DIRECTORY APPEND PROPERTY TERRACE_TEST_SOURCES ${ARG_SOURCES})
  # `tools/check --only` looks up here which program has a case.
  foreach(source IN LISTS ARG_SOURCES)
    cmake_path(ABSOLUTE_PATH source NORMALIZE)
    set_property(GLOBAL APPEND PROPERTY TERRACE_TEST_PROGRAMS "${name} ${source}")
  endforeach()
endfunction()

function(terrace_check_all_listed)
  get_property(listed DIRECTORY PROPERTY TERRACE_TEST_SOURCES)
  file(GLOB present RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *.cpp)
  file(GLOB_RECURSE below RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *_test.cpp)
  foreach(file IN LISTS present below)
    if(NOT file IN_LIST listed)
      message(FATAL_ERROR "${CMAKE_CURRENT_SOURCE_DIR}/${file} belongs to no test: name it in a terrace_test()")
    endif()
  endforeach()
endfunction()
