// The gradients of the weights: products over all rows of all steps, once the gradients of the gates are known.
#pragma once
#include "shape.h"

namespace mufuru {
namespace MUFURU_ARCH {

constexpr int64_t kBlock = 256;  // rows worked on together: their operands stay in cache

// A matrix, row-major, whose rows are `stride` apart.
template <class T>
struct Matrix {
  T* data;
  int64_t stride, columns;
};

// to = left^T right, and sums = the column sums of left where wanted; each column of left becomes a row of `to`.
template <class T>
struct Product {
  Matrix<const T> left, right;
  T *to, *sums;
};

// R columns of left times one panel of right over `rows` rows; both are packed, left kRows numbers a row.
template <class T, int R>
__attribute__((noinline)) void outer(const T* left, const T* right, int64_t rows, T* out) {
  constexpr int64_t n = Lanes<T>::n, width = Panel<T>::width;
  V<T> sum[R][2];  // unrolled throughout, so that it lives in registers
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = splat<T>(0);
  for (int64_t k = 0; k < rows; ++k, left += kRows, right += width) {
    const V<T> b0 = load(right), b1 = load(right + n);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V<T> factor = splat<T>(left[r]);
      sum[r][0] += factor * b0;
      sum[r][1] += factor * b1;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    store(out + r * width, sum[r][0]);
    store(out + r * width + n, sum[r][1]);
  }
}

template <class T>
inline void outer(int64_t columns, const T* left, const T* right, int64_t rows, T* out) {
  switch (columns) {
    case 1: return outer<T, 1>(left, right, rows, out);
    case 2: return outer<T, 2>(left, right, rows, out);
    case 3: return outer<T, 3>(left, right, rows, out);
    case 4: return outer<T, 4>(left, right, rows, out);
    case 5: return outer<T, 5>(left, right, rows, out);
    default: return outer<T, 6>(left, right, rows, out);
  }
}

// One worker's share of all products: every workers-th panel of their left sides. A number of the result is summed by
// one worker in one order, so it does not depend on how many there are.
template <class T>
class Gradients {
 public:
  explicit Gradients(const Problem& problem) : at(problem), total(problem.offsets[problem.steps]) {
    const Problem& in = problem;
    const T *d_gates = static_cast<const T*>(in.d_gates), *gates = static_cast<const T*>(in.gates);
    const Matrix<const T> x{static_cast<const T*>(in.x), at.X, at.X}, seen{static_cast<const T*>(in.seen_rows), at.H, at.H};
    const Matrix<const T> reset{static_cast<const T*>(in.reset_rows), at.H, at.H};
    T *d_ih = static_cast<T*>(in.d_ih), *d_hh = static_cast<T*>(in.d_hh), *d_bias = static_cast<T*>(in.d_bias_hh);
    add({{d_gates, at.W, at.W}, x, d_ih, static_cast<T*>(in.d_bias_ih)});
    if (at.after) add({{static_cast<const T*>(in.d_inner), at.H, at.H}, seen, d_hh, d_bias});
    else add({{d_gates, at.W, at.H}, at.before ? reset : seen, d_hh, d_bias});
    add({{d_gates + at.H, at.W, at.W - at.H}, seen, d_hh + at.H * at.H, d_bias ? d_bias + at.H : nullptr});
    if (!at.K) return;
    const Matrix<const T> k{gates + at.rest, at.W, at.K}, k_before{static_cast<const T*>(in.k_rows), at.K, at.K};
    add({{d_gates + at.rest, at.W, at.K}, k_before, static_cast<T*>(in.d_kk), nullptr});
    const int64_t logits = at.logits * at.H;
    add({{static_cast<const T*>(in.d_probs), logits, logits}, k, static_cast<T*>(in.d_op), static_cast<T*>(in.d_bias_op)});
  }

  void run(int64_t worker, int64_t workers) const {
    int64_t widest = 0;
    for (int64_t i = 0; i < n; ++i) widest = widest < products[i].right.columns ? products[i].right.columns : widest;
    Buffer<T> right(panels<T>(widest) * kBlock * width), left(kBlock * kRows), tile(kRows * width);
    for (int64_t begin = 0; begin == 0 || begin < total; begin += kBlock) {
      const int64_t rows = least(kBlock, total - begin);
      for (int64_t i = 0, panel = 0; i < n; panel += panels<T>(products[i++].left.columns)) {
        const Product<T>& p = products[i];
        bool packed = false;
        for (int64_t c = 0; c < panels<T>(p.left.columns); ++c) {
          if ((panel + c) % workers != worker) continue;
          if (!packed) pack(p.right, begin, rows, right.data());
          packed = true;
          for (int64_t r = c * width; r < least(p.left.columns, (c + 1) * width); r += kRows) {
            const int64_t columns = least(least(p.left.columns, (c + 1) * width) - r, kRows);
            gather(p, r, columns, begin, rows, left.data());
            multiply(p, r, columns, begin, rows, left.data(), right.data(), tile.data());
          }
        }
      }
    }
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
  static constexpr int64_t width = Panel<T>::width;
  const Shape<T> at;
  const int64_t total;
  Product<T> products[5];
  int64_t n = 0;

  void add(const Product<T>& product) {
    if (product.left.columns) products[n++] = product;
  }

  // some rows as panels of `width` columns, filled up with zeros
  static void pack(const Matrix<const T>& from, int64_t begin, int64_t rows, T* to) {
    for (int64_t c = 0; c < from.columns; c += width)
      for (int64_t k = 0; k < rows; ++k, to += width) {
        const T* row = from.data + (begin + k) * from.stride + c;
        for (int64_t half = 0; half < width; half += Lanes<T>::n) {
          const int64_t left = from.columns - c - half;
          store(to + half, left > 0 ? load(row + half, least(left, Lanes<T>::n)) : splat<T>(0));
        }
      }
  }

  // a few columns of the left side, packed, and their sums
  static void gather(const Product<T>& p, int64_t first, int64_t columns, int64_t begin, int64_t rows, T* to) {
    T sums[kRows] = {};
    const T* from = p.left.data + begin * p.left.stride + first;
    for (int64_t k = 0; k < rows; ++k, from += p.left.stride, to += kRows)
      for (int64_t r = 0; r < columns; ++r) sums[r] += to[r] = from[r];
    for (int64_t r = 0; p.sums && r < columns; ++r) p.sums[first + r] = (begin ? p.sums[first + r] : 0) + sums[r];
  }

  static void multiply(const Product<T>& p, int64_t first, int64_t columns, int64_t begin, int64_t rows, const T* left,
                       const T* right, T* tile) {
    const int64_t to_columns = p.right.columns;
    for (int64_t u = 0; u < to_columns; u += width, right += rows * width) {
      outer<T>(columns, left, right, rows, tile);
      for (int64_t r = 0; r < columns; ++r)
        for (int64_t half = 0; half < width && u + half < to_columns; half += Lanes<T>::n) {
          T* to = p.to + (first + r) * to_columns + u + half;
          const int64_t m = least(to_columns - u - half, Lanes<T>::n);
          const V<T> sum = load(tile + r * width + half);
          store(to, begin ? load(to, m) + sum : sum, m);
        }
    }
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
