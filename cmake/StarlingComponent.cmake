# SPDX-License-Identifier: Apache-2.0
# starling_component(NAME kube DEPENDS common_json ... [PROGRAM starling-worker] [OWN_PRECOMPILED]
#                    [TOGETHER])
#
# One folder, one library, one namespace. Every *.cc of the folder belongs to the library, every
# *_test.cc is a test of it, main.cc is the program that PROGRAM names. Only what DEPENDS names is
# linked; `make check` holds the includes against cmake/layers.txt, since a forbidden call can
# still link through the program. Common headers are precompiled (cmake/precompiled) unless the folder
# says OWN_PRECOMPILED. Sources of a folder that says TOGETHER are compiled ten at a time, in a third
# of the time: names in their anonymous namespaces must differ within the folder.

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

function(starling_component)
  cmake_parse_arguments(ARG "OWN_PRECOMPILED;TOGETHER" "NAME;PROGRAM" "DEPENDS;TEST_DEPENDS" ${ARGN})
  # GCC 12 crashes on some files that read a precompiled header under a sanitizer.
  set(precompiled TRUE)
  if(ARG_OWN_PRECOMPILED OR STARLING_SANITIZE)
    set(precompiled FALSE)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS *.cc *.h)
  file(GLOB tests CONFIGURE_DEPENDS *_test.cc)
  file(GLOB mains CONFIGURE_DEPENDS main.cc)
  list(REMOVE_ITEM sources ${tests} ${mains})
  list(FILTER sources INCLUDE REGEX ".*")
  set(implementations ${sources})
  list(FILTER implementations INCLUDE REGEX "\\.cc$")
  if(ARG_TOGETHER)
    starling_together(together ${implementations})
    list(APPEND sources ${together})
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
  if(ARG_TOGETHER)
    # What GCC cannot follow through so many inlined functions it takes for uninitialised.
    target_compile_options(${ARG_NAME} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endif()
  if(ARG_PROGRAM AND mains)
    add_executable(${ARG_PROGRAM} ${mains})
    target_link_libraries(${ARG_PROGRAM} PRIVATE ${ARG_NAME} starling_warnings)
  endif()
  if(tests)
    add_executable(${ARG_NAME}_test ${tests})
    target_link_libraries(${ARG_NAME}_test PRIVATE ${ARG_NAME} ${ARG_TEST_DEPENDS} starling_warnings
                          GTest::gmock_main)
    target_compile_options(${ARG_NAME}_test PRIVATE ${STARLING_TEST_OPTIONS})
    if(precompiled)
      target_precompile_headers(${ARG_NAME}_test REUSE_FROM starling_precompiled_test)
    endif()
    # ApiServer.* is run by a test of its own beside an API server, S3* beside an object store; the
    # other is for people.
    # A program that links libtorch takes seconds to list its tests where other work keeps the cores
    # busy; the default limit of 5 s would end the whole stage before its first test.
    gtest_discover_tests(${ARG_NAME}_test DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
                         TEST_FILTER "-ApiServer.*:S3/*:S3Store.*:*.OneHistoryIsPrintedOnRequest"
                         PROPERTIES TIMEOUT ${STARLING_TEST_TIMEOUT})
  endif()
endfunction()
