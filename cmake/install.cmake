# cmake --install: the public headers, the libraries, the program with its manual page and completion, the CMake package and the
# pkg-config file. The package may be moved after it is installed: it names no folder of this machine. The component `runtime` is
# for those who run programs, `development` for those who build them (cmake/package.cmake).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/terrace)

# Two sets of targets, because only a program that links the static library needs the libraries that are inside.
set_target_properties(terrace_public PROPERTIES EXPORT_NAME public)
install(TARGETS terrace_public terrace_shared EXPORT terrace_shared
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(TARGETS terrace_static EXPORT terrace_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT terrace_shared NAMESPACE terrace:: FILE terrace-targets.cmake DESTINATION ${package_folder}
  COMPONENT development)
install(EXPORT terrace_static NAMESPACE terrace:: FILE terrace-static-targets.cmake DESTINATION ${package_folder}
  COMPONENT development)
install(FILES LICENSE LICENSE-THIRD-PARTY DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT license)

# The program writes its manual page and completion itself, from its table of options. gzip -n: without the time.
if(TARGET terrace)
  find_program(GZIP_PROGRAM gzip REQUIRED)
  set(pages ${PROJECT_BINARY_DIR}/pages)
  file(MAKE_DIRECTORY ${pages})
  add_custom_command(OUTPUT ${pages}/terrace.1.gz ${pages}/terrace
    COMMAND terrace manual | ${GZIP_PROGRAM} -9n > ${pages}/terrace.1.gz
    COMMAND terrace completion bash > ${pages}/terrace
    DEPENDS terrace VERBATIM)
  add_custom_target(terrace_pages ALL DEPENDS ${pages}/terrace.1.gz ${pages}/terrace)
  install(TARGETS terrace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  install(FILES ${pages}/terrace.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT runtime)
  install(FILES ${pages}/terrace DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT runtime)
endif()

configure_package_config_file(cmake/terrace-config.cmake.in ${PROJECT_BINARY_DIR}/terrace-config.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/terrace-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/terrace-config.cmake ${PROJECT_BINARY_DIR}/terrace-config-version.cmake
  DESTINATION ${package_folder} COMPONENT development)

# pkg-config: the file says where it lies itself.
file(RELATIVE_PATH prefix_from_pkg_config ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH libdir_in_prefix ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH includedir_in_prefix ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
set(private_libraries "-lfmt -lssl -lcrypto -lxxhash")
if(TERRACE_HAS_URING)
  string(APPEND private_libraries " -luring")
endif()
if(TARGET prometheus-cpp::core)
  string(APPEND private_libraries " -lprometheus-cpp-core")
endif()
string(APPEND private_libraries " -lpthread -ldl")
configure_file(cmake/terrace.pc.in ${PROJECT_BINARY_DIR}/terrace.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/terrace.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
