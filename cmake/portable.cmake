# TERRACE_PORTABLE: archives instead of shared libraries, the compiler's own among them, so that a program needs little but the C
# library where it runs. What has no archive that serves is looked for beside the program. tools/package builds this way, puts
# those libraries there, and checks that it came out so.

if(TERRACE_PORTABLE)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  set(OPENSSL_USE_STATIC_LIBS TRUE)
  set(ZLIB_USE_STATIC_LIBS TRUE)
  set(CMAKE_BUILD_RPATH "\$ORIGIN")
  # Wanted from the start (-u), or the linker comes by the archive before anyone has asked for it.
  add_link_options(-static-libstdc++ -static-libgcc -Wl,-u,arc4random)
  add_library(terrace_older_c_library STATIC tools/portable/arc4random.cpp)
  link_libraries(terrace_older_c_library)
endif()
