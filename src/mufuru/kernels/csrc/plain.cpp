#define MUFURU_ARCH plain
#define MUFURU_BYTES 16
#define MUFURU_KERNELS kernels_plain
#include "kernel.h"
