# Where libtorch is, for this tree (ddp/torch) and for who uses its installation (unisonoConfig.cmake). From a python that has
# torch: UNISONO_TORCH_PYTHON, or without it that of tools/torch-env; or from Torch_DIR, the folder of a TorchConfig.cmake.
# torch's own CMake package is not asked: it wants a CUDA toolkit wherever torch was built with one, we need two libraries.

# Sets torch_root (lib/ and include/ are in it), torch_version, torch_python (if it was found by one), torch_cpu and torch_c10
# (libraries); or why_no_torch.
macro(unisono_find_libtorch)
  set(why_no_torch "")
  set(torch_python "${UNISONO_TORCH_PYTHON}")
  if(NOT torch_python AND NOT Torch_DIR)
    set(torch_home "$ENV{UNISONO_TORCH_HOME}")
    if(NOT torch_home)
      set(torch_home "$ENV{HOME}/.cache/unisono-torch")
    endif()
    if(EXISTS "${torch_home}/venv/bin/python")
      set(torch_python "${torch_home}/venv/bin/python")
    endif()
  endif()
  if(torch_python)
    execute_process(
      COMMAND "${torch_python}" -c "import importlib.util as u
print(u.find_spec('torch').submodule_search_locations[0], end='')"
      OUTPUT_VARIABLE torch_root ERROR_QUIET RESULT_VARIABLE torch_failed)
    if(torch_failed)
      set(why_no_torch "${torch_python} has no torch")
    endif()
  elseif(Torch_DIR)
    get_filename_component(torch_root "${Torch_DIR}/../../.." ABSOLUTE)
  else()
    set(why_no_torch "none found (tools/torch-env makes one)")
  endif()
  if(NOT why_no_torch)
    set(torch_cpu "${torch_root}/lib/libtorch_cpu.so")
    set(torch_c10 "${torch_root}/lib/libc10.so")
    set(torch_version "")
    foreach(header headeronly csrc/api/include/torch)  # as of 2.9, and before
      if(NOT torch_version AND EXISTS "${torch_root}/include/torch/${header}/version.h")
        file(STRINGS "${torch_root}/include/torch/${header}/version.h" torch_lines REGEX "VERSION_(MAJOR|MINOR|PATCH) [0-9]+$")
        string(REGEX MATCHALL "[0-9]+" torch_version "${torch_lines}")
        list(JOIN torch_version "." torch_version)
      endif()
    endforeach()
    if(NOT EXISTS "${torch_cpu}" OR NOT EXISTS "${torch_c10}" OR NOT torch_version)
      set(why_no_torch "${torch_root} has no libtorch_cpu, libc10 and headers")
    endif()
  endif()
endmacro()
