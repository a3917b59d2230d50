/* The second header alone: it brings the first, and guards itself. Compiled as strict C99, C11 and
 * C++11. */
#include <unisono/ddp.h>

size_t unisono_ddp_header_sizes(void);
size_t unisono_ddp_header_sizes(void) {
  uniReducerConfig_t reducer = UNI_REDUCER_CONFIG_INITIALIZER;
  uniSamplerConfig_t sampler = UNI_SAMPLER_CONFIG_INITIALIZER;
  return reducer.size + sampler.size + sizeof(uniParameter_t) + sizeof(uniBucket_t) +
         sizeof(uniReducerStats_t);
}
