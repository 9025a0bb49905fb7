#define MUFURU_ARCH avx512
#define MUFURU_BYTES 64
#define MUFURU_KERNELS kernels_avx512
#include "kernel.h"
