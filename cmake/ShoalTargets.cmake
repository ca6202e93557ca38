# shoal_library(NAME SOURCES... [PUBLIC libs...] [PRIVATE libs...] [PRECOMPILED headers...]): a static library
# a folder, warnings on. PRECOMPILED: headers to precompile besides those of the standard library and fmt.
# shoal_test(NAME SOURCES... [LIBS libs...] [LABELS unit|process]): a GoogleTest program, each case a ctest
# test.
#
# A test is labelled `unit` (the default: within one process; runs under the sanitizers too) or `process`
# (starts real nodes and trainers). The target unit_tests builds the programs of the first kind, process_tests
# those of the second with all that they start. A process test has the machine to itself: what it starts would
# use every processor, and is judged by deadlines that a busy machine does not keep.

get_filename_component(SHOAL_ROOT "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE) # gpu/ is a project of its own too

add_library(shoal_flags INTERFACE)
target_compile_options(
  shoal_flags
  INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual>"
            "$<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>"
            "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # It takes a reference to an element of a std::span for one into the span itself.
  target_compile_options(shoal_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-dangling-reference>")
endif()
if(SHOAL_WERROR)
  target_compile_options(
    shoal_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Werror>"
                          "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
endif()
if(SHOAL_SANITIZE)
  add_compile_options(-fsanitize=${SHOAL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SHOAL_SANITIZE})
endif()

# Headers that most sources parse. The precompiled form must not hide a missing #include: the fuzz preset
# compiles the libraries without it.
set(SHOAL_COMMON_HEADERS <algorithm> <chrono> <cstdint> <cstring> <functional> <map> <memory> <optional>
                         <set> <span> <string> <string_view> <utility> <variant> <vector> <fmt/format.h>)

# Of precompiled headers gcc forgets that they are the system's, and takes "text" + string for an overflow
# (GCC bug 105329 and its kin).
function(shoal_precompile name)
  if(SHOAL_PRECOMPILE)
    target_precompile_headers(${name} PRIVATE ${SHOAL_COMMON_HEADERS} ${ARGN})
    target_link_libraries(${name} PRIVATE "$<BUILD_INTERFACE:fmt::fmt>")
    target_compile_options(
      ${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow;
                      -Wno-stringop-overread>)
  endif()
endfunction()

function(shoal_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE;PRECOMPILED" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(
    ${name} PUBLIC "$<BUILD_INTERFACE:${SHOAL_ROOT}>"
                   "$<BUILD_INTERFACE:${SHOAL_ROOT}/include>")
  target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE} "$<BUILD_INTERFACE:shoal_flags>")
  list(LENGTH ARG_SOURCES sources)
  if(sources GREATER 3) # else precompiling takes longer than it saves
    shoal_precompile(${name} ${ARG_PRECOMPILED})
  endif()
endfunction()

if(SHOAL_TESTS)
  include(GoogleTest)
  cmake_host_system_information(RESULT SHOAL_ALL_PROCESSORS QUERY NUMBER_OF_LOGICAL_CORES)
  set(SHOAL_PEERS "${PROJECT_SOURCE_DIR}/build/peers") # tools/install_peers
  add_custom_target(unit_tests)
  add_custom_target(process_tests)
endif()

function(shoal_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_LABELS MATCHES "^(unit|process)$")
    message(FATAL_ERROR "${name}: a test is labelled unit or process, not '${ARG_LABELS}'")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest_main shoal_flags)
  target_include_directories(${name} PRIVATE "${SHOAL_ROOT}")
  # Parsing GoogleTest is half of what compiling a test takes, the checks of undefined behaviour that follow
  # every pointer the other half. The libraries keep all checks; a null pointer ends a test without them too.
  shoal_precompile(${name} <gmock/gmock.h> <gtest/gtest.h>)
  # A test's own code is not what a release is fast at, and is most of what there is to compile.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(SHOAL_SANITIZE MATCHES undefined)
    target_compile_options(${name} PRIVATE -fno-sanitize=null,alignment,vptr)
  endif()
  # Against hanging alone. What a test computes takes ten times as long under the thread sanitizer.
  set(timeout_s 300)
  if(SHOAL_SANITIZE)
    set(timeout_s 1800)
  endif()
  set(processors 1)
  if(ARG_LABELS STREQUAL process)
    set(processors ${SHOAL_ALL_PROCESSORS})
  endif()
  # Discovered by ctest, not by the build: a build without a test program still configures and tests the rest.
  gtest_discover_tests(
    ${name} DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES
    PROPERTIES LABELS ${ARG_LABELS} TIMEOUT ${timeout_s} PROCESSORS ${processors})
  add_dependencies(${ARG_LABELS}_tests ${name})
endfunction()
