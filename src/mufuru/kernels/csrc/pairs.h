// Products of bfloat16 numbers with float32 sums, as the instruction vdpbf16ps computes them: two neighbours along the depth
// make a pair, and a sum takes the second's product, then the first's, each by a fused multiplication and addition
// rounded to nearest even; numbers below the normal ones count as 0, before and after. Where this is compiled for
// that instruction it is used, elsewhere the same arithmetic is emulated.
#pragma once
#include "outer.h"
#include "problem.h"
#if defined(MUFURU_DOT)
#include <immintrin.h>
#endif

namespace mufuru {
namespace MUFURU_ARCH {

// read where other types were written
typedef uint32_t Pair __attribute__((may_alias));
typedef uint32_t Words __attribute__((vector_size(MUFURU_BYTES)));
typedef uint32_t AnyWords __attribute__((vector_size(MUFURU_BYTES), aligned(4), may_alias));

inline int64_t pairs_of(int64_t depth) { return (depth + 1) / 2; }

// rounded to bfloat16, in the upper halves; the lower ones are 0
inline Words rounded(V<float> x) {
  const Words bits = (Words)x, even = bits + 0x7fff + (bits >> 16 & 1);
  const I<float> size = (I<float>)(bits & 0x7fffffff);
  const Words kept = size > 0x7f800000 ? bits | 0x400000 : even;  // a NaN stays one
  return (size < 0x00800000 ? bits & 0x80000000 : kept) & 0xffff0000;
}

// a and b as pairs, lane by lane
inline Words paired(V<float> a, V<float> b) { return rounded(a) >> 16 | rounded(b); }

#if defined(MUFURU_DOT)
__attribute__((always_inline)) inline V<float> dot(V<float> sum, Words a, Words b) {
  return (V<float>)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
#else
// a * b + sum, rounded once. Exact products need no fused instruction, but for those below the normal numbers or above all.
inline V<float> fused(V<float> a, V<float> b, V<float> sum) {
#if defined(__FMA__) || defined(__aarch64__)
  return a * b + sum;
#else
  // in double the product is exact, and rounding the sum twice is rounding it once: 53 bits are more than 2 * 24 + 2
  for (int64_t l = 0; l < Lanes<float>::n; ++l) sum[l] = static_cast<float>(static_cast<double>(a[l]) * b[l] + sum[l]);
  return sum;
#endif
}

inline V<float> flushed(V<float> x) {
  const Words bits = (Words)x;
  return (V<float>)((I<float>)(bits & 0x7fffffff) < 0x00800000 ? bits & 0x80000000 : bits);
}

inline V<float> dot(V<float> sum, Words a, Words b) {
  sum = flushed(fused((V<float>)(a & 0xffff0000), (V<float>)(b & 0xffff0000), flushed(sum)));
  return flushed(fused((V<float>)(a << 16), (V<float>)(b << 16), sum));
}
#endif

inline Words words(const float* from) { return *reinterpret_cast<const AnyWords*>(from); }
inline Words splat_pair(const float* from) { return *reinterpret_cast<const Pair*>(from) + Words{}; }

// `tile` of panels.h for pairs
template <int R, int P, int U>
__attribute__((always_inline)) inline void tile_of_pairs(const float* const* rows, int64_t depth, const float* panel,
                                                         int64_t apart, float* out, int64_t out_panel, Ahead ahead) {
  constexpr int64_t n = Lanes<float>::n, width = Panel<float>::width;
  V<float> sum[R][P][U];  // fully unrolled, so that it stays in registers
  const float* a[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    a[r] = rows[r];
#pragma GCC unroll 16
    for (int p = 0; p < P * U; ++p) sum[r][p / U][p % U] = V<float>{};
  }
  for (int64_t k = 0; k < depth; ++k, panel += width) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const float* at = panel + p * apart;
      if constexpr (P == 1) __builtin_prefetch(ahead.place, 0, 2), ahead.place += ahead.pace;
      else if constexpr (P * U <= 2) __builtin_prefetch(at + 16 * width);  // of more panels the loads are far enough ahead
      Words b[U];
#pragma GCC unroll 2
      for (int u = 0; u < U; ++u) b[u] = words(at + u * n);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Words factor = splat_pair(a[r] + k);
#pragma GCC unroll 2
        for (int u = 0; u < U; ++u) sum[r][p][u] = dot(sum[r][p][u], factor, b[u]);
      }
    }
  }
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int u = 0; u < U; ++u) store(out + p * out_panel + r * width + u * n, sum[r][p][u]);
}

#if defined(MUFURU_DOT)
template <int R, int U, int P = panels_at_once(R, U)>
inline void strip_of_pairs(const float* const* rows, int64_t depth, const float* panel, int64_t apart, int64_t count,
                           float* out, int64_t out_panel, int64_t block, int64_t blocks) {
  constexpr int64_t line = Panel<float>::width * sizeof(float);
  // as in `strip`
  const int64_t far = blocks > 1 ? depth * (blocks + block) / blocks : 16, pace = (line + blocks - 1) / blocks;
  for (; count >= P; count -= P, panel += P * apart, out += P * out_panel)
    tile_of_pairs<R, P, U>(rows, depth, panel, apart, out, out_panel,
                           {reinterpret_cast<const char*>(panel) + far * line, pace});
  if constexpr (P > 1) strip_of_pairs<R, U, P - 1>(rows, depth, panel, apart, count, out, out_panel, block, blocks);
}

// `product` of panels.h for pairs, of which there are `depth`
template <int U>
void product_of_pairs(const float* const* rows, int64_t n_rows, int64_t depth, const float* panel, int64_t apart, int64_t count,
                      float* out) {
  constexpr int64_t width = Panel<float>::width;
  const int64_t out_panel = n_rows * width, blocks = (n_rows + kRows - 1) / kRows;
  // several blocks of rows: one or two panels at a time, so that the next block finds them in cache
  const int64_t together = blocks > 1 ? 2 / U : count;
  for (int64_t first = 0; first < count; first += together) {
    const float* from = panel + first * apart;
    const int64_t now = least(together, count - first);
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t begin = n_rows * block / blocks, end = n_rows * (block + 1) / blocks;
      const float* const* a = rows + begin;
      float* to = out + first * out_panel + begin * width;
      with_count<kRows>(end - begin, [&](auto count) {
        strip_of_pairs<count, U>(a, depth, from, apart, now, to, out_panel, block, blocks);
      });
    }
  }
}
#else
// emulation need not be fast: one row and one panel at a time
template <int U>
void product_of_pairs(const float* const* rows, int64_t n_rows, int64_t depth, const float* panel, int64_t apart, int64_t count,
                      float* out) {
  for (int64_t c = 0; c < count; ++c, panel += apart)
    for (int64_t i = 0; i < n_rows; ++i, out += Panel<float>::width)
      tile_of_pairs<1, 1, U>(rows + i, depth, panel, apart, out, 0, {reinterpret_cast<const char*>(panel), 0});
}
#endif

// `outer` of outer.h for pairs of rows
template <int R>
void outer_of_pairs(const float* right, const float* left, int64_t pairs, bool add, float* to) {
  constexpr int64_t n = Lanes<float>::n, width = Panel<float>::width;
  if (add) fetch<float, R>(to);
  V<float> sum[R][2]{};
  for (int64_t k = 0; k < pairs; ++k, right += kRows, left += width) {
    const Words b0 = words(left), b1 = words(left + n);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Words factor = splat_pair(right + r);
      sum[r][0] = dot(sum[r][0], factor, b0);
      sum[r][1] = dot(sum[r][1], factor, b1);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r, to += width) {
    store(to, add ? load(to) + sum[r][0] : sum[r][0]);
    store(to + n, add ? load(to + n) + sum[r][1] : sum[r][1]);
  }
}

inline void some_product(const float* const* rows, int64_t n_rows, int64_t depth, const float* panel, int64_t apart,
                         int64_t count, bool half, float* out) {
  half ? product_of_pairs<1>(rows, n_rows, depth, panel, apart, count, out)
       : product_of_pairs<2>(rows, n_rows, depth, panel, apart, count, out);
}

inline void some_outer(int64_t columns, const float* right, const float* left, int64_t pairs, bool add, float* to) {
#if defined(MUFURU_DOT)
  with_count<kRows>(columns, [&](auto count) { outer_of_pairs<count>(right, left, pairs, add, to); });
#else
  for (int64_t c = 0; c < columns; ++c) outer_of_pairs<1>(right + c, left, pairs, add, to + c * Panel<float>::width);
#endif
}

// n numbers of a row as pairs; the last has a 0 beside it if n is odd
inline void round_row(const float* from, int64_t n, float* to) {
  char* place = reinterpret_cast<char*>(to);
  int64_t i = 0;
#if defined(MUFURU_DOT)
  for (; i + 16 <= n; i += 16) {
    const auto halves = _mm512_cvtneps_pbh(_mm512_loadu_ps(from + i));
    std::memcpy(place + 2 * i, &halves, sizeof halves);
  }
#endif
  for (; i < n; i += Lanes<float>::n) {
    const int64_t m = least(n - i, Lanes<float>::n);
    const Words bits = rounded(load(from + i, m));
    uint16_t halves[Lanes<float>::n];
    for (int64_t l = 0; l < Lanes<float>::n; ++l) halves[l] = bits[l] >> 16;
    std::memcpy(place + 2 * i, halves, 2 * m);
  }
  if (n % 2) std::memset(place + 2 * n, 0, 2);
}

constexpr PairProducts make_pairs() { return {some_product, some_outer, round_row}; }

// Pairs of rows of a matrix, `width` numbers apart: lane by lane, into rows as wide; an odd last row is paired with 0.
// `to` may be `from`: a row is read before it is written.
inline void pair_rows(const float* from, int64_t rows, int64_t width, float* to) {
  for (int64_t k = 0; k < rows; k += 2, from += 2 * width, to += width)
    for (int64_t u = 0; u < width; u += Lanes<float>::n) {
      const int64_t m = least(width - u, Lanes<float>::n);
      const V<float> second = k + 1 < rows ? load(from + width + u, m) : V<float>{};
      store(to + u, (V<float>)paired(load(from + u, m), second), m);
    }
}

// `pack_groups` of outer.h for pairs of rows; `row` has room for one
inline void pack_pair_groups(const Matrix<float>& from, int64_t begin, int64_t rows, float* row, float* to) {
  const int64_t columns = from.columns, pairs = pairs_of(rows);
  for (int64_t k = 0; k < pairs; ++k) {
    const float* first = from.data + (begin + 2 * k) * from.stride;
    for (int64_t u = 0; u < columns; u += Lanes<float>::n) {
      const int64_t m = least(columns - u, Lanes<float>::n);
      const V<float> second = 2 * k + 1 < rows ? load(first + from.stride + u, m) : V<float>{};
      store(row + u, (V<float>)paired(load(first + u, m), second), m);
    }
    for (int64_t c = 0; c < columns; c += kRows) {
      float* group = to + c * pairs + k * kRows;
      if (c + kRows <= columns) std::memcpy(group, row + c, kRows * sizeof(float));
      else std::memcpy(group, row + c, (columns - c) * sizeof(float));
    }
  }
}

}  // namespace MUFURU_ARCH
}  // namespace mufuru
