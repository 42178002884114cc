# libattune_cuda.so: every CUDA backend, opened with dlopen by registry/loader.cpp. Absent where there is no nvcc.
#
# Where CUDA code lives (the CPU layers' globs leave these folders out):
#   src/device/cuda/              errors, memory, streams
#   src/kernels/<op>/smNN/*.cu    kernels; NN is the least compute capability they run on
#   src/kernels/<op>/cuda/*.cu    kernels that need nothing special
#   src/model/cuda/               a model's arithmetic outside attention; needs ATTUNE_TOOLS
#   src/backends/<name>/cuda/     what joins planner and kernels; cuda/backend.hpp declares
#                                 attune::backends::<name>::make_cuda, and its presence enlists the backend
#   src/conformance/cuda/         memory and graphs for the conformance suite; needs ATTUNE_TOOLS
#   src/bench/cuda/               clock, caches and ceilings for attune bench; needs ATTUNE_TOOLS
# It exports attune_backend_entry_v1 (include/attune/plugin.hpp), attune_model_ops_v1 (model/cuda_ops_entry.hpp),
# attune_conformance_memory_v1 (conformance/cuda_memory_entry.hpp) and attune_bench_machine_v1 (bench/cuda_machine_entry.hpp).

set(attune_cuda_found FALSE)
if(NOT ATTUNE_CUDA STREQUAL "off")
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  # Code for sm_90a alone (wgmma, setmaxnreg) is asked for per file below, so CMake adds no flag of its own.
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(attune_cuda_found TRUE)
  elseif(ATTUNE_CUDA STREQUAL "on")
    message(FATAL_ERROR "ATTUNE_CUDA=on, but no working nvcc was found: install the CUDA toolkit (13.0 or newer), "
                        "set CMAKE_CUDA_COMPILER, or configure with -DATTUNE_CUDA=off")
  endif()
endif()
if(NOT attune_cuda_found)
  message(STATUS "Attune: libattune_cuda.so is not built (ATTUNE_CUDA=${ATTUNE_CUDA})")
  return()
endif()

enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  # CMake 3.25 does not know how nvcc 13 spells C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()

# Flags of every CUDA translation unit. sm80 folders also run on later cards; sm90 folders are for Hopper alone.
set(attune_cuda_flags --expt-relaxed-constexpr -lineinfo -Xcompiler=-Wall,-Wextra,-fvisibility=hidden)
set(attune_cuda_sm90a "-gencode=arch=compute_90a,code=sm_90a")

file(GLOB_RECURSE attune_cuda_sources CONFIGURE_DEPENDS
     ${CMAKE_SOURCE_DIR}/src/device/cuda/*.cpp ${CMAKE_SOURCE_DIR}/src/device/cuda/*.cu
     ${CMAKE_SOURCE_DIR}/src/kernels/*.cu
     ${CMAKE_SOURCE_DIR}/src/backends/*.cu)
file(GLOB attune_cuda_backends CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backends/*/cuda/*.cpp)
list(APPEND attune_cuda_sources ${attune_cuda_backends} ${CMAKE_SOURCE_DIR}/src/backends/cuda_library.cu
     ${CMAKE_SOURCE_DIR}/src/backends/shared/linear_checks.cpp)
if(TARGET attune_model)
  file(GLOB attune_cuda_model CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/model/cuda/*.cpp)
  list(APPEND attune_cuda_sources ${attune_cuda_model})
endif()
if(TARGET attune_conformance)
  file(GLOB attune_cuda_conformance CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/conformance/cuda/*.cpp)
  list(APPEND attune_cuda_sources ${attune_cuda_conformance})
endif()
if(TARGET attune_bench)
  file(GLOB attune_cuda_bench CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/bench/cuda/*.cpp)
  list(APPEND attune_cuda_sources ${attune_cuda_bench})
endif()
list(REMOVE_DUPLICATES attune_cuda_sources)

# The backends of this library: the rows of the catalog that have a cuda/backend.hpp, in catalog order.
set(includes "// Written by cmake/AttuneCuda.cmake from src/backends/catalog.inc.\n")
set(entries "// Written by cmake/AttuneCuda.cmake from src/backends/catalog.inc.\n")
file(GLOB attune_cuda_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backends/*/cuda/backend.hpp)
file(STRINGS ${CMAKE_SOURCE_DIR}/src/backends/catalog.inc rows REGEX "^ATTUNE_BACKEND\\(")
foreach(row IN LISTS rows)
  string(REGEX REPLACE "^ATTUNE_BACKEND\\(([a-z0-9_]+)\\).*" "\\1" backend "${row}")
  if(${CMAKE_SOURCE_DIR}/src/backends/${backend}/cuda/backend.hpp IN_LIST attune_cuda_headers)
    string(APPEND includes "#include \"backends/${backend}/cuda/backend.hpp\"\n"
                           "#include \"backends/${backend}/descriptor.hpp\"\n")
    string(APPEND entries "{&backends::${backend}::kDescriptor, &backends::${backend}::make_cuda},\n")
  endif()
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/attune_cuda_includes.hpp CONTENT "${includes}" @ONLY)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/attune_cuda_backends.inc CONTENT "${entries}" @ONLY)

# attune_cuda_target(target): the flags and libraries of a target that holds CUDA code of ours.
function(attune_cuda_target target)
  set_target_properties(${target} PROPERTIES CUDA_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden
                        VISIBILITY_INLINES_HIDDEN ON CUDA_RUNTIME_LIBRARY Static)  # no libcudart before the library is opened
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${attune_cuda_flags}>)
  target_compile_definitions(${target} PRIVATE $<$<BOOL:${ATTUNE_CUDA_PORTABLE_FORM}>:ATTUNE_PORTABLE_FORM>)
  target_include_directories(${target} SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include
                                               ${CMAKE_BINARY_DIR}/generated)
  target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS} rt
                                          attune_warnings)
endfunction()

# attune_cuda_arch(sources...): the path decides the architectures a file is compiled for. Of a general kernel there are two
# forms (src/kernels/ptx/code_form.hpp): Hopper's machine code, and PTX for every other card, which the driver compiles when
# the kernel is first used, and keeps. ATTUNE_CUDA_MACHINE_CODE names cards to compile that form for ahead of time.
set(ATTUNE_CUDA_MACHINE_CODE "" CACHE STRING "cards besides Hopper that get machine code: 80;86;89;100;120")
option(ATTUNE_CUDA_PORTABLE_FORM "A test on Hopper: it runs what a card of 8.9 would, and nothing else" OFF)
set(attune_cuda_general -gencode=arch=compute_80,code=compute_80)
if(NOT ATTUNE_CUDA_PORTABLE_FORM)
  list(APPEND attune_cuda_general -gencode=arch=compute_90,code=sm_90)
endif()
foreach(arch IN LISTS ATTUNE_CUDA_MACHINE_CODE)
  if(NOT arch MATCHES "^[0-9]+$" OR arch STREQUAL "90")
    message(FATAL_ERROR "ATTUNE_CUDA_MACHINE_CODE: ${arch}: wanted cards other than Hopper, as 80;89")
  endif()
  list(APPEND attune_cuda_general "-gencode=arch=compute_80,code=sm_${arch}")
endforeach()
function(attune_cuda_arch)
  foreach(source IN LISTS ARGN)
    if(NOT source MATCHES "\\.cu$")
      continue()
    endif()
    if(source MATCHES "/sm90/")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${attune_cuda_sm90a}")
    else()
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${attune_cuda_general}")
    endif()
  endforeach()
endfunction()

attune_cuda_arch(${attune_cuda_sources})
# Kernels apart from what is plain C++, which the emulated card's tests take as it is.
set(attune_cuda_kernels ${attune_cuda_sources})
list(FILTER attune_cuda_kernels INCLUDE REGEX "\\.cu$")
set(attune_cuda_host ${attune_cuda_sources})
list(FILTER attune_cuda_host EXCLUDE REGEX "\\.cu$")
add_library(attune_cuda_objects OBJECT ${attune_cuda_kernels})
attune_cuda_target(attune_cuda_objects)
set_target_properties(attune_cuda_objects PROPERTIES RULE_LAUNCH_COMPILE ${CMAKE_SOURCE_DIR}/tools/ptxas_remarks.sh)
add_library(attune_cuda_host_objects OBJECT ${attune_cuda_host})
attune_cuda_target(attune_cuda_host_objects)
add_library(attune_cuda MODULE $<TARGET_OBJECTS:attune_cuda_objects> $<TARGET_OBJECTS:attune_cuda_host_objects>)
attune_cuda_target(attune_cuda)
set_target_properties(attune_cuda PROPERTIES LINKER_LANGUAGE CUDA)
target_link_libraries(attune_cuda PRIVATE attune_plan attune_attention)
if(TARGET attune_model)
  target_link_libraries(attune_cuda PRIVATE attune_model)
endif()
# Nothing of the static layers leaves the library: a plugin shares no symbol with its host.
target_link_options(attune_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,-Bsymbolic
                    -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/plugin.map)
set_target_properties(attune_cuda PROPERTIES LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/plugin.map)
install(TARGETS attune_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

# The conformance suite as one program, to be carried to a machine with a GPU.
if(TARGET attune_conformance)
  add_executable(attune_cuda_suite EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/cuda/suite_main.cpp
                                                    $<TARGET_OBJECTS:attune_cuda_objects>
                                                    $<TARGET_OBJECTS:attune_cuda_host_objects>)
  attune_cuda_target(attune_cuda_suite)
  set_target_properties(attune_cuda_suite PROPERTIES LINKER_LANGUAGE CUDA)
  target_link_libraries(attune_cuda_suite PRIVATE attune_conformance)
  target_link_options(attune_cuda_suite PRIVATE -Wl,--as-needed)
endif()

# Programs that time and check kernels by themselves, to be carried to a machine with a card: each is linked with what it uses
# of the library's objects and nothing else.
add_library(attune_cuda_archive STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:attune_cuda_objects>
                                                        $<TARGET_OBJECTS:attune_cuda_host_objects>)
foreach(bench cascade decode linear mla mma_prefill prefill)
  set(sources ${CMAKE_SOURCE_DIR}/bench/cuda/${bench}_bench.cu)
  if(bench STREQUAL prefill)
    list(APPEND sources ${CMAKE_SOURCE_DIR}/bench/cuda/prefill_variants.cu)
  endif()
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${attune_cuda_sm90a}")
  add_executable(attune_${bench}_bench EXCLUDE_FROM_ALL ${sources})
  attune_cuda_target(attune_${bench}_bench)
  target_include_directories(attune_${bench}_bench PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(attune_${bench}_bench PRIVATE attune_cuda_archive attune_kernels attune_plan attune_attention)
endforeach()
