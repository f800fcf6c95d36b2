# SPDX-License-Identifier: Apache-2.0
# Every library that the project uses; all are Debian packages (see cmake/packages.txt).
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED COMPONENTS core)
find_package(SQLite3 REQUIRED)
find_package(PostgreSQL REQUIRED)
find_package(CURL 7.85 REQUIRED)
find_package(libjpeg-turbo CONFIG REQUIRED)
find_package(PNG REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
if(STARLING_TORCH)
  find_package(Torch REQUIRED)
endif()

# $<LINK_LIBRARY:if_needed,X>: a program of which no object calls X does not load it.
set(CMAKE_CXX_LINK_LIBRARY_USING_if_needed_SUPPORTED TRUE)
set(CMAKE_CXX_LINK_LIBRARY_USING_if_needed
    "LINKER:--push-state,--as-needed" "<LINK_ITEM>" "LINKER:--pop-state")
