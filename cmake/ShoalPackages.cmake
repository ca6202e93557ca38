# Debian packages, by CPack (make deb): `shoal` has the program, the client library and the pages,
# `libshoal-client-dev` what a trainer is built with. docs/how-to/install.md, tests/install/deb_test.
set(CPACK_PACKAGE_CONTACT "The Shoal authors <root@localhost>" CACHE STRING "Maintainer of the .deb packages")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME shoal)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)

set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME shoal)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "python3, iproute2") # of shoal chaos
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/packaging/debian/triggers")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION
    "Checkpoints of sharded training jobs
 Saves and loads the checkpoints of training jobs that run on many hosts,
 without collectives. Contains the node program, the commands and the client
 library.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libshoal-client-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "shoal (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
    "Headers for trainers that use Shoal
 Contains the public headers, the CMake package and the pkg-config file.")

include(CPack)
