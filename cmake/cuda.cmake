# The CUDA device: the toolkit's cuda.h for its types, and nvcc for the copy kernels. Nothing of CUDA is linked: the driver is
# found when the program runs. Sets TERRACE_HAS_CUDA, TERRACE_NVCC, TERRACE_CUDA_INCLUDE_DIR, TERRACE_CUDA_TOOLKIT (its version,
# or nothing) and TERRACE_CUDA_ARCHITECTURES.

set(TERRACE_CUDA AUTO CACHE STRING "The CUDA device: AUTO (where the toolkit, 12.8 or newer, is installed), ON, OFF")
set_property(CACHE TERRACE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TERRACE_HAS_CUDA FALSE)
set(TERRACE_CUDA_TOOLKIT "")
# Kernels are compiled for these; as PTX (compute_90) for whatever comes after.
set(TERRACE_CUDA_ARCHITECTURES "sm_80 sm_90 sm_100 sm_120 compute_90")

if(TERRACE_CUDA)
  find_program(TERRACE_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATH_SUFFIXES bin PATHS /usr/local/cuda)
  if(TERRACE_NVCC)
    get_filename_component(nvcc_file ${TERRACE_NVCC} REALPATH)
    get_filename_component(nvcc_folder ${nvcc_file} DIRECTORY)
    find_path(TERRACE_CUDA_INCLUDE_DIR cuda.h HINTS ${nvcc_folder}/../include ${nvcc_folder}/../targets/x86_64-linux/include)
  endif()
  set(cuda_version 0)
  if(TERRACE_CUDA_INCLUDE_DIR)
    file(STRINGS ${TERRACE_CUDA_INCLUDE_DIR}/cuda.h cuda_version_line REGEX "^#define CUDA_VERSION [0-9]+")
    string(REGEX MATCH "[0-9]+$" cuda_version "${cuda_version_line}")
  endif()
  if(cuda_version GREATER_EQUAL 12080)
    set(TERRACE_HAS_CUDA TRUE)
    math(EXPR cuda_major "${cuda_version} / 1000")
    math(EXPR cuda_minor "${cuda_version} % 1000 / 10")
    set(TERRACE_CUDA_TOOLKIT ${cuda_major}.${cuda_minor})
    message(STATUS "CUDA device: yes (toolkit ${cuda_version}, ${TERRACE_CUDA_INCLUDE_DIR})")
  elseif(TERRACE_CUDA STREQUAL AUTO)
    message(STATUS "CUDA device: no (needs nvcc and cuda.h of CUDA 12.8 or newer; TERRACE_CUDA=ON makes this an error)")
  else()
    message(FATAL_ERROR "TERRACE_CUDA=${TERRACE_CUDA}: nvcc and cuda.h of CUDA 12.8 or newer are needed; "
                        "set CUDA_PATH, or TERRACE_NVCC and TERRACE_CUDA_INCLUDE_DIR")
  endif()
endif()

if(TERRACE_HAS_CUDA)
  add_library(terrace_cuda INTERFACE)
  target_include_directories(terrace_cuda SYSTEM INTERFACE ${TERRACE_CUDA_INCLUDE_DIR})
  target_link_libraries(terrace_cuda INTERFACE ${CMAKE_DL_LIBS})
endif()

# terrace_cuda_kernels(TARGET SOURCE SYMBOL): compiles kernels for TERRACE_CUDA_ARCHITECTURES, and puts the result into the target
# as `extern "C" const unsigned char SYMBOL[]`.
function(terrace_cuda_kernels target source symbol)
  set(fatbin ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.fatbin)
  set(embedded ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cpp)
  set(architectures)
  string(REPLACE " " ";" codes "${TERRACE_CUDA_ARCHITECTURES}")
  foreach(code IN LISTS codes)
    string(REGEX REPLACE "^[a-z]+_" compute_ architecture ${code})
    list(APPEND architectures -gencode arch=${architecture},code=${code})
  endforeach()
  add_custom_command(
    OUTPUT ${fatbin}
    COMMAND ${TERRACE_NVCC} --fatbin -std=c++20 -O3 -I${PROJECT_SOURCE_DIR}
            ${architectures}
            # A driver of CUDA 12 cannot unpack what a toolkit of CUDA 13 has packed.
            --no-compress
            # A kernel that does not keep within its registers (__launch_bounds__) is an error.
            -Xptxas --warn-on-spills,--warning-as-error
            -ccbin ${CMAKE_CXX_COMPILER} -allow-unsupported-compiler
            -MD -MF ${fatbin}.d -MT ${fatbin} -o ${fatbin} ${CMAKE_CURRENT_SOURCE_DIR}/${source}
    DEPENDS ${source}
    DEPFILE ${fatbin}.d
    COMMENT "Compiling kernels ${source}"
    VERBATIM)
  add_custom_command(
    OUTPUT ${embedded}
    COMMAND ${CMAKE_COMMAND} -DFROM=${fatbin} -DTO=${embedded} -DSYMBOL=${symbol} -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${fatbin} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${embedded})
endfunction()
