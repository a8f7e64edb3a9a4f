# The files of the Python package that are not Python (pyproject.toml): the shared library and the program, each in a folder of
# the package. A tool that repairs wheels puts the libraries that they need beside them (tools/package --wheel).
set_target_properties(terrace_shared PROPERTIES INSTALL_RPATH "\$ORIGIN" NO_SONAME ON)
install(FILES $<TARGET_FILE:terrace_shared> DESTINATION terrace_kv/lib RENAME libterrace.so COMPONENT wheel)
install(FILES $<TARGET_FILE_DIR:terrace_shared>/libterrace.json DESTINATION terrace_kv/lib COMPONENT wheel)
install(TARGETS terrace RUNTIME DESTINATION terrace_kv/bin COMPONENT wheel)
