# attune_layer(name DEPENDS layers-and-libraries...): src/<name>/**.cpp becomes the static library attune_<name>.
# A layer without a .cpp is an interface library, so that the dependency order holds from the first day.
function(attune_layer name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/cuda/|/sm[0-9]+/|/cli/main\\.cpp$")
  set(depends "")
  foreach(dependency IN LISTS ARG_DEPENDS)
    if(TARGET attune_${dependency})
      list(APPEND depends attune_${dependency})
    else()
      list(APPEND depends ${dependency})
    endif()
  endforeach()
  if(sources)
    attune_isa_flags(${sources})
    add_library(attune_${name} STATIC ${sources})
    target_include_directories(attune_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include
                                                     ${CMAKE_BINARY_DIR}/generated)
    target_link_libraries(attune_${name} PUBLIC ${depends} PRIVATE attune_warnings)
  else()
    add_library(attune_${name} INTERFACE)
    target_include_directories(attune_${name} INTERFACE ${CMAKE_SOURCE_DIR}/src
                               ${CMAKE_SOURCE_DIR}/include ${CMAKE_BINARY_DIR}/generated)
    target_link_libraries(attune_${name} INTERFACE ${depends})
  endif()
endfunction()

# libattune: the layers up to registry and cache, for programs that embed attention.
function(attune_library)
endfunction()

# The program.
function(attune_program)
  if(EXISTS ${CMAKE_SOURCE_DIR}/src/cli/main.cpp)
    add_executable(attune ${CMAKE_SOURCE_DIR}/src/cli/main.cpp)
    target_link_libraries(attune PRIVATE attune_cli attune_warnings)
    target_compile_definitions(attune PRIVATE ATTUNE_VERSION="${PROJECT_VERSION}")
  endif()
endfunction()
