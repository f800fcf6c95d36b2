# SPDX-License-Identifier: Apache-2.0
# The compiler's settings, the same for every component.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_OPTIMIZE_DEPENDENCIES ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# Everywhere, or files that link no thread library could not read the precompiled headers.
add_compile_options(-pthread)

# Optimised for building too: the loops that matter are compiled with -O3 where they stand.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# What is compiled more often than it runs is hardly optimised: tests (but what they call is), the start
# of programs, and folders that say COLD.
set(STARLING_COLD_OPTIONS $<$<CONFIG:Release>:-O1>)

find_program(CCACHE ccache)
if(CCACHE)
  # One cache serves every build folder: paths are made relative to it. A header that changes while a
  # file is compiled keeps the object out of the cache: it would be found for the changed header.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros
      CCACHE_MAXSIZE=10G CCACHE_PCH_EXTSUM=1 ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(starling_warnings INTERFACE)
target_compile_options(starling_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wconversion;-Wno-sign-conversion;-Wformat=2>
  # GCC 12 sees overlapping copies inside std::string where there are none (its bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # A source that is compiled with others of its folder looks like a header to GCC.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
if(STARLING_WERROR)
  target_compile_options(starling_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()

# Seconds that one test may take; a sanitizer makes it ten times slower.
set(STARLING_TEST_TIMEOUT 120)
if(STARLING_SANITIZE)
  set(STARLING_TEST_TIMEOUT 900)
  add_compile_options(-fsanitize=${STARLING_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${STARLING_SANITIZE})
  # Among the sanitizers' own calls GCC loses track of what an empty std::optional initialises.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  if(STARLING_SANITIZE STREQUAL thread)
    # Protobuf's headers lay out map fields otherwise when they see this macro; Debian's library,
    # which our objects are passed to, was built without it.
    add_compile_options(-U__SANITIZE_THREAD__ -DSTARLING_THREAD_SANITIZER)
  endif()
else()
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong>
                      $<$<CONFIG:Release>:-D_GLIBCXX_ASSERTIONS>)
  add_link_options(-Wl,-z,relro,-z,now)
endif()
