// The gradients of the weights: products over all rows of all steps, once the gradients of the gates are known.
#pragma once
#include "shape.h"

namespace mufuru {
namespace MUFURU_ARCH {

constexpr int64_t kBlock = 256;  // rows worked on together: their operands stay in cache

// A matrix, row-major, whose rows are `stride` apart.
template <class T>
struct Matrix {
  const T* data;
  int64_t stride, columns;
};

// left^T right for one or two right sides, by their places in the list of them, and the column sums of left where
// wanted, also twice; each column of left becomes a row of the results.
template <class T>
struct Product {
  Matrix<T> left;
  int64_t rights[2];
  T *to[2], *sums[2];
};

// R columns of right, packed kRows side by side, times one packed panel of left over `rows` rows, added to what is there
// or put in its place: R rows, a panel wide
template <class T, int R>
__attribute__((noinline)) void outer(const T* right, const T* left, int64_t rows, bool add, T* to) {
  constexpr int64_t n = Lanes<T>::n, width = Panel<T>::width;
  V<T> sum[R][2];  // unrolled throughout, so that it lives in registers
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = splat<T>(0);
  for (int64_t k = 0; k < rows; ++k, right += kRows, left += width) {
    const V<T> b0 = load(left), b1 = load(left + n);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V<T> factor = splat<T>(right[r]);
      sum[r][0] += factor * b0;
      sum[r][1] += factor * b1;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r, to += width) {
    store(to, add ? load(to) + sum[r][0] : sum[r][0]);
    store(to + n, add ? load(to + n) + sum[r][1] : sum[r][1]);
  }
}

template <class T>
inline void outer(int64_t columns, const T* right, const T* left, int64_t rows, bool add, T* to) {
  switch (columns) {
    case 1: return outer<T, 1>(right, left, rows, add, to);
    case 2: return outer<T, 2>(right, left, rows, add, to);
    case 3: return outer<T, 3>(right, left, rows, add, to);
    case 4: return outer<T, 4>(right, left, rows, add, to);
    case 5: return outer<T, 5>(right, left, rows, add, to);
    default: return outer<T, 6>(right, left, rows, add, to);
  }
}

// lane l is lane which[l] of a and b, one behind the other
template <class T>
__attribute__((always_inline)) inline V<T> chosen(V<T> a, V<T> b, I<T> which) {
#if defined(__clang__)
  V<T> y{};
  for (int64_t n = Lanes<T>::n, l = 0; l < n; ++l) y[l] = which[l] < n ? a[which[l]] : b[which[l] - n];
  return y;
#else
  return __builtin_shuffle(a, b, which);
#endif
}

// rows become columns: lane l of vector i goes to lane i of vector l, one bit of their numbers after the other
template <class T, int64_t bit = Lanes<T>::n / 2>
__attribute__((always_inline)) inline void transpose(V<T>* v) {
  constexpr int64_t n = Lanes<T>::n;
  I<T> upper{}, lower{};
#pragma GCC unroll 16
  for (int64_t l = 0; l < n; ++l) {
    upper[l] = l & bit ? n + l - bit : l;
    lower[l] = l & bit ? n + l : l + bit;
  }
#pragma GCC unroll 16
  for (int64_t i = 0; i < n; ++i) {
    if (i & bit) continue;
    const V<T> a = v[i], b = v[i + bit];
    v[i] = chosen<T>(a, b, upper);
    v[i + bit] = chosen<T>(a, b, lower);
  }
  if constexpr (bit > 1) transpose<T, bit / 2>(v);
}

// One worker's share of all products: every workers-th panel of their left sides. A number of the result is
// summed by one worker in one order, so it does not depend on how many there are.
template <class T>
class Gradients {
 public:
  Gradients(const Problem& problem, const Work<T>& work)
      : at(problem), total(problem.offsets[problem.steps]), turned(work.turned) {
    const Problem& in = problem;
    const T *d_gates = work.d_gates, *gates = static_cast<const T*>(in.gates);
    T *d_ih = static_cast<T*>(in.d_ih), *d_hh = static_cast<T*>(in.d_hh), *d_kk = static_cast<T*>(in.d_kk);
    T *bias_ih = static_cast<T*>(in.d_bias_ih), *bias_hh = static_cast<T*>(in.d_bias_hh), *nothing = nullptr;
    const int64_t x = right({static_cast<const T*>(in.x), at.X, at.X}), seen = right({work.seen, at.H, at.H});
    const Matrix<T> features{d_gates, at.W, at.H};
    if (at.after) {
      add({features, {x, kNone}, {d_ih, nothing}, {bias_ih, nothing}});
      add({{work.d_inner, at.H, at.H}, {seen, kNone}, {d_hh, nothing}, {bias_hh, nothing}});
    } else {
      const int64_t state = at.before ? right({work.reset, at.H, at.H}) : seen;
      add({features, {x, state}, {d_ih, d_hh}, {bias_ih, bias_hh}});
    }
    T *further_ih = bias_ih ? bias_ih + at.H : nothing, *further_hh = bias_hh ? bias_hh + at.H : nothing;
    add({{d_gates + at.H, at.W, at.W - at.H}, {x, seen}, {d_ih + at.H * at.X, d_hh + at.H * at.H}, {further_ih, further_hh}});
    if (!at.K) return;
    const int64_t before = right({work.k, at.K, at.K}), k = right({gates + at.rest, at.W, at.K});
    const int64_t logits = at.logits * at.H;
    add({{d_gates + at.rest, at.W, at.K}, {before, kNone}, {d_kk, nothing}, {nothing, nothing}});
    add({{work.d_probs, logits, logits}, {k, kNone}, {static_cast<T*>(in.d_op), nothing}, {static_cast<T*>(in.d_bias_op), nothing}});
  }

  void run(int64_t worker, int64_t workers) const {
    int64_t room = 0, start[kRights];
    for (int64_t i = 0; i < n_rights; room += groups(rights[i++].columns) * kBlock * kRows) start[i] = room;
    Buffer<T> packed(room), left(kBlock * width);
    for (int64_t begin = 0; begin == 0 || begin < total; begin += kBlock) {
      const int64_t rows = least(kBlock, total - begin);
      bool is_packed[kRights] = {};
      each_panel(worker, workers, [&](const Product<T>& p, int64_t first, T* sums) {
        take_panel(p, first, begin, rows, left.data());
        for (int64_t side = 0; side < 2 && p.rights[side] != kNone; ++side) {
          const int64_t r = p.rights[side], columns = rights[r].columns;
          if (!is_packed[r]) pack(rights[r], begin, rows, &packed[start[r]]);
          is_packed[r] = true;
          for (int64_t c = 0; c < columns; c += kRows)
            outer<T>(least(columns - c, kRows), &packed[start[r] + c * rows], left.data(), rows, begin > 0, sums + c * width);
          sums += columns * width;
        }
      });
    }
    each_panel(worker, workers, [&](const Product<T>& p, int64_t first, const T* sums) {
      for (int64_t side = 0; side < 2 && p.rights[side] != kNone; ++side) {
        const int64_t columns = rights[p.rights[side]].columns;
        turn(sums, columns, least(p.left.columns - first, width), p.to[side] + first * columns);
        sums += columns * width;
      }
    });
  }

  // the reference operation's rows are minus the sum of the others'
  void complete() const {
    const Problem& in = at.in;
    const int64_t H = at.H;
    if (at.K) {
      reference(static_cast<T*>(in.d_op), H * at.K);
      reference(static_cast<T*>(in.d_bias_op), H);
      return;
    }
    reference(static_cast<T*>(in.d_ih) + at.rest * at.X, H * at.X);
    reference(static_cast<T*>(in.d_hh) + at.rest * H, H * H);
    if (!in.d_bias_ih) return;
    reference(static_cast<T*>(in.d_bias_ih) + at.rest, H);
    reference(static_cast<T*>(in.d_bias_hh) + at.rest, H);
  }

 private:
  static constexpr int64_t width = Panel<T>::width, N = Lanes<T>::n;
  static constexpr int64_t kRights = 5, kNone = -1;
  const Shape<T> at;
  const int64_t total;
  T* const turned;  // the results, a panel of left after another, each transposed
  Matrix<T> rights[kRights];
  Product<T> products[5];
  int64_t n_rights = 0, n = 0;

  static int64_t groups(int64_t columns) { return (columns + kRows - 1) / kRows; }
  int64_t right(const Matrix<T>& matrix) {
    rights[n_rights] = matrix;
    return n_rights++;
  }
  void add(const Product<T>& product) { products[n++] = product; }

  // work(product, first column of left, place of its transposed results) for each panel of this worker
  template <class Each>
  void each_panel(int64_t worker, int64_t workers, Each work) const {
    T* place = turned;
    for (int64_t i = 0, panel = 0; i < n; ++i) {
      const Product<T>& p = products[i];
      const int64_t columns = rights[p.rights[0]].columns + (p.rights[1] == kNone ? 0 : rights[p.rights[1]].columns);
      for (int64_t first = 0; first < p.left.columns; first += width, ++panel, place += columns * width)
        if (panel % workers == worker) work(p, first, place);
    }
  }

  // some rows of right, kRows columns side by side
  static void pack(const Matrix<T>& from, int64_t begin, int64_t rows, T* to) {
    for (int64_t c = 0; c < from.columns; c += kRows) {
      const T* row = from.data + begin * from.stride + c;
      const int64_t size = least(from.columns - c, kRows) * sizeof(T);
      for (int64_t k = 0; k < rows; ++k, row += from.stride, to += kRows)
        if (size == kRows * sizeof(T)) std::memcpy(to, row, kRows * sizeof(T));
        else std::memcpy(to, row, size);
    }
  }

  // some rows of a panel of left, filled up with zeros, and their sums
  static void take_panel(const Product<T>& p, int64_t first, int64_t begin, int64_t rows, T* to) {
    const T* row = p.left.data + begin * p.left.stride + first;
    const int64_t columns = least(p.left.columns - first, width);
    V<T> sum[2]{};
    for (int64_t k = 0; k < rows; ++k, row += p.left.stride, to += width)
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t m = columns - half * N;
        const V<T> x = m > 0 ? load(row + half * N, m) : splat<T>(0);
        sum[half] += x;
        store(to + half * N, x);
      }
    for (T* all : p.sums)
      for (int64_t c = 0; all && c < columns; ++c) all[first + c] = (begin ? all[first + c] : 0) + sum[c / N][c % N];
  }

  // from a panel's results, `columns` rows of one panel's width, to `rows` rows of the gradient
  static void turn(const T* from, int64_t columns, int64_t rows, T* to) {
    for (int64_t half = 0; half < rows; half += N)
      for (int64_t c = 0; c < columns; c += N) {
        const T* corner = from + c * width + half;
        T* place = to + half * columns + c;
        if (c + N <= columns && half + N <= rows) turn<true>(corner, N, N, place, columns);
        else turn<false>(corner, least(columns - c, N), least(rows - half, N), place, columns);
      }
  }
  template <bool whole>
  __attribute__((always_inline)) static void turn(const T* from, int64_t columns, int64_t rows, T* to, int64_t stride) {
    V<T> v[N]{};
#pragma GCC unroll 16
    for (int64_t i = 0; i < N; ++i)
      if (whole || i < columns) v[i] = load(from + i * width);
    transpose<T>(v);
#pragma GCC unroll 16
    for (int64_t r = 0; r < N; ++r)
      if (whole || r < rows) store<whole>(to + r * stride, v[r], columns);
  }

  void reference(T* logits, int64_t size) const {
    if (!logits) return;
    T* last = logits + at.logits * size;
    for (int64_t i = 0; i < size; ++i) last[i] = 0;
    for (int64_t j = 0; j < at.logits; ++j)
      for (int64_t i = 0; i < size; ++i) last[i] -= logits[j * size + i];
  }
};

}  // namespace MUFURU_ARCH
}  // namespace mufuru
