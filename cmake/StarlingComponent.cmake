# SPDX-License-Identifier: Apache-2.0
# starling_component(NAME kube DEPENDS common_json ... [PROGRAM starling-worker] [APART] [COLD]
#                    [TEST_DEPENDS ...] [TEST_ALONE regex] [TEST_SHARDS n])
#
# One folder, one library, one namespace. Every *.cc of the folder belongs to the library, every
# *_test.cc is a test of it, main.cc is the program that PROGRAM names. Only what DEPENDS names is
# linked; `make check` holds the includes against cmake/layers.txt, since a forbidden call can
# still link through the program. Common headers are precompiled (cmake/precompiled). The sources of a
# folder are compiled ten at a time, in a third of the time: names in their anonymous namespaces must
# differ within the folder. A folder whose sources have compiler settings of their own, are linked
# one by one, or are each a piece of its own (tests/techniques) says APART. One whose code
# runs once a command or a request, and never in a step of training or for each job of thousands, says
# COLD: it is optimised less, and compiled in two thirds of the time.

# starling_together(OUT SOURCE...): files of which each includes ten of these sources. CMake's own unity
# builds name them by absolute paths, so that a compiler cache would never find them in another checkout.
function(starling_together out)
  set(files)
  list(LENGTH ARGN left)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set_source_files_properties(${ARGN} PROPERTIES HEADER_FILE_ONLY ON)
  while(left GREATER 0)
    list(SUBLIST ARGN 0 10 some)
    list(REMOVE_ITEM ARGN ${some})
    list(LENGTH ARGN left)
    set(text)
    foreach(source IN LISTS some)
      get_filename_component(name ${source} NAME)
      string(APPEND text "#include \"${folder}/${name}\"\n")
    endforeach()
    set(file ${CMAKE_CURRENT_BINARY_DIR}/together_${left}.cc)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
    list(APPEND files ${file})
  endwhile()
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# What reads what comes from outside: `make asan` builds the tests of these, and `make test` runs them
# under AddressSanitizer too. `make prove` has all folders.
set(STARLING_HOSTILE_INPUT api_rest api_spec api_yaml common_http common_json common_net common_storage common_tls
    trainer_checkpoint trainer_data trainer_image trainer_transport)
add_custom_target(hostile_input_tests)

# starling_reads_source_tree(SOURCE...): these files know the tree's path as STARLING_SOURCE_DIR, and no
# others of their folder: what knows it is found by no compiler cache that another checkout has filled.
function(starling_reads_source_tree)
  set_source_files_properties(${ARGN} PROPERTIES
                              COMPILE_DEFINITIONS STARLING_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endfunction()

# starling_gtest_program(PROGRAM [FILTER filter] [ALONE regex] [SHARDS n]): one test of ctest's that runs
# all cases of the program, but those that the filter leaves out. Cases share a process; those that ALONE
# names have one each, for what they do to theirs the others would not survive. With SHARDS they are so
# many tests, PROGRAM.1 and so on, which may run beside one another: for one that would take longer
# than its stage else.
function(starling_gtest_program program)
  cmake_parse_arguments(ARG "" "FILTER;ALONE;SHARDS" "" ${ARGN})
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(options --case-timeout=${STARLING_TEST_TIMEOUT})
  if(ARG_FILTER)
    list(APPEND options --filter=${ARG_FILTER})
  endif()
  if(ARG_ALONE)
    list(APPEND options --alone=${ARG_ALONE})
  endif()
  set(command ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/gtest_program.py
              $<TARGET_FILE:${program}> ${options})
  set(made)
  if(ARG_SHARDS)
    foreach(shard RANGE 1 ${ARG_SHARDS})
      add_test(NAME ${program}.${shard} COMMAND ${command} --shard=${shard}/${ARG_SHARDS})
      list(APPEND made ${program}.${shard})
    endforeach()
  else()
    add_test(NAME ${program} COMMAND ${command})
    set(made ${program})
  endif()
  # Each case has a limit of its own.
  set_tests_properties(${made} PROPERTIES TIMEOUT 7200)
endfunction()

function(starling_component)
  cmake_parse_arguments(ARG "APART;COLD" "NAME;PROGRAM;TEST_ALONE;TEST_SHARDS" "DEPENDS;TEST_DEPENDS" ${ARGN})
  # GCC 12 crashes on some files that read a precompiled header under a sanitizer.
  set(precompiled TRUE)
  if(STARLING_SANITIZE)
    set(precompiled FALSE)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS *.cc *.h)
  file(GLOB tests CONFIGURE_DEPENDS *_test.cc)
  file(GLOB mains CONFIGURE_DEPENDS main.cc)
  list(REMOVE_ITEM sources ${tests} ${mains})
  set(implementations ${sources})
  list(FILTER implementations INCLUDE REGEX "\\.cc$")
  list(LENGTH implementations count)
  set(together FALSE)
  if(NOT ARG_APART AND count GREATER 1)
    set(together TRUE)
    starling_together(files ${implementations})
    list(APPEND sources ${files})
  endif()
  if(implementations)
    add_library(${ARG_NAME} STATIC ${sources})
    target_link_libraries(${ARG_NAME} PUBLIC ${ARG_DEPENDS} PRIVATE starling_warnings)
    target_include_directories(${ARG_NAME} PUBLIC ${PROJECT_SOURCE_DIR})
    if(precompiled)
      target_precompile_headers(${ARG_NAME} REUSE_FROM starling_precompiled)
    endif()
  else()
    add_library(${ARG_NAME} INTERFACE)
    target_link_libraries(${ARG_NAME} INTERFACE ${ARG_DEPENDS})
    target_include_directories(${ARG_NAME} INTERFACE ${PROJECT_SOURCE_DIR})
  endif()
  if(ARG_COLD)
    target_compile_options(${ARG_NAME} PRIVATE ${STARLING_COLD_OPTIONS})
  endif()
  if(together)
    # What GCC cannot follow through so many inlined functions it takes for uninitialised.
    target_compile_options(${ARG_NAME} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endif()
  if(ARG_PROGRAM AND mains)
    add_executable(${ARG_PROGRAM} ${mains})
    target_link_libraries(${ARG_PROGRAM} PRIVATE ${ARG_NAME} starling_warnings)
    target_compile_options(${ARG_PROGRAM} PRIVATE ${STARLING_COLD_OPTIONS})
  endif()
  if(tests)
    add_executable(${ARG_NAME}_test ${tests})
    target_link_libraries(${ARG_NAME}_test PRIVATE ${ARG_NAME} ${ARG_TEST_DEPENDS} starling_warnings
                          GTest::gmock_main)
    target_compile_options(${ARG_NAME}_test PRIVATE ${STARLING_COLD_OPTIONS})
    if(precompiled)
      target_precompile_headers(${ARG_NAME}_test REUSE_FROM starling_precompiled_test)
    endif()
    # ApiServer.* is run by a test of its own beside an API server, S3* beside an object store; the
    # other is for people.
    starling_gtest_program(${ARG_NAME}_test ALONE "${ARG_TEST_ALONE}" SHARDS "${ARG_TEST_SHARDS}"
                           FILTER "-ApiServer.*:S3/*:S3Store.*:*.OneHistoryIsPrintedOnRequest")
    if(ARG_NAME IN_LIST STARLING_HOSTILE_INPUT)
      set_tests_properties(${ARG_NAME}_test PROPERTIES LABELS hostile_input)
      add_dependencies(hostile_input_tests ${ARG_NAME}_test)
    endif()
  endif()
endfunction()
