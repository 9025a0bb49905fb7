// Vectors of one instruction set, and exp, tanh and sigmoid on them.
#pragma once
#include <cstdint>
#include <cstring>
#include <cstdlib>
#include <limits>
#include <type_traits>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace mufuru {
namespace MUFURU_ARCH {

template <class T>
struct Lanes {
  static constexpr int64_t n = MUFURU_BYTES / sizeof(T);
  using Int = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  typedef T V __attribute__((vector_size(MUFURU_BYTES)));
  // the same anywhere in memory; typed, so that the compiler knows that a store changes no pointer and no size
  typedef T Unaligned __attribute__((vector_size(MUFURU_BYTES), aligned(sizeof(T))));
  typedef Int I __attribute__((vector_size(MUFURU_BYTES)));
};
template <class T>
using V = typename Lanes<T>::V;
template <class T>
using I = typename Lanes<T>::I;

template <class T>
inline V<T> load(const T* from) {
  return *reinterpret_cast<const typename Lanes<T>::Unaligned*>(from);
}
template <class T>
inline void store(T* to, V<T> x) {
  *reinterpret_cast<typename Lanes<T>::Unaligned*>(to) = x;
}
// the first n lanes; the others read as 0 and are not written
template <class T>
inline V<T> load(const T* from, int64_t n) {
  if (n >= Lanes<T>::n) return load(from);
#if defined(__AVX512F__) && MUFURU_BYTES == 64
  const auto lanes = (1u << n) - 1;
  if constexpr (sizeof(T) == 4) return reinterpret_cast<V<T>>(_mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes), from));
  else return reinterpret_cast<V<T>>(_mm512_maskz_loadu_pd(static_cast<__mmask8>(lanes), from));
#else
  V<T> x{};
#if defined(__AVX2__)
  if constexpr (sizeof(V<T>) == 32 && sizeof(T) == 4) {
    const I<T> lane = {0, 1, 2, 3, 4, 5, 6, 7};
    return __builtin_ia32_maskloadps256(reinterpret_cast<const typename Lanes<T>::V*>(from), lane < static_cast<int32_t>(n));
  }
#endif
  if constexpr (sizeof(V<T>) == 16) {  // lane by lane: no call, and not through memory
#pragma GCC unroll 4
    for (int64_t l = 0; l < Lanes<T>::n - 1; ++l)
      if (l < n) x[l] = from[l];
  } else {
    std::memcpy(&x, from, n * sizeof(T));
  }
  return x;
#endif
}
template <class T>
inline void store(T* to, V<T> x, int64_t n) {
  if (n >= Lanes<T>::n) return store(to, x);
#if defined(__AVX512F__) && MUFURU_BYTES == 64
  const auto lanes = (1u << n) - 1;
  if constexpr (sizeof(T) == 4) _mm512_mask_storeu_ps(to, static_cast<__mmask16>(lanes), reinterpret_cast<__m512>(x));
  else _mm512_mask_storeu_pd(to, static_cast<__mmask8>(lanes), reinterpret_cast<__m512d>(x));
#else
  if constexpr (sizeof(V<T>) == 16) {
#pragma GCC unroll 4
    for (int64_t l = 0; l < Lanes<T>::n - 1; ++l)
      if (l < n) to[l] = x[l];
    return;
  }
  const T* from = reinterpret_cast<const T*>(&x);
#pragma GCC unroll 8
  for (int64_t part = Lanes<T>::n / 2; part > 0; part /= 2) {  // pieces of known sizes: no call
    if (!(n & part)) continue;
    std::memcpy(to, from, part * sizeof(T));
    to += part, from += part;
  }
#endif
}
// the same where all lanes are meant at compile time: no branch
template <bool whole, class T>
inline V<T> load(const T* from, int64_t n) {
  return whole ? load(from) : load(from, n);
}
template <bool whole, class T>
inline void store(T* to, V<T> x, int64_t n) {
  whole ? store(to, x) : store(to, x, n);
}
// whether numbers can be stored past the caches, and the end of such stores: what comes after it sees them
#if defined(__AVX2__) && MUFURU_BYTES >= 32
constexpr bool kStreams = true;
inline void end_streams() { _mm_sfence(); }
#else
constexpr bool kStreams = false;
inline void end_streams() {}
#endif
// the first n lanes, past the caches if `stream`: then all of them, to where a vector may lie
template <bool stream, class T>
inline void store_past(T* to, V<T> x, int64_t n) {
  if constexpr (stream && kStreams) {
#if defined(__AVX512F__) && MUFURU_BYTES == 64
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)x);
#elif defined(__AVX2__) && MUFURU_BYTES >= 32
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)x);
#endif
  } else {
    store(to, x, n);
  }
}
template <class T>
inline V<T> splat(T x) {
  return x - V<T>{};  // not 0 + x, which would turn -0 into 0 and so cost an addition
}

// a > b ? a : b, so that a NaN in b goes through: one instruction where there is one
template <class T>
inline V<T> higher(V<T> a, V<T> b) {
#if defined(__AVX2__)
  if constexpr (sizeof(V<T>) == 32 && sizeof(T) == 4) return __builtin_ia32_maxps256(a, b);
  if constexpr (sizeof(V<T>) == 32 && sizeof(T) == 8) return __builtin_ia32_maxpd256(a, b);
#endif
  return a > b ? a : b;
}

constexpr int64_t kLine = 64;  // bytes of a line of the cache

// Zeroed memory that begins a line of the cache: a vector that crosses two lines takes twice as long to load. A template
// of the standard library could be linked from another instruction set's object file; code in this namespace cannot.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t n) { take(n); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { std::free(memory_); }
  void take(int64_t n) {
    memory_ = std::calloc(n * sizeof(T) + kLine, 1);
    if (!memory_) std::abort();  // a few rows: if these do not fit, nothing does
    data_ = reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory_) + kLine - 1) / kLine * kLine);
  }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }
  T* data() { return data_; }

 private:
  void* memory_ = nullptr;
  T* data_ = nullptr;
};

constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

template <class T>
struct Exp;
template <>
struct Exp<float> {
  static constexpr int degree = 6, fraction = 5, mantissa = 23, bias = 127;
  static constexpr float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number, in the lowest bits
  static constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  static constexpr float zero = -88.0f, highest = 88.376f;
  // of r^k; e^r is 1 + r + r^2 (...) with the least relative error, 3e-9, so that one term fewer is enough
  static constexpr float coefficient(int k) {
    constexpr float of[] = {1.0f, 1.0f, 4.999999343e-1f, 1.666652040e-1f, 4.166839079e-2f, 8.368745323e-3f, 1.381454086e-3f};
    return of[k];
  }
};
template <>
struct Exp<double> {
  static constexpr int degree = 13, fraction = 9, mantissa = 52, bias = 1023;
  static constexpr double shift = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double ln2_high = 6.93145751953125e-1, ln2_low = 1.42860682030941723212e-6;
  static constexpr double zero = -709.0, highest = 709.436;
  static constexpr double coefficient(int k) {  // of the series; evaluated at compile time
    double factorial = 1;
    for (int i = 2; i <= k; ++i) factorial *= i;
    return 1 / factorial;
  }
};

// e^x for x <= 0, within 1.1 ulp down to the lowest normal number; below it, towards 0. NaN goes through and stays.
// x = n ln 2 + r with |r| <= ln 2 / 2, and e^r by a polynomial
template <class T>
__attribute__((always_inline)) inline V<T> exp_falling(V<T> x) {
  using E = Exp<T>;
  x = higher<T>(splat<T>(E::zero), x);
  const V<T> shifted = x * T(1.4426950408889634) + E::shift, n = shifted - E::shift;
  const V<T> r = (x - n * E::ln2_high) - n * E::ln2_low;
  V<T> sum = splat<T>(E::coefficient(E::degree));
#pragma GCC unroll 16
  for (int k = E::degree - 1; k >= 2; --k) sum = sum * r + E::coefficient(k);
  const V<T> power = (V<T>)(((I<T>)shifted + E::bias) << E::mantissa);  // 0 for the lowest n
  return (r * r * sum + r) * power + power;
}

// the same for all x; inf above highest
template <class T>
inline V<T> exp(V<T> x) {
  const V<T> y = exp_falling<T>(x > Exp<T>::highest ? splat<T>(Exp<T>::highest) : x);
  return x > Exp<T>::highest ? splat<T>(std::numeric_limits<T>::infinity()) : y;
}

// x / (a + b) for a + b in [1, 2] and a the larger, corrected for the rounding of the sum
template <class T>
inline V<T> over_sum(V<T> x, V<T> a, V<T> b) {
  const V<T> sum = a + b, lost = b - (sum - a), ratio = x / sum;
  const V<T> nearly_inverse = T(1.457) - T(0.5) * sum;  // within 5 % of 1 / sum, enough for a correction in the last bit
  return ratio - ratio * (lost * nearly_inverse);
}

// with e = e^-|x|, 1 / (1 + e) or e / (1 + e)
template <class T>
__attribute__((always_inline)) inline V<T> sigmoid(V<T> x) {
  const V<T> e = exp_falling<T>(x > T(0) ? -x : x);
  return over_sum<T>(x > T(0) ? splat<T>(1) : e, splat<T>(1), e);
}

// near 0 Lambert's continued fraction x / (1 + z / (3 + z / (5 + ...))) with z = x^2, as x - x d / b, else
// 1 - 2e / (1 + e) with e = e^(-2|x|); one division serves both
template <class T>
__attribute__((always_inline)) inline V<T> tanh(V<T> x) {
  const I<T> sign = (I<T>)x & (I<T>)splat<T>(T(-0.0));
  const V<T> size = (V<T>)((I<T>)x ^ sign), z = size * size;
  V<T> d = z, d_before{}, b = z + T(3), b_before = splat<T>(1);
#pragma GCC unroll 8
  for (int level = 3; level <= Exp<T>::fraction; ++level) {
    const V<T> d_next = d * T(2 * level - 1) + z * d_before, b_next = b * T(2 * level - 1) + z * b_before;
    d_before = d, b_before = b, d = d_next, b = b_next;
  }
  const V<T> e = exp_falling<T>(size * T(-2));
  const I<T> small = size < T(0.625);
  const V<T> ratio = (small ? d : e + e) / (small ? b : T(1) + e);
  const V<T> y = small ? size - size * ratio : T(1) - ratio;
  return (V<T>)((I<T>)y | sign);
}

}  // namespace MUFURU_ARCH
}  // namespace mufuru
