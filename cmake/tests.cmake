# terrace_test(NAME SOURCES... LINKS... LABELS...): one test program, its cases listed to CTest one by one.
# A .cpp file of the folder that no terrace_test names fails the configure step: a test that never runs is no test.
include(GoogleTest)

function(terrace_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} GTest::gtest_main terrace_build_flags)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  gtest_discover_tests(${name} PROPERTIES LABELS "${ARG_LABELS}" DISCOVERY_MODE PRE_TEST)
  set_property(DIRECTORY APPEND PROPERTY TERRACE_TEST_SOURCES ${ARG_SOURCES})
endfunction()

function(terrace_check_all_listed)
  get_property(listed DIRECTORY PROPERTY TERRACE_TEST_SOURCES)
  file(GLOB present RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *.cpp */*_test.cpp)
  foreach(file IN LISTS present)
    if(NOT file IN_LIST listed)
      message(FATAL_ERROR "${CMAKE_CURRENT_SOURCE_DIR}/${file} belongs to no test: name it in a terrace_test()")
    endif()
  endforeach()
endfunction()
