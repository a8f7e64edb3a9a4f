# How every target of ours is built.

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

# terrace_library(NAME SOURCES... HEADERS... LINKS... PRIVATE_LINKS...): one library a folder, `terrace::NAME`.
function(terrace_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(terrace_${name} STATIC ${ARG_SOURCES})
  add_library(terrace::${name} ALIAS terrace_${name})
  target_sources(terrace_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
  target_link_libraries(terrace_${name} PUBLIC ${ARG_LINKS} PRIVATE ${ARG_PRIVATE_LINKS} terrace_build_flags)
endfunction()
