// Products of bfloat16 pairs by the processor's instruction. It is enabled here and not by a flag, which older compilers
// refuse: they leave this out, and products stay in float32.
#include <immintrin.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>

#if defined(__clang__) && __clang_major__ >= 9
#pragma clang attribute push(__attribute__((target("avx512bf16"))), apply_to = function)
#define MUFURU_DOT
#elif !defined(__clang__) && __GNUC__ >= 10
#pragma GCC target("avx512bf16")
#define MUFURU_DOT
#endif
#define MUFURU_ARCH avx512bf16
#define MUFURU_BYTES 64
#include "pairs.h"

namespace mufuru {

extern const PairProducts* const instructed_pairs;
#if defined(MUFURU_DOT)
static constexpr PairProducts pairs = avx512bf16::make_pairs();
const PairProducts* const instructed_pairs = &pairs;
#else
const PairProducts* const instructed_pairs = nullptr;
#endif

}  // namespace mufuru

#if defined(__clang__) && defined(MUFURU_DOT)
#pragma clang attribute pop
#endif
