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

# libattune.so: the layers up to registry and cache, for programs that embed attention. It exports the public headers' names
# (cmake/attune.map) and nothing else.
function(attune_library)
  include(CMakePackageConfigHelpers)
  # All of its code comes from the layers' archives; CMake wants a source none the less.
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/attune_shared.cpp CONTENT "" @ONLY)
  add_library(attune_shared SHARED ${CMAKE_BINARY_DIR}/generated/attune_shared.cpp)
  set_target_properties(attune_shared PROPERTIES OUTPUT_NAME attune EXPORT_NAME attune LINKER_LANGUAGE CXX
                        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                        LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/attune.map)
  set(archives "")
  foreach(layer device tensor attention kernels plan backends registry cache)
    list(APPEND archives $<TARGET_FILE:attune_${layer}>)
    add_dependencies(attune_shared attune_${layer})
  endforeach()
  target_link_libraries(attune_shared PRIVATE -Wl,--whole-archive ${archives} -Wl,--no-whole-archive
                                              DNNL::dnnl Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(attune_shared PRIVATE
                      -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/attune.map)
  target_include_directories(attune_shared INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                                                     $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(attune_shared INTERFACE cxx_std_20)

  install(TARGETS attune_shared EXPORT attuneTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/attune DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/attune)
  install(EXPORT attuneTargets NAMESPACE attune:: DESTINATION ${package})
  configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/attuneConfig.cmake.in
                                ${CMAKE_BINARY_DIR}/attuneConfig.cmake INSTALL_DESTINATION ${package})
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/attuneConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/attuneConfig.cmake ${CMAKE_BINARY_DIR}/attuneConfigVersion.cmake
          DESTINATION ${package})
  # The installed tree may be moved: the prefix is told from where the .pc file lies.
  file(RELATIVE_PATH ATTUNE_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/attune.pc.in ${CMAKE_BINARY_DIR}/attune.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/attune.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

# The program.
function(attune_program)
  if(EXISTS ${CMAKE_SOURCE_DIR}/src/cli/main.cpp)
    add_executable(attune ${CMAKE_SOURCE_DIR}/src/cli/main.cpp)
    target_link_libraries(attune PRIVATE attune_cli attune_warnings)
    target_compile_definitions(attune PRIVATE ATTUNE_VERSION="${PROJECT_VERSION}")
    install(TARGETS attune RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endfunction()
