# For libraries that Debian packages without a CMake configuration that both of its releases share.
#
# shoal_find_library(NAME TARGET target HEADER header [LIBRARIES names...] [STATIC_NEEDS names...])
#
# To be called by a FindNAME.cmake: defines the imported target with the header's folder and the libraries
# (none: the header is all), and NAME_FOUND. Shared libraries are preferred; a library found only as an
# archive brings those of STATIC_NEEDS that exist.
include(FindPackageHandleStandardArgs)

macro(shoal_find_library name)
  cmake_parse_arguments(ARG "" "TARGET;HEADER" "LIBRARIES;STATIC_NEEDS" ${ARGN})
  find_path(${name}_INCLUDE_DIR ${ARG_HEADER})
  mark_as_advanced(${name}_INCLUDE_DIR)
  set(${name}_required ${name}_INCLUDE_DIR)
  set(${name}_link)
  foreach(library IN LISTS ARG_LIBRARIES)
    find_library(${name}_${library}_LIBRARY ${library})
    mark_as_advanced(${name}_${library}_LIBRARY)
    list(APPEND ${name}_required ${name}_${library}_LIBRARY)
    list(APPEND ${name}_link "${${name}_${library}_LIBRARY}")
  endforeach()
  if(${name}_link MATCHES "\\.a(;|$)")
    foreach(library IN LISTS ARG_STATIC_NEEDS)
      find_library(${name}_${library}_LIBRARY ${library})
      mark_as_advanced(${name}_${library}_LIBRARY)
      if(${name}_${library}_LIBRARY)
        list(APPEND ${name}_link "${${name}_${library}_LIBRARY}")
      endif()
    endforeach()
    list(APPEND ${name}_link Threads::Threads ${CMAKE_DL_LIBS})
  endif()
  find_package_handle_standard_args(
    ${name}
    REQUIRED_VARS ${${name}_required}
    VERSION_VAR ${name}_VERSION
    HANDLE_VERSION_RANGE)
  if(${name}_FOUND AND NOT TARGET ${ARG_TARGET})
    add_library(${ARG_TARGET} INTERFACE IMPORTED)
    target_include_directories(${ARG_TARGET} SYSTEM INTERFACE "${${name}_INCLUDE_DIR}")
    target_link_libraries(${ARG_TARGET} INTERFACE ${${name}_link})
  endif()
endmacro()
