# cmake --install: the program, the client as one shared library with its headers, the CMake package that
# find_package(Shoal) reads, man page, completions and examples. docs/how-to/install.md.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(SHOAL_PACKAGEDIR "${CMAKE_INSTALL_LIBDIR}/cmake/Shoal")

# What a trainer links: the client and all of ours below it, in one library that shows nothing else. The
# libraries that it uses inside are its own affair, and a trainer needs none of their headers.
set(shoal_client_objects)
foreach(library shoal_client shoal_local shoal_gpu shoal_plan shoal_base)
  list(APPEND shoal_client_objects "$<TARGET_OBJECTS:${library}>")
endforeach()
add_library(shoal_client_shared SHARED ${shoal_client_objects})
target_link_libraries(shoal_client_shared PRIVATE shoal_client)
target_link_options(
  shoal_client_shared
  PRIVATE "LINKER:--version-script=${PROJECT_SOURCE_DIR}/packaging/client.map" "LINKER:--as-needed")
if(NOT SHOAL_SANITIZE) # a sanitizer's own functions come with the program
  target_link_options(shoal_client_shared PRIVATE LINKER:--no-undefined)
endif()
set_target_properties(
  shoal_client_shared
  PROPERTIES OUTPUT_NAME shoal_client
             EXPORT_NAME client
             VERSION ${PROJECT_VERSION}
             SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} # until 1.0 a minor version may break
             LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/client"
             LINK_DEPENDS "${PROJECT_SOURCE_DIR}/packaging/client.map")
target_compile_features(shoal_client_shared INTERFACE cxx_std_20)
target_include_directories(shoal_client_shared INTERFACE "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")

install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/include/shoal"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  COMPONENT development
  FILES_MATCHING PATTERN "*.h")

install(TARGETS shoal RUNTIME COMPONENT runtime)
install(
  TARGETS shoal_client_shared
  EXPORT ShoalTargets
  LIBRARY COMPONENT runtime NAMELINK_COMPONENT development)
install(EXPORT ShoalTargets NAMESPACE Shoal:: DESTINATION "${SHOAL_PACKAGEDIR}" COMPONENT development)
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/packaging/ShoalConfig.cmake.in" "${PROJECT_BINARY_DIR}/packaging/ShoalConfig.cmake"
  INSTALL_DESTINATION "${SHOAL_PACKAGEDIR}"
  PATH_VARS CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/packaging/ShoalConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(
  FILES "${PROJECT_BINARY_DIR}/packaging/ShoalConfig.cmake"
        "${PROJECT_BINARY_DIR}/packaging/ShoalConfigVersion.cmake"
  DESTINATION "${SHOAL_PACKAGEDIR}"
  COMPONENT development)

# For builds without CMake. Paths hang on the file's own place, so that the prefix may move.
file(RELATIVE_PATH shoal_prefix_from_pkgconfig "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file("${PROJECT_SOURCE_DIR}/packaging/shoal.pc.in" "${PROJECT_BINARY_DIR}/packaging/shoal.pc" @ONLY)
install(
  FILES "${PROJECT_BINARY_DIR}/packaging/shoal.pc"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
  COMPONENT development)

# The man page is what the program says of itself.
set(shoal_man_page "${PROJECT_BINARY_DIR}/packaging/shoal.1")
add_custom_command(
  OUTPUT "${shoal_man_page}"
  COMMAND "${PROJECT_SOURCE_DIR}/packaging/make_man_page" "$<TARGET_FILE:shoal>" "${shoal_man_page}"
  DEPENDS shoal "${PROJECT_SOURCE_DIR}/packaging/make_man_page"
  COMMENT "Writing the man page from --help"
  VERBATIM)
add_custom_target(shoal_man_page ALL DEPENDS "${shoal_man_page}")
install(FILES "${shoal_man_page}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT runtime)

install(
  FILES "${PROJECT_SOURCE_DIR}/packaging/completion.bash"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions"
  RENAME shoal
  COMPONENT runtime)
install(
  FILES "${PROJECT_SOURCE_DIR}/packaging/completion.zsh"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions"
  RENAME _shoal
  COMPONENT runtime)
install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/sim/profiles/"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/shoal/profiles"
  COMPONENT runtime)
install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/sim/scenarios/"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/shoal/scenarios"
  COMPONENT runtime)
install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/sim/campaign/expected/"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/shoal/fuzz"
  COMPONENT runtime)
install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/chaos/"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/shoal/chaos"
  COMPONENT runtime
  FILES_MATCHING PATTERN "*.py")
install(TARGETS sharded_trainer RUNTIME DESTINATION "libexec/shoal" COMPONENT runtime) # of shoal chaos
install(
  FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/README.md"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}"
  COMPONENT runtime)
install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/docs/"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}/docs"
  COMPONENT runtime
  FILES_MATCHING PATTERN "*.md" PATTERN "monitoring/*.yml" PATTERN "monitoring/*.json")
install( # of the pages: each path that they name exists beside them
  DIRECTORY "${PROJECT_SOURCE_DIR}/examples/"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples"
  COMPONENT runtime
  FILES_MATCHING PATTERN "*.cpp" PATTERN "*.h" PATTERN "*.py"
  PATTERN "recipes" EXCLUDE)
install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/examples/recipes/"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples/recipes"
  COMPONENT runtime
  USE_SOURCE_PERMISSIONS)
