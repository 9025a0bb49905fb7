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

// left^T right for one or two right sides, by their places in the list of them, and the column sums of left where
// wanted, also twice; each column of left becomes a row of the results.
template <class T>
struct Product {
  Matrix<const T> left;
  int64_t rights[2];
  T *to[2], *sums[2];
};

// R columns of left times one panel of right over `rows` rows, added to what is there or put in its place; both sides
// are packed, left kRows numbers a row.
template <class T, int R>
__attribute__((noinline)) void outer(const T* left, const T* right, int64_t rows, bool add, T* to, int64_t stride) {
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
  for (int r = 0; r < R; ++r, to += stride) {
    store(to, add ? load(to) + sum[r][0] : sum[r][0]);
    store(to + n, add ? load(to + n) + sum[r][1] : sum[r][1]);
  }
}

template <class T>
inline void outer(int64_t columns, const T* left, const T* right, int64_t rows, bool add, T* to, int64_t stride) {
  switch (columns) {
    case 1: return outer<T, 1>(left, right, rows, add, to, stride);
    case 2: return outer<T, 2>(left, right, rows, add, to, stride);
    case 3: return outer<T, 3>(left, right, rows, add, to, stride);
    case 4: return outer<T, 4>(left, right, rows, add, to, stride);
    case 5: return outer<T, 5>(left, right, rows, add, to, stride);
    default: return outer<T, 6>(left, right, rows, add, to, stride);
  }
}

// One worker's share of all products: every workers-th group of columns of their left sides. A number of the result is
// summed by one worker in one order, so it does not depend on how many there are.
template <class T>
class Gradients {
 public:
  Gradients(const Problem& problem, const Work<T>& work) : at(problem), total(problem.offsets[problem.steps]) {
    const Problem& in = problem;
    const T *d_gates = work.d_gates, *gates = static_cast<const T*>(in.gates);
    T *d_ih = static_cast<T*>(in.d_ih), *d_hh = static_cast<T*>(in.d_hh), *d_kk = static_cast<T*>(in.d_kk);
    T *bias_ih = static_cast<T*>(in.d_bias_ih), *bias_hh = static_cast<T*>(in.d_bias_hh), *nothing = nullptr;
    const int64_t x = right({static_cast<const T*>(in.x), at.X, at.X}), seen = right({work.seen, at.H, at.H});
    const Matrix<const T> features{d_gates, at.W, at.H};
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
    for (int64_t i = 0; i < n_rights; room += panels<T>(rights[i++].columns) * kBlock * width) start[i] = room;
    Buffer<T> packed(room), left(kGroup * kBlock), edge(kRows * width);
    for (int64_t begin = 0; begin == 0 || begin < total; begin += kBlock) {
      const int64_t rows = least(kBlock, total - begin);
      bool is_packed[kRights] = {};
      for (int64_t i = 0, group = 0; i < n; ++i) {
        const Product<T>& p = products[i];
        for (int64_t first = 0; first < p.left.columns; first += kGroup, ++group) {
          if (group % workers != worker) continue;
          const int64_t columns = least(p.left.columns - first, kGroup);
          gather(p, first, columns, begin, rows, left.data());
          for (int64_t side = 0; side < 2 && p.rights[side] != kNone; ++side) {
            const int64_t r = p.rights[side];
            if (!is_packed[r]) pack(rights[r], begin, rows, &packed[start[r]]);
            is_packed[r] = true;
            T* to = p.to[side] + first * rights[r].columns;
            multiply(left.data(), columns, &packed[start[r]], rights[r].columns, rows, begin > 0, edge.data(), to);
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
  static constexpr int64_t kGroup = 4 * kRows;  // columns of left gathered together
  static constexpr int64_t kRights = 5, kNone = -1;
  const Shape<T> at;
  const int64_t total;
  Matrix<const T> rights[kRights];
  Product<T> products[5];
  int64_t n_rights = 0, n = 0;

  int64_t right(const Matrix<const T>& matrix) {
    rights[n_rights] = matrix;
    return n_rights++;
  }
  void add(const Product<T>& product) { products[n++] = product; }

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

  // a group of columns of the left side, kRows side by side, and their sums
  static void gather(const Product<T>& p, int64_t first, int64_t columns, int64_t begin, int64_t rows, T* to) {
    T sums[kGroup] = {};
    const T* from = p.left.data + begin * p.left.stride + first;
    if (columns == kGroup) gather(from, p.left.stride, kGroup, rows, to, sums);  // the loops know their lengths
    else gather(from, p.left.stride, columns, rows, to, sums);
    for (T* all : p.sums)
      for (int64_t r = 0; all && r < columns; ++r) all[first + r] = (begin ? all[first + r] : 0) + sums[r];
  }
  __attribute__((always_inline)) static void gather(const T* from, int64_t stride, int64_t columns, int64_t rows, T* to,
                                                    T* sums) {
    for (int64_t k = 0; k < rows; ++k, from += stride, to += kRows) {
      for (int64_t r = 0; r < columns; ++r) sums[r] += from[r];
      for (int64_t r = 0; r < columns; r += kRows)
        std::memcpy(to + r * rows, from + r, least(columns - r, kRows) * sizeof(T));
    }
  }

  // a group of columns of left times all panels of right; `edge` is for the last panel, if it is not whole
  static void multiply(const T* left, int64_t columns, const T* right, int64_t to_columns, int64_t rows, bool add, T* edge,
                       T* to) {
    for (int64_t u = 0; u < to_columns; u += width, right += rows * width)
      for (int64_t r = 0; r < columns; r += kRows) {
        const int64_t together = least(columns - r, kRows);
        T* place = to + r * to_columns + u;
        if (u + width <= to_columns) {
          outer<T>(together, left + r * rows, right, rows, add, place, to_columns);
          continue;
        }
        outer<T>(together, left + r * rows, right, rows, false, edge, width);
        for (int64_t i = 0; i < together; ++i, place += to_columns)
          for (int64_t c = 0; c < to_columns - u; ++c) place[c] = (add ? place[c] : 0) + edge[i * width + c];
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
