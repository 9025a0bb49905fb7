// The products of csrc/pairs.h as NAME: lowered, or (with MUFURU_DOT) the code for AVX512_BF16 with its two instructions
// emulated, by Intel's pseudo-code or (with MUFURU_SIMDE) by SIMDe.
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>

#if defined(MUFURU_SIMDE)
#include <simde/x86/avx512/dpbf16.h>
#endif

#if defined(MUFURU_DOT)
static float of_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
static float without_denormals(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

static __m512 emulated_sum(__m512 sum, __m512bh a, __m512bh b) {
#if defined(MUFURU_SIMDE)
  simde__m512 to;
  simde__m512bh left, right;
  std::memcpy(&to, &sum, 64), std::memcpy(&left, &a, 64), std::memcpy(&right, &b, 64);
  to = simde_mm512_dpbf16_ps(to, left, right);
  std::memcpy(&sum, &to, 64);
#else
  float to[16];
  uint16_t left[32], right[32];
  std::memcpy(to, &sum, 64), std::memcpy(left, &a, 64), std::memcpy(right, &b, 64);
  for (int i = 0; i < 16; ++i) {
    to[i] = without_denormals(to[i]);
    for (int k : {2 * i + 1, 2 * i}) {
      const float x = without_denormals(of_bits(uint32_t(left[k]) << 16)), y = without_denormals(of_bits(uint32_t(right[k]) << 16));
      to[i] = without_denormals(std::fmaf(x, y, to[i]));
    }
  }
  std::memcpy(&sum, to, 64);
#endif
  return sum;
}

static __m256bh emulated_rounding(const float* from) {
  uint16_t halves[16];
  for (int i = 0; i < 16; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, 4);
    switch (std::fpclassify(from[i])) {
      case FP_ZERO:
      case FP_SUBNORMAL: halves[i] = bits >> 16 & 0x8000; break;
      case FP_INFINITE: halves[i] = bits >> 16; break;
      case FP_NAN: halves[i] = bits >> 16 | 0x40; break;
      default: halves[i] = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
  }
  __m256bh to;
  std::memcpy(&to, halves, sizeof to);
  return to;
}
#define _mm512_dpbf16_ps emulated_sum
#define _mm512_loadu_ps(from) (from)
#define _mm512_cvtneps_pbh emulated_rounding
#endif

#define MUFURU_ARCH NAME
#define MUFURU_BYTES 64
#include "pairs.h"

#define JOINED(a, b) a##b
#define PRODUCTS(name) JOINED(name, _products)
extern const mufuru::PairProducts PRODUCTS(NAME);
const mufuru::PairProducts PRODUCTS(NAME) = mufuru::NAME::make_pairs();
