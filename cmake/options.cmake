# Warnings, sanitizers and the one function by which folders add their code.
add_library(unisono_options INTERFACE)
target_include_directories(unisono_options INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_compile_options(unisono_options INTERFACE
  -Wall -Wextra -Werror -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> -Wpointer-arith -ffp-contract=off -Wno-missing-field-initializers
  # gcc 12 sees uninitialised std::string buffers where there are none.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-error=maybe-uninitialized>
  $<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual>)
if(UNISONO_SANITIZE)
  # gcc's -Werror and sanitizers disagree on a few flow warnings in standard headers.
  target_compile_options(unisono_options INTERFACE "-fsanitize=${UNISONO_SANITIZE}" -fno-omit-frame-pointer -g1)
  if(UNISONO_SANITIZE MATCHES "undefined")
    # Its check of vtables opens a pipe to test memory, and takes a process without descriptors for a broken object.
    target_compile_options(unisono_options INTERFACE -fno-sanitize=vptr)
  endif()
  target_link_options(unisono_options INTERFACE "-fsanitize=${UNISONO_SANITIZE}")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(unisono_options INTERFACE -Wno-error=maybe-uninitialized)
  endif()
  if(UNISONO_SANITIZE MATCHES "thread")
    target_compile_definitions(unisono_options INTERFACE UNISONO_TSAN=1)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(unisono_options INTERFACE -Wno-error=tsan)
    endif()
  else()
    target_compile_options(unisono_options INTERFACE -fno-sanitize-recover=all)
  endif()
endif()
if(UNISONO_COVERAGE)
  target_compile_options(unisono_options INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(unisono_options INTERFACE --coverage)
endif()

# unisono_folder(NAME sources... DEPENDS libs...): a static library of one folder's code, for the shared library, the
# tools and the tests.
function(unisono_folder name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(unisono_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(unisono_${name} PUBLIC unisono_options ${ARG_DEPENDS})
endfunction()
