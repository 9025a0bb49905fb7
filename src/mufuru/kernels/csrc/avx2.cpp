#define MUFURU_ARCH avx2
#define MUFURU_BYTES 32
#define MUFURU_KERNELS kernels_avx2
#include "kernel.h"
