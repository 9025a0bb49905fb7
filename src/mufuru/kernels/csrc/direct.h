// Products with unpacked weights: for few steps, where packing all weights would take longer than using them.
#pragma once
#include "outer.h"

namespace mufuru {
namespace MUFURU_ARCH {

// Rows of weights that become the columns of a panel, minus `less` where given; from `split` on, those of `more`.
template <class T>
struct Rows {
  const T *weight, *less;
  int64_t stride, columns;
  const T* more = nullptr;
  int64_t more_stride = 0, split = 0;

  // the rows of `soon` are needed next
  void pack(int64_t k, int64_t depth, T* to, const Rows* soon = nullptr) const {
    const int64_t first = more ? most(0, least(split - k, depth)) : depth;
    pack_rows<T>(weight + k, less ? less + k : nullptr, stride, first, columns, to, soon ? soon->weight + k : nullptr);
    if (first == depth) return;
    T* const rest = to + first * Panel<T>::width;
    pack_rows<T>(more + k + first - split, nullptr, more_stride, depth - first, columns, rest);
  }
};

// One row times a whole panel of weights, transposed block by block in registers; sums run over the depth in order. `far`:
// rows so long that the processor does not guess the next; those from `soon` on follow the panel's.
template <class T, bool less, bool far>
__attribute__((noinline)) void turned_product(const T* row, int64_t depth, const Rows<T>& weights, const T* soon, T* out) {
  constexpr int64_t n = Lanes<T>::n;
  // vectors of columns; not more, since rows a power of two apart share few lines of the cache
  constexpr int together = less || far ? 1 : 2;
  for (int64_t half = 0; half < Panel<T>::width; half += together * n) {
    V<T> sum[together]{};
    const auto square = [&](int64_t k, int64_t m, auto whole) __attribute__((always_inline)) {
      constexpr bool all = decltype(whole)::value;
#pragma GCC unroll 2
      for (int u = 0; u < together; ++u) {
        V<T> v[n];
        if constexpr (far) {
          const T* next = (half + n < Panel<T>::width ? weights.weight + (half + n) * weights.stride : soon) + k;
#pragma GCC unroll 16
          for (int64_t i = 0; i < n; ++i) __builtin_prefetch(next + i * weights.stride);
        }
#pragma GCC unroll 16
        for (int64_t i = 0; i < n; ++i) {
          const int64_t place = (half + u * n + i) * weights.stride + k;
          v[i] = load<all>(weights.weight + place, m);
          if constexpr (less) v[i] -= load<all>(weights.less + place, m);
        }
        transpose<T>(v);
#pragma GCC unroll 16
        for (int64_t l = 0; l < n; ++l)
          if (all || l < m) sum[u] += splat<T>(row[k + l]) * v[l];
      }
    };
    int64_t k = 0;
    for (; k + n <= depth; k += n) square(k, n, std::true_type{});
    if (k < depth) square(k, depth - k, std::false_type{});
    for (int u = 0; u < together; ++u) store(out + half + u * n, sum[u]);
  }
}

constexpr int64_t kSwept = 8;            // rows of weights that `sweep` adds up at once
constexpr int64_t kSweptColumns = 1024;  // columns of them that stay in the first cache

// K rows of weights, minus `less` where given, each times its factor, added to `out`
template <class T, bool less, int K>
inline void sweep(const T* factors, const T* weight, const T* off, int64_t stride, int64_t columns, T* out) {
  constexpr int64_t n = Lanes<T>::n;
  V<T> factor[K];
#pragma GCC unroll 8
  for (int k = 0; k < K; ++k) factor[k] = splat<T>(factors[k]);
  const auto vector = [&](int64_t u, int64_t m, auto whole) __attribute__((always_inline)) {
    constexpr bool all = decltype(whole)::value;
    V<T> sum = load<all>(out + u, m);
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) {
      V<T> w = load<all>(weight + k * stride + u, m);
      if constexpr (less) w -= load<all>(off + k * stride + u, m);
      sum += factor[k] * w;
    }
    store<all>(out + u, sum, m);
  };
  int64_t u = 0;
  for (; u + n <= columns; u += n) vector(u, n, std::true_type{});
  if (u < columns) vector(u, columns - u, std::false_type{});
}

// packs the columns of panel c, of `size` in all, of the runs that it is given
template <class T>
struct PackRuns {
  int64_t c, size;
  T* to;
  void operator()(int64_t, int64_t n, const T* weight, const T* less) {
    constexpr int64_t width = Panel<T>::width;
    pack_columns<T>(weight + c * width, less ? less + c * width : nullptr, size, n, least(size - c * width, width), to);
    to += n * width;
  }
};

constexpr int64_t kAtOnce = 2;        // panels that are packed at once,
constexpr int64_t kPackedRows = 256;  // and how much of their depth: this stays in the cache
constexpr int64_t kFewRows = 4;       // fewer rows are not worth packing columns
constexpr int64_t kDeep = 1 << 15;    // numbers of whole rows of weights that are packed at once, though at least
constexpr int64_t kLeast = 16;        // rows,
constexpr int64_t kWide = 1 << 17;    // and of sums that stay in the second cache meanwhile
constexpr int64_t kFar = 2048;        // bytes of a row of weights from which on the processor does not guess the next

// Rows times unpacked weights, or weights packed a little at a time. Sums run over the depth in the order of `product`
// on packed weights, so the bits are the same.
template <class T>
class Passing {
 public:
  Passing(int64_t n_rows, int64_t columns)
      : whole(n_rows >= kFewRows && n_rows * panels<T>(columns) * width <= kWide),
        out(most(n_rows * kAtOnce * width, least(n_rows, whole ? n_rows : kFewRows) * panels<T>(columns) * width)),
        packed(n_rows ? most(kPackedRows * kAtOnce * width, whole ? most(kDeep, kLeast * panels<T>(columns) * width) : 0) : 0),
        operand(n_rows) {}

  // weights(c) are the Rows of panel c; done(c, tile) gets the product with it, tile[row][width]
  template <class Weights, class Done>
  void by_rows(const T* const* rows, int64_t m, int64_t depth, int64_t begin, int64_t end, Weights weights, Done done) {
    if (m != 1) {
      const auto pack = [&](int64_t c, int64_t k, int64_t depth, T* to) {
        const Rows<T> soon = weights(least(c + 1, end - 1));
        weights(c).pack(k, depth, to, &soon);
      };
      const int64_t parts = most(1, (depth + kPackedRows - 1) / kPackedRows), blocks = most(1, (m + kRows - 1) / kRows);
      // each product fetches its part of the panel that is packed in its place after it
      const auto next = [&](int64_t c, int64_t k) {
        const Rows<T> part = weights(least(c + kAtOnce, end - 1));
        const int64_t bytes = part.columns * part.stride * sizeof(T) / parts, rows = most(1, least(depth, kPackedRows));
        const int64_t pace = bytes / (blocks * rows) + 1;
        return Next{reinterpret_cast<const char*>(part.weight) + k / kPackedRows * bytes, pace, pace * rows};
      };
      return by_panels(rows, m, depth, begin, end, pack, next, done);
    }
    for (int64_t c = begin; c < end; ++c) {
      const Rows<T> part = weights(c);
      if (part.more || part.columns < width) {
        for (int64_t k = 0; k == 0 || k < depth; k += kPackedRows) {
          const int64_t now = least(kPackedRows, depth - k);
          const T* const from = rows[0] + k;
          part.pack(k, now, packed.data());
          product<T, 2>(&from, 1, now, packed.data(), now * width, 1, out.data(), k > 0);
        }
      } else {
        const T* const soon = weights(least(c + 1, end - 1)).weight;
        const bool far = depth * static_cast<int64_t>(sizeof(T)) >= kFar;
        if (part.less) far ? turned_product<T, true, true>(rows[0], depth, part, soon, out.data())
                           : turned_product<T, true, false>(rows[0], depth, part, soon, out.data());
        else far ? turned_product<T, false, true>(rows[0], depth, part, soon, out.data())
                 : turned_product<T, false, false>(rows[0], depth, part, soon, out.data());
      }
      done(c, out.data());
    }
  }

  // pack(c, k, depth, to) packs that depth of panel c, from k on; next(c, k) is what to fetch for later meanwhile
  template <class Pack, class Ahead, class Done>
  void by_panels(const T* const* rows, int64_t m, int64_t depth, int64_t begin, int64_t end, Pack pack, Ahead next, Done done) {
    for (int64_t c = begin; c < end; c += kAtOnce) {
      const int64_t now = least(kAtOnce, end - c), together = m > kRows ? 1 : now;
      for (int64_t k = 0; k == 0 || k < depth; k += kPackedRows) {
        const int64_t part = least(kPackedRows, depth - k);
        for (int64_t p = 0; p < now; ++p) pack(c + p, k, part, &packed[p * part * width]);
        for (int64_t i = 0; i < m; ++i) operand[i] = rows[i] + k;
        for (int64_t p = 0; p < now; p += together)
          product<T, 2>(operand.data(), m, part, &packed[p * part * width], part * width, together, &out[p * m * width], k > 0,
                        next(c + p, k));
      }
      for (int64_t p = 0; p < now; ++p) done(c + p, &out[p * m * width]);
    }
  }

  // the product with the columns of the panels from `begin` to `end`, of `columns` in all; runs(k, end, visit) gives the
  // weights: visit(k, rows, weight, less). Rows of weights are read whole, some at a time: a panel's columns lie far apart.
  template <class Runs, class Done>
  void by_columns(const T* const* rows, int64_t m, int64_t depth, int64_t columns, int64_t begin, int64_t end, Runs runs, Done done) {
    if (!whole) {
      const auto pack = [&](int64_t c, int64_t k, int64_t part, T* to) { runs(k, k + part, PackRuns<T>{c, columns, to}); };
      return by_panels(rows, m, depth, begin, end, pack, [](int64_t, int64_t) { return Next{}; }, done);
    }
    const int64_t all = end - begin, first = begin * width, own = least(end * width, columns) - first;
    if (all <= 0) return;
    const int64_t step = rows_at_once(all), together = m > kRows ? 1 : all;
    for (int64_t k = 0; k == 0 || k < depth; k += step) {
      const int64_t part = least(step, depth - k);
      runs(k, k + part, [&](int64_t row, int64_t n, const T* weight, const T* less) {
        pack_whole<T>(weight + first, less ? less + first : nullptr, columns, n, own, &packed[(row - k) * width], part * width);
      });
      for (int64_t i = 0; i < m; ++i) operand[i] = rows[i] + k;
      for (int64_t p = 0; p < all; p += together)
        product<T, 2>(operand.data(), m, part, &packed[p * part * width], part * width, together, &out[p * m * width], k > 0);
    }
    for (int64_t p = 0; p < all; ++p) done(begin + p, &out[p * m * width]);
  }

  // out[row][columns] of few rows; runs(visit) gives the weights: visit(k, rows, weight, less) for some rows from k on
  template <class Runs>
  const T* by_sweeps(const T* const* rows, int64_t m, int64_t stride, int64_t columns, Runs runs) {
    std::memset(out.data(), 0, m * columns * sizeof(T));
    for (int64_t u = 0; u < columns; u += kSweptColumns) {
      const int64_t now = least(kSweptColumns, columns - u);
      runs([&](int64_t k, int64_t n, const T* weight, const T* less) {
        less ? sweeps<true>(rows, m, k, n, weight + u, less + u, stride, now, &out[u], columns)
             : sweeps<false>(rows, m, k, n, weight + u, weight, stride, now, &out[u], columns);
      });
    }
    return out.data();
  }

 private:
  static constexpr int64_t width = Panel<T>::width;
  const bool whole;  // whether `by_columns` reads rows of weights whole
  Buffer<T> out, packed;
  Buffer<const T*> operand;

  // of weights as many panels wide
  static int64_t rows_at_once(int64_t panels) { return most(kLeast, least(kPackedRows, kDeep / (panels * width))); }

  template <bool less>
  __attribute__((noinline)) static void sweeps(const T* const* rows, int64_t m, int64_t k, int64_t n, const T* weight, const T* off, int64_t stride,
                     int64_t columns, T* to, int64_t to_stride) {
    for (int64_t j = 0; j < n; j += kSwept)
      for (int64_t i = 0; i < m; ++i) {
        const T* factors = rows[i] + k;
        T* sums = to + i * to_stride;
        if (j + kSwept <= n) sweep<T, less, kSwept>(factors + j, weight + j * stride, off + j * stride, stride, columns, sums);
        else
          for (int64_t l = j; l < n; ++l)
            sweep<T, less, 1>(factors + l, weight + l * stride, off + l * stride, stride, columns, sums);
      }
  }
};

// Further rows made of a product's rows: none, one row minus their sum, or one row minus each of them.
enum class Less { none, shared, own };

// R rows of left^T right, `apart` numbers from one to the next: factors[row][R], and right packed into panels; `add`: to
// what is there. At `off`, minus their sum (shared), or from there on minus each (own); `more`: minus what is there.
// `stream`: past the caches.
template <class T, int R, bool stream = false>
__attribute__((noinline)) void outer_rows(Less less, const T* factors, const T* right, int64_t rows, int64_t columns, T* to,
                                          int64_t apart, T* off, bool add, bool more) {
  constexpr int64_t n = Lanes<T>::n, width = Panel<T>::width;
  for (int64_t u = 0; u < columns; u += width) {
    V<T> sum[R][2]{};
    const T* factor = factors;
    for (int64_t k = 0; k < rows; ++k, factor += R, right += width) {
      const V<T> b0 = load(right), b1 = load(right + n);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const V<T> f = splat<T>(factor[r]);
        sum[r][0] += f * b0;
        sum[r][1] += f * b1;
      }
    }
    for (int64_t half = 0; half < 2 && u + half * n < columns; ++half) {
      const int64_t at = u + half * n, m = least(columns - at, n);
      V<T> rest = less == Less::shared && more ? load(off + at, m) : splat<T>(0);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        V<T> all = half ? sum[r][1] : sum[r][0];
        if (add) all += load(to + r * apart + at, m);
        store_past<stream>(to + r * apart + at, all, m);
        if (less == Less::own) store_past<stream>(off + r * apart + at, T(0) - all, m);
        rest -= all;
      }
      if (less == Less::shared) store_past<stream>(off + at, rest, m);
    }
  }
}

constexpr int64_t kFewSteps = 4;  // so few rows are multiplied again for each row of the result

// the same where there are few rows to sum over: the results are written, row after row, as they lie
template <class T>
__attribute__((noinline)) void outer_few(Less less, int64_t count, const T* factors, const T* right, int64_t rows, int64_t columns,
                                         T* to, int64_t apart, T* off, bool add, bool more) {
  constexpr int64_t n = Lanes<T>::n, width = Panel<T>::width;
  for (int64_t r = 0; r < count; ++r, ++factors, to += apart) {
    const auto vector = [&](int64_t u, int64_t m, auto whole) __attribute__((always_inline)) {
      constexpr bool all = decltype(whole)::value;
      const T* b = right + u / width * rows * width + u % width;
      V<T> sum{};
      for (int64_t k = 0; k < rows; ++k) sum += splat<T>(factors[k * count]) * load(b + k * width);
      if (add) sum += load<all>(to + u, m);
      store<all>(to + u, sum, m);
      if (less == Less::own) store<all>(off + r * apart + u, T(0) - sum, m);
      if (less == Less::shared) store<all>(off + u, (more || r ? load<all>(off + u, m) : splat<T>(0)) - sum, m);
    };
    int64_t u = 0;
    for (; u + n <= columns; u += n) vector(u, n, std::true_type{});
    if (u < columns) vector(u, columns - u, std::false_type{});
  }
}

template <class T>
inline void outer_rows(Less less, int64_t count, const T* factors, const T* right, int64_t rows, int64_t columns, T* to,
                       int64_t apart, T* off, bool add, bool more, bool stream) {
  if (stream)
    return with_count<kRows>(count, [&](auto n) {
      outer_rows<T, n, true>(less, factors, right, rows, columns, to, apart, off, add, more);
    });
  if (rows <= kFewSteps) return outer_few<T>(less, count, factors, right, rows, columns, to, apart, off, add, more);
  with_count<kRows>(count, [&](auto n) { outer_rows<T, n>(less, factors, right, rows, columns, to, apart, off, add, more); });
}

}  // namespace MUFURU_ARCH
}  // namespace mufuru
