# How every target of ours is built.

# The same objects make the folders' libraries, the shared library and the static one. A shared library exports only what
# TERRACE_API marks (include/terrace/export.hpp). Nobody replaces a function of the library, so that calls may be inlined.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
add_compile_options(-fno-semantic-interposition)
# GCC collects garbage less often, which is 5 % of its time; a large unit takes 1 to 2 GiB.
add_compile_options($<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=524288>)

add_library(terrace_build_flags INTERFACE)
target_compile_options(terrace_build_flags INTERFACE -Wall -Wextra -Wconversion -Wshadow
                       $<$<BOOL:${TERRACE_WARNINGS_AS_ERRORS}>:-Werror>)
if(TERRACE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(TERRACE_SANITIZE)
  add_compile_options(-fsanitize=${TERRACE_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TERRACE_SANITIZE})
  if(TERRACE_SANITIZE MATCHES "thread")
    # Asio and moodycamel use fences, which GCC's TSan does not model; cmake/tsan.supp lists the frames.
    add_compile_options(-Wno-tsan)
  endif()
endif()

# A compiler cache, where there is one (package ccache), hits for a clone in another folder, too: paths are relative to the clone.
# Whoever sets CMAKE_CXX_COMPILER_LAUNCHER chooses instead.
if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(TERRACE_CCACHE ccache)
  if(TERRACE_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true ${TERRACE_CCACHE})
  endif()
endif()

# terrace_units(VARIABLE TARGET KIND SOURCES... ALONE...): what a target compiles. If TERRACE_UNITY covers the kind (LIBRARY,
# TESTS), these are units that include up to 8 neighbouring sources each: most of the time of a unit goes to headers. Sources
# after ALONE stay as they are. The units name their sources by paths from the root, so that they are the same in every clone;
# CMake's own unity build writes absolute paths.
function(terrace_units variable target kind)
  cmake_parse_arguments(ARG "" "" "ALONE" ${ARGN})
  set(sources ${ARG_UNPARSED_ARGUMENTS})
  if(NOT sources OR NOT (TERRACE_UNITY STREQUAL ALL OR TERRACE_UNITY STREQUAL kind))
    set(${variable} ${sources} ${ARG_ALONE} PARENT_SCOPE)
    return()
  endif()
  set(rest)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source NORMALIZE)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    list(APPEND rest ${source})
  endforeach()
  list(SORT rest)
  list(LENGTH rest count)
  math(EXPR batches "(${count} + 7) / 8")
  math(EXPR size "(${count} + ${batches} - 1) / ${batches}")
  set(units ${ARG_ALONE})
  while(rest)
    list(SUBLIST rest 0 ${size} batch)
    list(REMOVE_ITEM rest ${batch})
    list(GET batch 0 first)
    cmake_path(GET first STEM first)
    list(TRANSFORM batch REPLACE "(.+)" "#include \"\\1\"\n")
    string(CONCAT text ${batch})
    set(unit ${CMAKE_CURRENT_BINARY_DIR}/units/${target}_from_${first}.cpp)
    if(unit IN_LIST units)  # two batches begin with files of this name, in different folders
      list(LENGTH units number)
      set(unit ${CMAKE_CURRENT_BINARY_DIR}/units/${target}_from_${first}_${number}.cpp)
    endif()
    file(CONFIGURE OUTPUT ${unit} CONTENT "${text}")
    # Names that one source hides from another; classes with members of an unnamed namespace of an included file.
    set_source_files_properties(${unit} PROPERTIES COMPILE_OPTIONS "-Wno-shadow;-Wno-subobject-linkage")
    list(APPEND units ${unit})
  endwhile()
  set(${variable} ${units} PARENT_SCOPE)
endfunction()

# terrace_library(NAME SOURCES... ALONE... HEADERS... LINKS... PRIVATE_LINKS... [NOT_INSTALLED]): one library a folder,
# `terrace::NAME`. Its objects are part of the installed library too (cmake/install.cmake), except where it is NOT_INSTALLED.
function(terrace_library name)
  cmake_parse_arguments(ARG "NOT_INSTALLED" "" "SOURCES;ALONE;HEADERS;LINKS;PRIVATE_LINKS" ${ARGN})
  set(kind LIBRARY)
  if(ARG_NOT_INSTALLED)
    set(kind TESTS)
  endif()
  terrace_units(units ${name} ${kind} ${ARG_SOURCES} ALONE ${ARG_ALONE})
  add_library(terrace_${name} STATIC ${units})
  add_library(terrace::${name} ALIAS terrace_${name})
  target_sources(terrace_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
  target_link_libraries(terrace_${name} PUBLIC ${ARG_LINKS} PRIVATE ${ARG_PRIVATE_LINKS} terrace_build_flags)
  if(NOT ARG_NOT_INSTALLED)
    set_property(GLOBAL APPEND PROPERTY TERRACE_INSTALLED_FOLDERS terrace_${name})
  endif()
endfunction()
