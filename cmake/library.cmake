# The library that applications link, shared (terrace::terrace) and static (terrace::terrace_static). Both hold the objects of the
# folders' libraries; nothing is compiled twice. Tests and the program link the folders' libraries, so that they reach what the
# shared library hides.

get_property(folders GLOBAL PROPERTY TERRACE_INSTALLED_FOLDERS)
set(objects)
foreach(folder IN LISTS folders)
  list(APPEND objects $<TARGET_OBJECTS:${folder}>)
endforeach()

# What those objects call. An installed static library asks for the same by name (cmake/install.cmake).
add_library(terrace_needs INTERFACE)
target_link_libraries(terrace_needs INTERFACE
  fmt::fmt OpenSSL::SSL OpenSSL::Crypto Threads::Threads terrace_xxhash $<TARGET_NAME_IF_EXISTS:terrace_uring>
  $<TARGET_NAME_IF_EXISTS:prometheus-cpp::core> ${CMAKE_DL_LIBS})

# terrace_exports(TARGET): the shared library exports what cmake/exports.map says, so that the instances of other libraries'
# templates stay inside. Without sanitizers, a symbol that nothing defines is an error.
function(terrace_exports target)
  target_link_options(${target} PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map)
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  if(NOT TERRACE_SANITIZE AND NOT TERRACE_FUZZ)
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
endfunction()

add_library(terrace_shared SHARED ${objects})
add_library(terrace::terrace ALIAS terrace_shared)
target_link_libraries(terrace_shared PUBLIC terrace_public PRIVATE terrace_needs)
# A minor version may change the binary interface until 1.0 (docs/versioning.md).
set(soversion ${PROJECT_VERSION_MAJOR})
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()
set_target_properties(terrace_shared PROPERTIES
  OUTPUT_NAME terrace EXPORT_NAME terrace VERSION ${PROJECT_VERSION} SOVERSION ${soversion} LINKER_LANGUAGE CXX
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
terrace_exports(terrace_shared)

add_library(terrace_static STATIC ${objects})
add_library(terrace::terrace_static ALIAS terrace_static)
set(static_needs $<BUILD_INTERFACE:terrace_needs>
                 $<INSTALL_INTERFACE:fmt::fmt> $<INSTALL_INTERFACE:OpenSSL::SSL> $<INSTALL_INTERFACE:OpenSSL::Crypto>
                 $<INSTALL_INTERFACE:xxhash>)
if(TERRACE_HAS_URING)
  list(APPEND static_needs $<INSTALL_INTERFACE:uring>)
endif()
if(TARGET prometheus-cpp::core)
  list(APPEND static_needs $<INSTALL_INTERFACE:prometheus-cpp-core>)
endif()
if(CMAKE_DL_LIBS)
  list(APPEND static_needs $<INSTALL_INTERFACE:${CMAKE_DL_LIBS}>)
endif()
target_link_libraries(terrace_static PUBLIC terrace_public PRIVATE ${static_needs})
set_target_properties(terrace_static PROPERTIES
  OUTPUT_NAME terrace LINKER_LANGUAGE CXX ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

# What the Python package cannot ask the library: whether it was built with the CUDA device. The file lies beside the library.
file(GENERATE OUTPUT $<TARGET_FILE_DIR:terrace_shared>/libterrace.json
     CONTENT "{\"cuda\": $<IF:$<BOOL:${TERRACE_HAS_CUDA}>,true,false>}\n")
