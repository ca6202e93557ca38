# shoal_library(NAME SOURCES... [PUBLIC libs...] [PRIVATE libs...]): one static library a folder, warnings on.
# shoal_test(NAME SOURCES... [LIBS libs...] [LABELS labels...]): one GoogleTest program, each case a ctest test.

add_library(shoal_flags INTERFACE)
target_compile_options(shoal_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
                                             -Wno-missing-field-initializers)
if(SHOAL_WERROR)
  target_compile_options(shoal_flags INTERFACE -Werror)
endif()
if(SHOAL_SANITIZE)
  add_compile_options(-fsanitize=${SHOAL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SHOAL_SANITIZE})
endif()

function(shoal_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>")
  target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE} "$<BUILD_INTERFACE:shoal_flags>")
endfunction()

function(shoal_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest_main shoal_flags)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  include(GoogleTest)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 300)
endfunction()
