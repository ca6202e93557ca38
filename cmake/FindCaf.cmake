# The C++ Actor Framework's core: Caf::core. Debian's package has no CMake configuration.
include(ShoalFindLibrary)
find_path(Caf_INCLUDE_DIR caf/actor_system.hpp)
if(Caf_INCLUDE_DIR AND EXISTS "${Caf_INCLUDE_DIR}/caf/config.hpp")
  # MAJOR * 10,000 + MINOR * 100 + PATCH
  file(STRINGS "${Caf_INCLUDE_DIR}/caf/config.hpp" Caf_line REGEX "^#define CAF_VERSION [0-9]+")
  if(Caf_line MATCHES "CAF_VERSION ([0-9]+)")
    math(EXPR Caf_major "${CMAKE_MATCH_1} / 10000")
    math(EXPR Caf_minor "${CMAKE_MATCH_1} / 100 % 100")
    math(EXPR Caf_patch "${CMAKE_MATCH_1} % 100")
    set(Caf_VERSION ${Caf_major}.${Caf_minor}.${Caf_patch})
  endif()
endif()
shoal_find_library(Caf TARGET Caf::core HEADER caf/actor_system.hpp LIBRARIES caf_core)
