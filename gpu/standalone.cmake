# What the root's CMakeLists.txt does for all folders, for gpu/ alone.
set(SHOAL_ROOT "${CMAKE_CURRENT_SOURCE_DIR}/..")
list(APPEND CMAKE_MODULE_PATH "${SHOAL_ROOT}/cmake")
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
option(SHOAL_WERROR "Treat warnings as errors" OFF)
set(SHOAL_TESTS ON)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(GTest REQUIRED)
include(ShoalCuda)
include(ShoalTargets)
enable_testing()

# The part of base/ that gpu/ uses.
shoal_library(
  shoal_base
  SOURCES "${SHOAL_ROOT}/base/status.cpp" "${SHOAL_ROOT}/base/stream_copy.cpp"
  PUBLIC Threads::Threads)
