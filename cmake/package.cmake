# cpack: two Debian packages of what cmake --install installs. `terrace` has the program and the shared library,
# `libterrace-dev` what applications are built with. tools/package --deb makes them. They need the libraries of the distribution
# on which they are built, so that its name is part of their version.
# The maintainer is whoever gives the packages to others: Debian's own variables name them. The default is an address that nobody
# can have.
set(contact "local build <nobody@localhost.invalid>")
if(DEFINED ENV{DEBEMAIL})
  set(contact "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(TERRACE_PACKAGE_CONTACT ${contact} CACHE STRING "Maintainer of the Debian packages")

# Debian wants these names; other systems do not (EXCLUDE_FROM_ALL).
if(TARGET terrace_pages)
  add_custom_command(OUTPUT ${pages}/changelog.gz
    COMMAND ${GZIP_PROGRAM} -9nc ${PROJECT_SOURCE_DIR}/CHANGELOG.md > ${pages}/changelog.gz
    DEPENDS CHANGELOG.md VERBATIM)
  target_sources(terrace_pages PRIVATE ${pages}/changelog.gz)
  install(FILES ${pages}/changelog.gz DESTINATION share/doc/terrace COMPONENT runtime EXCLUDE_FROM_ALL)
  install(FILES ${pages}/changelog.gz DESTINATION share/doc/libterrace-dev COMPONENT development EXCLUDE_FROM_ALL)
endif()
# The licence of Terrace, and the notices of what is compiled in.
file(READ LICENSE licence)
file(READ LICENSE-THIRD-PARTY notices)
file(WRITE ${PROJECT_BINARY_DIR}/copyright "${licence}\n\n${notices}")
install(FILES ${PROJECT_BINARY_DIR}/copyright DESTINATION share/doc/terrace COMPONENT runtime EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_BINARY_DIR}/copyright DESTINATION share/doc/libterrace-dev COMPONENT development EXCLUDE_FROM_ALL)

cmake_host_system_information(RESULT distribution QUERY DISTRIB_ID)
cmake_host_system_information(RESULT distribution_version QUERY DISTRIB_VERSION_ID)
set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_PACKAGE_NAME terrace)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT ${TERRACE_PACKAGE_CONTACT})
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1~${distribution}${distribution_version})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME terrace)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "Terrace keeps the KV cache of LLM requests in GPU memory, host memory and on
disk. This package has the program terrace, which replays, plans and operates,
and the shared library that serving engines use. CUDA is found when a
program runs, and is not needed.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libterrace-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
# The headers include those of Boost. The binary interface holds for one version of it (docs/versioning.md).
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
  "terrace (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}), libboost${Boost_VERSION_MAJOR}.${Boost_VERSION_MINOR}-dev")
# Only programs that link the static library need these.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS "libfmt-dev, libssl-dev, libxxhash-dev")
if(TERRACE_HAS_URING)
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS ", liburing-dev")
endif()
if(TARGET prometheus-cpp::core)
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS ", prometheus-cpp-dev")
endif()
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "Development files: headers, static
library, CMake package and pkg-config file for programs that use Terrace.")
include(CPack)
