# What is installed: the shared libraries, a header each, the programs, and what find_package and pkg-config read. The whole
# is relocatable. docs/abi.md has the rule of SONAME and versions.
if(TARGET unisono)
  include(CMakePackageConfigHelpers)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/unisono)
  install(TARGETS unisono EXPORT unisonoTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES include/unisono/unisono.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/unisono)
  if(TARGET unisono_ddp)
    set_target_properties(unisono_ddp PROPERTIES EXPORT_NAME ddp INSTALL_RPATH "$ORIGIN")
    install(TARGETS unisono_ddp EXPORT unisonoTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(FILES include/unisono/ddp.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/unisono)
  endif()
  install(EXPORT unisonoTargets NAMESPACE unisono:: DESTINATION ${package_dir})
  configure_package_config_file(cmake/unisonoConfig.cmake.in ${PROJECT_BINARY_DIR}/unisonoConfig.cmake
    INSTALL_DESTINATION ${package_dir})
  # Before 1.0 a minor version may break the interface.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/unisonoConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/unisonoConfig.cmake ${PROJECT_BINARY_DIR}/unisonoConfigVersion.cmake
    DESTINATION ${package_dir})

  file(RELATIVE_PATH UNISONO_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" UNISONO_PC_PREFIX "${UNISONO_PC_PREFIX}")
  set(pc_names unisono)
  if(TARGET unisono_ddp)
    list(APPEND pc_names unisono-ddp)
  endif()
  foreach(name ${pc_names})
    configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  endforeach()
endif()

foreach(program comm-bench uni-run uni-info uni-plan ddp-digits)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET ddp-digits)  # its data are in the program
  install(FILES ddp/examples/digits/DATA_LICENCE.md DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME digits-licence.md)
endif()
