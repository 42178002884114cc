# Warnings are errors, in every target of ours.
add_library(attune_warnings INTERFACE)
target_compile_options(attune_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -Wno-psabi>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports false positives of these two inside its own library at -O3 (GCC bugs 105562, 105651).
  target_compile_options(attune_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -Wno-maybe-uninitialized -Wno-uninitialized>)
endif()
if(ATTUNE_SANITIZE)
  add_compile_options(-fsanitize=${ATTUNE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${ATTUNE_SANITIZE})
endif()
