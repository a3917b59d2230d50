// The shared library takes its code from the folders; CMake wants one source of its own.
