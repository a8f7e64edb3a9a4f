# The files of the Python package that are not Python (pyproject.toml): the shared library and the program, each in a folder of
# the package. A tool that repairs wheels puts the libraries that they need beside them (tools/package --wheel).
# With TERRACE_PREBUILT=FOLDER, a build of the whole project, its files are taken and nothing is compiled; they ask for an older
# libstdc++ then, where they can.
if(TERRACE_PREBUILT)
  add_custom_target(terrace_wheel)
  add_custom_target(terrace)
  install(CODE "
    set(strip)
    if(CMAKE_INSTALL_DO_STRIP)
      set(strip --strip)
    endif()
    execute_process(COMMAND \"${CMAKE_COMMAND}\" --install \"${TERRACE_PREBUILT}\" --component wheel
                            --prefix \"\${CMAKE_INSTALL_PREFIX}\" \${strip} COMMAND_ERROR_IS_FATAL ANY)
    set(package \"\${CMAKE_INSTALL_PREFIX}/terrace_kv\")
    execute_process(COMMAND python3 \"${PROJECT_SOURCE_DIR}/cmake/older_libstdcxx.py\" \${package}/lib/libterrace.so
                            \${package}/bin/terrace COMMAND_ERROR_IS_FATAL ANY)" COMPONENT wheel)
  return()
endif()

# The shared library once more, linked from the same objects for where it lies in the wheel. Without a name of its own in it, a
# program that has loaded it can load another libterrace.so, too.
add_library(terrace_wheel SHARED EXCLUDE_FROM_ALL ${objects})
target_link_libraries(terrace_wheel PRIVATE terrace_needs)
terrace_exports(terrace_wheel)
set_target_properties(terrace_wheel PROPERTIES
  OUTPUT_NAME terrace LINKER_LANGUAGE CXX NO_SONAME ON BUILD_WITH_INSTALL_RPATH ON
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/wheel)
install(FILES $<TARGET_FILE:terrace_wheel> $<TARGET_FILE_DIR:terrace_shared>/libterrace.json DESTINATION terrace_kv/lib
  COMPONENT wheel EXCLUDE_FROM_ALL)
install(TARGETS terrace RUNTIME DESTINATION terrace_kv/bin COMPONENT wheel EXCLUDE_FROM_ALL)
