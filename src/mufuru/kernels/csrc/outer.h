// Products over the rows of two matrices: groups of columns of one times panels of the other.
#pragma once
#include "panels.h"

namespace mufuru {
namespace MUFURU_ARCH {

// A matrix, row-major, whose rows are `stride` apart.
template <class T>
struct Matrix {
  const T* data;
  int64_t stride, columns;
};

// fetches R rows of old values, which are wanted once the sums are complete
template <class T, int R>
__attribute__((always_inline)) inline void fetch(const T* rows) {
#pragma GCC unroll 24
  for (int64_t i = 0; i < R * Panel<T>::width; i += kLine / sizeof(T)) __builtin_prefetch(rows + i, 1);
}

// R columns of right, packed kRows side by side and such groups one after another, times one packed panel of left over
// `rows` rows, added to the old values or replacing them: R rows, a panel wide
template <class T, int R>
__attribute__((noinline)) void outer(const T* right, const T* left, int64_t rows, bool add, T* to) {
  constexpr int64_t n = Lanes<T>::n, width = Panel<T>::width;
  if (add) fetch<T, R>(to);
  V<T> sum[R][2];  // fully unrolled, so that it stays in registers
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = splat<T>(0);
  for (int64_t k = 0; k < rows; ++k, right += kRows, left += width) {
    const V<T> b0 = load(left), b1 = load(left + n);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const V<T> factor = splat<T>(right[r / kRows * rows * kRows + r % kRows]);
      sum[r][0] += factor * b0;
      sum[r][1] += factor * b1;
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r, to += width) {
    store(to, add ? load(to) + sum[r][0] : sum[r][0]);
    store(to + n, add ? load(to + n) + sum[r][1] : sum[r][1]);
  }
}

// the same for up to kTileColumns columns
template <class T>
inline void outer(int64_t columns, const T* right, const T* left, int64_t rows, bool add, T* to) {
  if (columns == kTileColumns) return outer<T, kTileColumns>(right, left, rows, add, to);
  for (; columns > kRows; columns -= kRows, right += rows * kRows, to += kRows * Panel<T>::width)
    outer<T, kRows>(right, left, rows, add, to);
  with_count<kRows>(columns, [&](auto count) { outer<T, count>(right, left, rows, add, to); });
}

// columns, filled up to whole groups of kRows
inline int64_t grouped(int64_t columns) { return (columns + kRows - 1) / kRows * kRows; }

// some rows of a matrix, kRows columns side by side
template <class T>
inline void pack_groups(const Matrix<T>& from, int64_t begin, int64_t rows, T* to) {
  for (int64_t c = 0; c < from.columns; c += kRows) {
    const T* row = from.data + begin * from.stride + c;
    const int64_t size = least(from.columns - c, kRows) * sizeof(T);
    for (int64_t k = 0; k < rows; ++k, row += from.stride, to += kRows)
      if (size == kRows * sizeof(T)) std::memcpy(to, row, kRows * sizeof(T));
      else std::memcpy(to, row, size);
  }
}

// a square of one vector's width, or what is there of it, rows to columns
template <class T, bool whole>
__attribute__((always_inline)) inline void turn_square(const T* from, int64_t columns, int64_t rows, T* to, int64_t stride) {
  constexpr int64_t N = Lanes<T>::n, width = Panel<T>::width;
  V<T> v[N]{};
#pragma GCC unroll 16
  for (int64_t i = 0; i < N; ++i)
    if (whole || i < columns) v[i] = load(from + i * width);
  transpose<T>(v);
#pragma GCC unroll 16
  for (int64_t r = 0; r < N; ++r)
    if (whole || r < rows) store<whole>(to + r * stride, v[r], columns);
}

// from a panel's results, `columns` rows of one panel's width, to `rows` rows
template <class T>
inline void turn(const T* from, int64_t columns, int64_t rows, T* to) {
  constexpr int64_t N = Lanes<T>::n, width = Panel<T>::width;
  for (int64_t half = 0; half < rows; half += N)
    for (int64_t c = 0; c < columns; c += N) {
      const T* corner = from + c * width + half;
      T* place = to + half * columns + c;
      if (c + N <= columns && half + N <= rows) turn_square<T, true>(corner, N, N, place, columns);
      else turn_square<T, false>(corner, least(columns - c, N), least(rows - half, N), place, columns);
    }
}

}  // namespace MUFURU_ARCH
}  // namespace mufuru
