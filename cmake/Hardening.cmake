# What makes a memory error end the program instead of obeying an attacker: canaries in frames with arrays, checked calls of
# libc, addresses that vary, tables of addresses that are read-only before main, and marked targets of indirect jumps in our
# objects. The linker keeps that mark only if all that is linked has it, and Debian 12's C library, gRPC and RocksDB do not: the
# processor checks nothing until they do. tests/tidy/hardening_test.py reads the programs for it. Sanitizer builds have checks of
# their own.
if(HOTBED_SANITIZE STREQUAL "")
  include(CheckCXXCompilerFlag)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fstack-protector-strong>)
  check_cxx_compiler_flag(-fcf-protection=full HOTBED_HAS_CF_PROTECTION)
  if(HOTBED_HAS_CF_PROTECTION)
    add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fcf-protection=full>)
  endif()
  # Needs an optimised build; -U because some compilers come with a value of their own.
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-U_FORTIFY_SOURCE> $<$<COMPILE_LANGUAGE:C,CXX>:-D_FORTIFY_SOURCE=2>)
  endif()
  add_link_options(LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
endif()
