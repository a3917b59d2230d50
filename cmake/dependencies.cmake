# The well-kept libraries we stand on; docs/dependencies.md says why each.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
