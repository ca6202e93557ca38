# shoal_library(NAME SOURCES... [PUBLIC libs...] [PRIVATE libs...]): a static library a folder, warnings on.
# shoal_test(NAME SOURCES... [LIBS libs...] [LABELS unit|process] [SHARDS n] [EACH_CASE cases]): a
# GoogleTest program.
#
# A test is labelled `unit` (the default: within one process; runs under the sanitizers too) or `process`
# (starts real nodes and trainers). The target unit_tests builds the programs of the first kind, process_tests
# those of the second with all that they start.
#
# A unit program is one ctest test, or SHARDS of them that share its cases. EACH_CASE is a filter of cases
# that are ctest tests of their own: a case that calls GTEST_SKIP must be, so that ctest shows that it was
# skipped. Every case of a process test is.

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
if(SHOAL_BATCHES)
  # gcc takes what is local to a source of a batch for what a header would give to several files.
  target_compile_options(shoal_flags INTERFACE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>")
endif()
if(SHOAL_WERROR)
  target_compile_options(
    shoal_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Werror>"
                          "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
endif()
if(SHOAL_SANITIZE)
  add_compile_options(-fsanitize=${SHOAL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SHOAL_SANITIZE})
  if(SHOAL_SANITIZE MATCHES undefined)
    # They double the compile time, and the address sanitizer reports most of what they would.
    add_compile_options(-fno-sanitize=null,object-size,pointer-overflow,vptr)
  endif()
  # The compilers' own macros differ.
  if(SHOAL_SANITIZE MATCHES address)
    add_compile_definitions(SHOAL_ADDRESS_SANITIZER=1)
  elseif(SHOAL_SANITIZE MATCHES thread)
    add_compile_definitions(SHOAL_THREAD_SANITIZER=1)
  endif()
endif()

# Compiles the sources of a target in batches, each as one file that includes some 150 kB of them in the order
# listed: most of the time goes into headers and templates that all of them need. File-local names are
# therefore unique within a library or program. A source with options of its own is compiled alone, as is
# every source if SHOAL_BATCHES is OFF (docs/decisions/046-sources-are-compiled-in-batches.md).
set(SHOAL_BATCH_BYTES 150000)
function(shoal_compile_in_batches target)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  if(NOT SHOAL_BATCHES OR NOT sources)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  set(sizes "")
  foreach(source IN LISTS sources)
    get_filename_component(path "${source}" ABSOLUTE)
    file(SIZE "${path}" bytes)
    list(APPEND sizes ${bytes})
  endforeach()
  # Batches have about the same size, so that no processor waits for the last one.
  string(REPLACE ";" "+" total "${sizes}")
  math(EXPR total "${total}")
  math(EXPR batches "(${total} + ${SHOAL_BATCH_BYTES} - 1) / ${SHOAL_BATCH_BYTES}")
  set(before 0)
  foreach(source bytes IN ZIP_LISTS sources sizes)
    math(EXPR batch "(${before} + ${bytes} / 2) * ${batches} / ${total}")
    math(EXPR before "${before} + ${bytes}")
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "batch_${batch}")
  endforeach()
endfunction()

# For a target that waits for disks, peers and people more than it computes.
function(shoal_optimize_lightly target)
  if(SHOAL_LIGHT_OPTION)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${SHOAL_LIGHT_OPTION}>)
  endif()
endfunction()

function(shoal_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(
    ${name} PUBLIC "$<BUILD_INTERFACE:${SHOAL_ROOT}>"
                   "$<BUILD_INTERFACE:${SHOAL_ROOT}/include>")
  target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE} "$<BUILD_INTERFACE:shoal_flags>")
  shoal_compile_in_batches(${name})
endfunction()

if(SHOAL_TESTS)
  include(GoogleTest)
  cmake_host_system_information(RESULT SHOAL_ALL_PROCESSORS QUERY NUMBER_OF_LOGICAL_CORES)
  set(SHOAL_PEERS "${PROJECT_SOURCE_DIR}/build/venv") # tools/python_environment
  add_custom_target(unit_tests)
  add_custom_target(process_tests)
endif()

function(shoal_add_shards name shards without timeout_s)
  if(NOT shards)
    set(shards 1)
  endif()
  foreach(shard RANGE 1 ${shards})
    set(test ${name})
    if(shards GREATER 1)
      set(test ${name}.${shard}_of_${shards})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${test} COMMAND ${name} --gtest_brief=1 "--gtest_filter=-${without}")
    set_tests_properties(
      ${test} PROPERTIES LABELS unit TIMEOUT ${timeout_s} COST ${shards}
                         FAIL_REGULAR_EXPRESSION "SKIPPED" # it needs EACH_CASE
                         ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

function(shoal_test name)
  cmake_parse_arguments(ARG "" "SHARDS;EACH_CASE" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_LABELS MATCHES "^(unit|process)$")
    message(FATAL_ERROR "${name}: a test is labelled unit or process, not '${ARG_LABELS}'")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest_main shoal_flags)
  target_include_directories(${name} PRIVATE "${SHOAL_ROOT}")
  shoal_compile_in_batches(${name})
  # A test's own code is not what a release is fast at, and is most of what there is to compile.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-Og>)
  if(SHOAL_SANITIZE)
    # Compiles in half the time. Tests with shards compute, and would take twice as long to run.
    if(NOT ARG_SHARDS)
      target_compile_options(${name} PRIVATE -O0)
    endif()
    if(SHOAL_SANITIZE MATCHES undefined)
      target_compile_options(${name} PRIVATE -fno-sanitize=alignment)
    endif()
  endif()
  # Against hanging alone. What a test computes takes ten times as long under the thread sanitizer.
  set(timeout_s 600)
  if(SHOAL_SANITIZE)
    set(timeout_s 1800)
  endif()
  if(ARG_LABELS STREQUAL process)
    set(ARG_EACH_CASE "*")
  endif()
  if(ARG_EACH_CASE)
    # Discovered by ctest, not by the build: a build without a test program still configures and tests the
    # rest.
    gtest_discover_tests(
      ${name} TEST_FILTER "${ARG_EACH_CASE}" DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES
      PROPERTIES LABELS ${ARG_LABELS} TIMEOUT ${timeout_s})
  endif()
  if(NOT ARG_EACH_CASE STREQUAL "*")
    shoal_add_shards(${name} "${ARG_SHARDS}" "${ARG_EACH_CASE}" ${timeout_s})
  endif()
  add_dependencies(${ARG_LABELS}_tests ${name})
endfunction()
