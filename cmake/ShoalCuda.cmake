# Whether this build has CUDA: SHOAL_WITH_CUDA. The answer is yes where nvcc 12.4 or newer is found, unless
# SHOAL_CUDA is OFF or sanitizers are on, which nvcc's programs do not work with.
#
# nvcc is searched in PATH, in $CUDA_PATH and $CUDA_HOME, and in /usr/local/cuda. -DCMAKE_CUDA_COMPILER names
# another one. With SHOAL_CUDA=ON its absence is an error.
set(SHOAL_CUDA AUTO CACHE STRING "Build the CUDA kernels: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE SHOAL_CUDA PROPERTY STRINGS AUTO ON OFF)
set(SHOAL_CUDA_VERSION_MIN 12.4)
set(SHOAL_WITH_CUDA OFF)
if(SHOAL_CUDA AND NOT SHOAL_SANITIZE)
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(SHOAL_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
    mark_as_advanced(SHOAL_NVCC)
    if(SHOAL_NVCC)
      set(CMAKE_CUDA_COMPILER "${SHOAL_NVCC}")
    endif()
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # Decided below, when the version is known; enabling the language needs one that every version has.
    set(CMAKE_CUDA_ARCHITECTURES 80)
    set(shoal_decides_architectures TRUE)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit ${SHOAL_CUDA_VERSION_MIN} QUIET)
    if(CUDAToolkit_FOUND AND TARGET CUDA::cudart_static)
      set(SHOAL_WITH_CUDA ON)
    endif()
  endif()
  if(NOT SHOAL_WITH_CUDA AND NOT SHOAL_CUDA STREQUAL AUTO)
    message(FATAL_ERROR
      "SHOAL_CUDA is ${SHOAL_CUDA}, and no CUDA Toolkit ${SHOAL_CUDA_VERSION_MIN} or newer with "
      "cudart_static was found. Name its nvcc with -DCMAKE_CUDA_COMPILER=…")
  endif()
endif()

set(SHOAL_CUDA_BUILD "not built in")
if(SHOAL_WITH_CUDA)
  # Code for each of these, and PTX of the last, which newer devices compile when they load it.
  if(shoal_decides_architectures)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
    endif()
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  # The Runtime is linked by name, as CUDA::cudart_static: it needs no driver to start.
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)
  string(REPLACE ";" ", " shoal_architectures "${CMAKE_CUDA_ARCHITECTURES}")
  string(REPLACE "-real" "" shoal_architectures "${shoal_architectures}")
  set(SHOAL_CUDA_BUILD "CUDA ${CUDAToolkit_VERSION_MAJOR}.${CUDAToolkit_VERSION_MINOR}")
  string(APPEND SHOAL_CUDA_BUILD " for sm ${shoal_architectures}")
endif()
message(STATUS "GPU support: ${SHOAL_CUDA_BUILD}")
