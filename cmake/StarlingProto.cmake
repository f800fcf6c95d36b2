# SPDX-License-Identifier: Apache-2.0
# starling_proto(NAME api_proto PROTOS a.proto ... [GRPC b.proto ...])
#
# Compiles the protos (paths under api/proto), with gRPC services for those named after GRPC.
# Generated code is not ours to lint: it is compiled without our warnings.
function(starling_proto)
  cmake_parse_arguments(ARG "" "NAME" "PROTOS;GRPC" ${ARGN})
  set(root ${PROJECT_SOURCE_DIR}/api/proto)
  set(out ${CMAKE_BINARY_DIR}/generated)
  file(MAKE_DIRECTORY ${out})
  set(sources)
  foreach(proto ${ARG_PROTOS} ${ARG_GRPC})
    string(REGEX REPLACE "\\.proto$" "" stem ${proto})
    set(outputs ${out}/${stem}.pb.cc ${out}/${stem}.pb.h)
    set(flags --cpp_out=${out})
    if(proto IN_LIST ARG_GRPC)
      list(APPEND outputs ${out}/${stem}.grpc.pb.cc ${out}/${stem}.grpc.pb.h)
      list(APPEND flags --grpc_out=${out} --plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>)
    endif()
    add_custom_command(OUTPUT ${outputs}
      COMMAND protobuf::protoc -I${root} ${flags} ${root}/${proto}
      DEPENDS ${root}/${proto} VERBATIM)
    list(APPEND sources ${outputs})
  endforeach()
  add_library(${ARG_NAME} STATIC ${sources})
  set_target_properties(${ARG_NAME} PROPERTIES UNITY_BUILD OFF)  # each defines the same static names
  target_include_directories(${ARG_NAME} SYSTEM PUBLIC ${out})
  target_link_libraries(${ARG_NAME} PUBLIC protobuf::libprotobuf)
  if(ARG_GRPC)
    target_link_libraries(${ARG_NAME} PUBLIC gRPC::grpc++)
  endif()
endfunction()
