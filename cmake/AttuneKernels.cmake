# The file suffix is the instruction-set contract: name_avx512.cpp is compiled for AVX-512 and nothing else is.
function(attune_isa_flags)
  foreach(source IN LISTS ARGN)
    set(flags "")
    if(source MATCHES "_avx2\\.cpp$")
      set(flags -mavx2 -mfma -mf16c)
    elseif(source MATCHES "_avx512\\.cpp$")
      set(flags -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl)
    elseif(source MATCHES "_avx512_vnni\\.cpp$")
      set(flags -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni)
    elseif(source MATCHES "_avx512_bf16\\.cpp$")
      set(flags -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16
                -mavx512vbmi -mavx512vnni)
    elseif(source MATCHES "_amx\\.cpp$")
      set(flags -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16
                -mavx512vbmi -mavx512vnni -mamx-tile -mamx-bf16 -mamx-int8)
    endif()
    if(flags)
      if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        # _mm512_undefined_ps() inside g++ 12's own intrinsics (GCC bug 105593).
        list(APPEND flags -Wno-uninitialized)
        if(source MATCHES "_amx\\.cpp$")
          # The bodies on tiles are past g++'s limits for growth by inlining: their loops would call
          # what they unroll, and keep register tiles in memory.
          list(APPEND flags --param=large-function-growth=1000 --param=inline-unit-growth=400)
        endif()
      endif()
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${flags}")
    endif()
  endforeach()
endfunction()
