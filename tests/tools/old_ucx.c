/* A UCX of the past, as far as uni-info looks: libucp.so.0 of version 1.9. */
__attribute__((visibility("default"))) void ucp_get_version(unsigned* major, unsigned* minor,
                                                            unsigned* release);

void ucp_get_version(unsigned* major, unsigned* minor, unsigned* release) {
  *major = 1;
  *minor = 9;
  *release = 0;
}
