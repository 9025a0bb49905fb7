// Matrix products with weights packed into panels: `width` columns side by side, one row of the depth after another.
#pragma once
#include <cstddef>
#include <utility>

#include "vec.h"

namespace mufuru {
namespace MUFURU_ARCH {

template <class T>
struct Panel {
  static constexpr int64_t width = 2 * Lanes<T>::n;
};
template <class T>
inline int64_t panels(int64_t columns) {
  return (columns + Panel<T>::width - 1) / Panel<T>::width;
}

// whether only the first vector of panel c is needed
template <class T>
inline bool is_half(int64_t columns, int64_t c) {
  return columns - c * Panel<T>::width <= Lanes<T>::n;
}

// accumulators of a tile, which leave room for its operands, and its rows: in 16 registers, or in the 32 of AVX-512 and of
// ARM64, whose processors multiply up to 16 vectors before the first sum is complete
#if defined(__aarch64__)
constexpr int kAccumulators = 24;
constexpr int kRows = 6;
#elif MUFURU_BYTES == 64
constexpr int kAccumulators = 16;
constexpr int kRows = 8;
#else
constexpr int kAccumulators = 12;
constexpr int kRows = 6;
#endif
constexpr int64_t kTilePanels = kAccumulators / (2 * kRows);     // panels of a tile that has all rows,
constexpr int64_t kTileColumns = kAccumulators / 2;              // and rows of one that has one panel alone
// with fewer rows or vectors, more panels: enough accumulators, or the additions would wait for each other
constexpr int panels_at_once(int rows, int vectors) {
  return rows * vectors < 2 ? 6 : static_cast<int>(least(6, kAccumulators / (rows * vectors)));
}

// run(count) with the number known at compile time; `most` at the most
template <int most, class Run>
__attribute__((always_inline)) inline void with_count(int64_t count, Run run) {
  if constexpr (most > 1)
    if (count < most) return with_count<most - 1>(count, run);
  run(std::integral_constant<int, most>{});
}

// What to fetch into the cache while a tile is computed: so many bytes further on with every row of the depth.
struct Ahead {
  const char* place;
  int64_t pace;
};
// The same for the blocks of rows of a product: each begins `apart` bytes further on. Null: its own panels.
struct Next {
  const char* place = nullptr;
  int64_t pace = 0, apart = 0;
};

// R rows times P panels, `apart` numbers from one to the next, of which U vectors are needed. The sum over the depth runs
// in one order, so a row's result does not depend on the other rows.
template <class T, int R, int P, int U>
inline void tile(const T* const* rows, int64_t depth, const T* panel, int64_t apart, T* out, int64_t out_panel, bool add,
                 Ahead ahead) {
  constexpr int64_t n = Lanes<T>::n, width = Panel<T>::width;
  V<T> sum[R][P][U];  // fully unrolled, so that it stays in registers
  const T* a[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    a[r] = rows[r];
#pragma GCC unroll 16
    for (int p = 0; p < P * U; ++p)
      sum[r][p / U][p % U] = add ? load(out + p / U * out_panel + r * width + p % U * n) : splat<T>(0);
  }
  for (int64_t k = 0; k < depth; ++k, panel += width) {
    if constexpr (kAccumulators > 12 && P > 1 && P * U < R) {  // fewer vectors than rows: these wait in registers
      V<T> b[P][U];
#pragma GCC unroll 8
      for (int p = 0; p < P * U; ++p) b[p / U][p % U] = load(panel + p / U * apart + p % U * n);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const V<T> factor = splat<T>(a[r][k]);
#pragma GCC unroll 8
        for (int p = 0; p < P * U; ++p) sum[r][p / U][p % U] += factor * b[p / U][p % U];
      }
      continue;
    }
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const T* at = panel + p * apart;
      if constexpr (P == 1) __builtin_prefetch(ahead.place, 0, 2), ahead.place += ahead.pace;
      else if constexpr (P * U <= 2) __builtin_prefetch(at + 16 * width);  // of more panels the loads are far enough ahead
      V<T> b[U];
#pragma GCC unroll 2
      for (int u = 0; u < U; ++u) b[u] = load(at + u * n);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        V<T> factor = splat<T>(a[r][k]);
#pragma GCC unroll 2
        for (int u = 0; u < U; ++u) sum[r][p][u] += factor * b[u];
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

// R rows times `count` panels, as many at once as there are accumulators for
template <class T, int R, int U, int P = panels_at_once(R, U)>
inline void strip(const T* const* rows, int64_t depth, const T* panel, int64_t apart, int64_t count, T* out,
                  int64_t out_panel, bool add, int64_t block, int64_t blocks, const Next& next) {
  constexpr int64_t line = Panel<T>::width * sizeof(T);
  for (; count >= P; count -= P, panel += P * apart, out += P * out_panel) {
    // of several blocks of rows each fetches a part of the next panel, else a tile the rest of its own
    const int64_t far = blocks > 1 ? depth * (blocks + block) / blocks : 16;
    const Ahead own{reinterpret_cast<const char*>(panel) + far * line, (line + blocks - 1) / blocks};
    const Ahead ahead = next.place ? Ahead{next.place + block * next.apart, next.pace} : own;
    tile<T, R, P, U>(rows, depth, panel, apart, out, out_panel, add, ahead);
  }
  if constexpr (P > 1) strip<T, R, U, P - 1>(rows, depth, panel, apart, count, out, out_panel, add, block, blocks, next);
}

// All rows times `count` panels, of which U vectors are needed, into out[panel][row][width] or added to what is there.
template <class T, int U>
__attribute__((noinline)) void product(const T* const* rows, int64_t n_rows, int64_t depth, const T* panel, int64_t apart,
                                       int64_t count, T* out, bool add = false, const Next& next = {}) {
  constexpr int64_t width = Panel<T>::width;
  const int64_t out_panel = n_rows * width;
  if (n_rows <= 0) return;
  const int64_t blocks = (n_rows + kRows - 1) / kRows;
  // several blocks of rows: one or two panels at a time, so that the next block finds them in cache
  const int64_t together = blocks > 1 ? 2 / U * kTilePanels : count;
  for (int64_t first = 0; first < count; first += together) {
    const T* from = panel + first * apart;
    const int64_t now = least(together, count - first);
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t begin = n_rows * block / blocks, end = n_rows * (block + 1) / blocks;
      const T* const* a = rows + begin;
      T* to = out + first * out_panel + begin * width;
      with_count<kRows>(end - begin, [&](auto count) {
        strip<T, count, U>(a, depth, from, apart, now, to, out_panel, add, block, blocks, next);
      });
    }
  }
}
// the same; `half`: of the panels only the first vector is needed
template <class T>
inline void product(const T* const* rows, int64_t n_rows, int64_t depth, const T* panel, int64_t apart, int64_t count,
                    bool half, T* out) {
  half ? product<T, 1>(rows, n_rows, depth, panel, apart, count, out)
       : product<T, 2>(rows, n_rows, depth, panel, apart, count, out);
}
// the same for the panels from `first` on of a matrix of `columns` columns, whose last one may be needed by half
template <class T>
inline void product(const T* const* rows, int64_t n_rows, int64_t depth, const T* panel, int64_t apart, int64_t first,
                    int64_t count, int64_t columns, T* out) {
  const int64_t last = count - 1, halves = is_half<T>(columns, first + last) ? 1 : 0;
  product<T, 2>(rows, n_rows, depth, panel, apart, count - halves, out);
  if (halves) product<T, 1>(rows, n_rows, depth, panel + last * apart, apart, 1, out + last * n_rows * Panel<T>::width);
}

// done(row, column, lanes, value) for each vector of `count` panels of a product, which has `columns` columns in all
template <class T, class Done>
inline void each_vector(const T* panel, int64_t n_rows, int64_t first, int64_t count, int64_t columns, Done done) {
  constexpr int64_t n = Lanes<T>::n, width = Panel<T>::width;
  for (int64_t c = first; c < first + count; ++c, panel += n_rows * width)
    for (int64_t i = 0; i < n_rows; ++i)
      for (int64_t half = 0; half < width; half += n) {
        const int64_t u = c * width + half;
        if (u < columns) done(i, u, least(columns - u, n), load(panel + i * width + half));
      }
}

// Memory that `each_product` needs for its tiles.
template <class T>
inline int64_t tile_size(int64_t rows, int64_t columns) {
  return Panel<T>::width * most(rows * kTilePanels, least(rows, kRows) * panels<T>(columns));
}

// Rows times the panels from `begin` to `end`, which lie one after another, and done(row, column, lanes, value) for each
// vector of the result.
template <class T, class Done>
inline void each_product(const T* const* rows, int64_t n_rows, int64_t depth, const T* panel, int64_t columns, int64_t begin,
                         int64_t end, T* tiles, Done done) {
  const int64_t size = depth * Panel<T>::width;
  const int64_t together = n_rows > kRows ? kTilePanels : end - begin;
  for (int64_t first = begin; first < end; first += together) {
    const int64_t now = least(together, end - first);
    product<T>(rows, n_rows, depth, panel + first * size, size, first, now, columns, tiles);
    each_vector<T>(tiles, n_rows, first, now, columns, done);
  }
}

// a and b with the lanes swapped whose numbers differ in one bit: of a those without it stay, of b those with it
template <class T, int64_t bit, size_t... l>
__attribute__((always_inline)) inline void swap_lanes(V<T>& a, V<T>& b, std::index_sequence<l...>) {
  constexpr int64_t n = Lanes<T>::n;
  const V<T> x = a, y = b;
#if defined(__clang__)
  a = __builtin_shufflevector(x, y, (l & bit ? n + l - bit : l)...);
  b = __builtin_shufflevector(x, y, (l & bit ? n + l : l + bit)...);
#else
  a = __builtin_shuffle(x, y, I<T>{(l & bit ? n + l - bit : l)...});
  b = __builtin_shuffle(x, y, I<T>{(l & bit ? n + l : l + bit)...});
#endif
}

// rows become columns: lane l of vector i goes to lane i of vector l, one bit of their numbers after the other
template <class T, int64_t bit = Lanes<T>::n / 2>
__attribute__((always_inline)) inline void transpose(V<T>* v) {
  constexpr int64_t n = Lanes<T>::n;
#pragma GCC unroll 16
  for (int64_t i = 0; i < n; ++i)
    if (!(i & bit)) swap_lanes<T, bit>(v[i], v[i + bit], std::make_index_sequence<n>{});
  if constexpr (bit > 1) transpose<T, bit / 2>(v);
}

// Rows of a weight matrix (row-major, the first `depth` of each, `minus` subtracted where given) as columns of one panel;
// the rows from `soon` on are needed next.
template <class T>
__attribute__((noinline)) void pack_rows(const T* weight, const T* minus, int64_t row_length, int64_t depth, int64_t columns, T* to,
                                         const T* soon = nullptr) {
  constexpr int64_t n = Lanes<T>::n, width = Panel<T>::width;
  const auto square = [&](int64_t k, int64_t half, int64_t m, auto whole) __attribute__((always_inline)) {
    constexpr bool all = decltype(whole)::value;
    V<T> v[n]{};
    // rows are too short for the processor to guess the next
    if (all && k % (kLine / sizeof(T)) == 0) {
      const T* next = (soon && half + n == width ? soon : weight + (half + n) * row_length) + k;
#pragma GCC unroll 16
      for (int64_t i = 0; i < n; ++i) __builtin_prefetch(next + i * row_length);
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < n; ++i) {
      if (!all && half + i >= columns) break;
      const int64_t place = (half + i) * row_length + k;
      v[i] = load<all>(weight + place, m);
      if (minus) v[i] -= load<all>(minus + place, m);
    }
    transpose<T>(v);
#pragma GCC unroll 16
    for (int64_t l = 0; l < n; ++l)
      if (all || l < m) store(to + (k + l) * width + half, v[l]);
  };
  for (int64_t half = 0; half < width; half += n) {
    int64_t k = 0;
    if (half + n <= columns)
      for (; k + n <= depth; k += n) square(k, half, n, std::true_type{});
    for (; k < depth; k += n) square(k, half, least(n, depth - k), std::false_type{});
  }
}

// Columns of a weight matrix (row-major) as columns of one panel; the depth runs over the rows.
template <class T>
__attribute__((noinline)) void pack_columns(const T* weight, const T* minus, int64_t row_length, int64_t rows, int64_t columns, T* to) {
  constexpr int64_t n = Lanes<T>::n, width = Panel<T>::width;
  for (int64_t k = 0; k < rows; ++k, weight += row_length, to += width)
    for (int64_t half = 0; half < width; half += n) {
      const int64_t m = columns - half;
      V<T> x = m > 0 ? load(weight + half, m) : splat<T>(0);
      if (minus && m > 0) x -= load(minus + k * row_length + half, m);
      store(to + half, x);
    }
}

// Whole rows of a weight matrix (row-major, `row_length` apart), as columns of panels `apart` numbers from each other.
template <class T>
__attribute__((noinline)) void pack_whole(const T* weight, const T* minus, int64_t row_length, int64_t rows, int64_t columns, T* to, int64_t apart) {
  constexpr int64_t n = Lanes<T>::n, width = Panel<T>::width;
  for (int64_t k = 0; k < rows; ++k, weight += row_length, to += width)
    for (int64_t u = 0; u < panels<T>(columns) * width; u += n) {
      const int64_t m = columns - u;
      V<T> x = m > 0 ? load(weight + u, m) : splat<T>(0);
      if (minus && m > 0) x -= load(minus + k * row_length + u, m);
      store(to + u / width * apart + u % width, x);
    }
}

}  // namespace MUFURU_ARCH
}  // namespace mufuru
