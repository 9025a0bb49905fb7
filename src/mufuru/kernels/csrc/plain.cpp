#if defined(__aarch64__) && defined(__GNUC__) && !defined(__clang__)
// scheduled before registers are given out, a tile's loads come first, and its accumulators no longer fit
#pragma GCC optimize("no-schedule-insns")
#endif
#define MUFURU_ARCH plain
#define MUFURU_BYTES 16
#define MUFURU_KERNELS kernels_plain
#include "kernel.h"
