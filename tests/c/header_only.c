/* The header alone, twice: it needs no other, and guards itself. Compiled as strict C99, C11 and
 * C++11. */
#include <unisono/unisono.h>

size_t unisono_header_sizes(void);
size_t unisono_header_sizes(void) {
  uniConfig_t config = UNI_CONFIG_INITIALIZER;
  return config.size + sizeof(uniUniqueId) + sizeof(uniCommInfo_t) + sizeof(uniTransportInfo_t);
}
