# cmake --install: the public headers, the libraries, the program, the CMake package and the pkg-config file. The package may be
# moved after it is installed: it names no folder of this machine.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/terrace)

# Two sets of targets, because only a program that links the static library needs the libraries that are inside.
set_target_properties(terrace_public PROPERTIES EXPORT_NAME public)
install(TARGETS terrace_public terrace_shared EXPORT terrace_shared
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS terrace_static EXPORT terrace_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT terrace_shared NAMESPACE terrace:: FILE terrace-targets.cmake DESTINATION ${package_folder})
install(EXPORT terrace_static NAMESPACE terrace:: FILE terrace-static-targets.cmake DESTINATION ${package_folder})
if(TARGET terrace)
  install(TARGETS terrace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(cmake/terrace-config.cmake.in ${PROJECT_BINARY_DIR}/terrace-config.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/terrace-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/terrace-config.cmake ${PROJECT_BINARY_DIR}/terrace-config-version.cmake
  DESTINATION ${package_folder})

# pkg-config: the file says where it lies itself.
file(RELATIVE_PATH prefix_from_pkg_config ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH libdir_in_prefix ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH includedir_in_prefix ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
set(private_libraries "-lfmt -lcrypto -lxxhash")
if(TERRACE_HAS_URING)
  string(APPEND private_libraries " -luring")
endif()
if(TARGET prometheus-cpp::core)
  string(APPEND private_libraries " -lprometheus-cpp-core")
endif()
string(APPEND private_libraries " -lpthread -ldl")
configure_file(cmake/terrace.pc.in ${PROJECT_BINARY_DIR}/terrace.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/terrace.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
