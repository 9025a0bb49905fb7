// The gradients of the weights: products over all rows of all steps, once the gradients of the gates are known.
#pragma once
#include "direct.h"
#include "shape.h"

namespace mufuru {
namespace MUFURU_ARCH {

constexpr int64_t kBlock = 256;       // rows worked on together: their operands stay in cache
constexpr int64_t kCached = 1 << 25;  // bytes that a processor's last cache keeps, or its part for some cores

// left^T right for one or two right sides, by their places in the list of them, and the column sums of left where
// wanted, also twice; each column of left becomes a row of the results.
template <class T>
struct Product {
  Matrix<T> left;
  int64_t rights[2];
  T *to[2], *sums[2];
  int64_t ops = 0;  // number of operations whose logits are the columns; the reference's is minus their sum
};

// One worker's share of all products: every workers-th panel of their left sides. A number of the result is
// summed by one worker in one order, so it does not depend on how many there are.
template <class T>
class Gradients {
 public:
  Gradients(const Problem& problem, const Work<T>& work)
      : at(problem), total(problem.offsets[problem.steps]), turned(work.turned), stream(streamed()) {
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
    const int64_t others = (at.direct && !at.K ? at.rest : at.W) - at.H;
    add({{d_gates + at.H, at.W, others}, {x, seen}, {d_ih + at.H * at.X, d_hh + at.H * at.H}, {further_ih, further_hh}});
    if (at.direct && !at.K)
      add({{d_gates + at.rest, at.W, at.logits * at.H},
           {x, seen},
           {d_ih + at.rest * at.X, d_hh + at.rest * at.H},
           {bias_ih ? bias_ih + at.rest : nothing, bias_hh ? bias_hh + at.rest : nothing},
           at.logits});
    if (!at.K) return;
    const int64_t before = right({work.k, at.K, at.K}), k = right({gates + at.rest, at.W, at.K});
    const int64_t logits = at.logits * at.H;
    add({{d_gates + at.rest, at.W, at.K}, {before, kNone}, {d_kk, nothing}, {nothing, nothing}});
    add({{work.d_probs, at.logits * at.H, logits},
         {k, kNone},
         {static_cast<T*>(in.d_op), nothing},
         {static_cast<T*>(in.d_bias_op), nothing},
         at.direct ? at.logits : 0});
  }

  void run(int64_t worker, int64_t workers) const {
    int64_t room = 0, start[kRights];
    for (int64_t i = 0; i < n_rights; room += grouped(rights[i++].columns) * kBlock) start[i] = room;
    int64_t longest = 0;
    for (int64_t i = 0; i < n_rights; ++i) longest = most(longest, rights[i].columns);
    Buffer<T> packed(room), left(kBlock * width), row(at.pairs ? longest : 0);
    for (int64_t begin = 0; begin == 0 || begin < total; begin += kBlock) {
      const int64_t rows = least(kBlock, total - begin);
      bool is_packed[kRights] = {};
      each_panel(worker, workers, [&](const Product<T>& p, int64_t first, T* sums) {
        take_panel(p, first, begin, rows, left.data());
        const int64_t deep = at.pairs ? pairs_of(rows) : rows;
        if constexpr (sizeof(T) == 4)
          if (at.pairs) pair_rows(left.data(), rows, width, left.data());
        for (int64_t side = 0; side < 2 && p.rights[side] != kNone; ++side) {
          const int64_t r = p.rights[side], columns = rights[r].columns;
          if (!is_packed[r]) take_right(rights[r], begin, rows, row.data(), &packed[start[r]]);
          is_packed[r] = true;
          const int64_t together = at.pairs ? kRows : kTileColumns;  // products of pairs have one size of tile
          for (int64_t c = 0; c < columns; c += together)
            add_outer(least(columns - c, together), &packed[start[r] + c * deep], left.data(), deep, begin > 0, sums + c * width);
          sums += columns * width;
        }
      });
    }
    each_panel(worker, workers, [&](const Product<T>& p, int64_t first, const T* sums) {
      for (int64_t side = 0; side < 2 && p.rights[side] != kNone; ++side) {
        const int64_t columns = rights[p.rights[side]].columns;
        turn<T>(sums, columns, least(p.left.columns - first, width), p.to[side] + first * columns);
        sums += columns * width;
      }
    });
  }

  // the same directly into the results, a few of their rows at a time: for few rows of all steps
  void run_direct(int64_t member, int64_t members) const {
    int64_t room = 0, start[kRights];
    for (int64_t i = 0; i < n_rights; ++i) start[i] = room, room += panels<T>(rights[i].columns) * width * least(total, kBlock);
    Buffer<T> packed(room), factors(kBlock * kRows);
    for (int64_t begin = 0; begin == 0 || begin < total; begin += kBlock) {
      const Block block{begin, least(kBlock, total - begin), packed.data(), start, factors.data()};
      for (int64_t i = 0; i < n_rights; ++i) pack_right(rights[i], block, &packed[start[i]]);
      for (int64_t i = 0; i < n; ++i) {
        const Product<T>& p = products[i];
        const int64_t units = p.ops ? at.H : p.left.columns;
        const Range mine((units + kRows - 1) / kRows, member, members);
        const int64_t end = least(mine.end * kRows, units);
        if (p.ops < 2)
          for (int64_t u = mine.begin * kRows; u < end; u += kRows) some_rows(p, block, u, 1, least(end - u, kRows));
        else
          for (int64_t u = mine.begin * kRows; u < end; ++u)
            for (int64_t j = 0; j < p.ops; j += kRows) some_rows(p, block, j * at.H + u, at.H, least(p.ops - j, kRows));
      }
    }
    if (stream) end_streams();
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
  T* const turned;  // the results, panel by panel of left, each transposed
  const bool stream;  // whether the results are written past the caches
  Matrix<T> rights[kRights];
  Product<T> products[6];
  int64_t n_rights = 0, n = 0;

  // Where weights and gradients are more than a last cache holds, gradients that are written once would only drive the
  // weights out of it. Whole vectors: rows of sizes that fill them, in memory that begins where a vector may.
  bool streamed() const {
    const Problem& in = at.in;
    const int64_t bytes = (at.rest + at.L * at.H) * (at.X + at.H) * sizeof(T);
    const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % kLine == 0; };
    return kStreams && at.direct && !at.K && total <= kBlock && at.logits <= kRows && at.X % N == 0 && at.H % N == 0 &&
           aligned(in.d_ih) && aligned(in.d_hh) && 2 * bytes > kCached;
  }

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

  // some rows of a right side, and its products with a panel of left; `deep`: numbers or pairs
  void take_right(const Matrix<T>& right, int64_t begin, int64_t rows, T* row, T* to) const {
    if constexpr (sizeof(T) == 4)
      if (at.pairs) return pack_pair_groups(right, begin, rows, row, to);
    pack_groups(right, begin, rows, to);
  }
  void add_outer(int64_t columns, const T* right, const T* left, int64_t deep, bool add, T* to) const {
    if constexpr (sizeof(T) == 4)
      if (at.pairs) return at.pairs->outer(columns, right, left, deep, add, to);
    outer<T>(columns, right, left, deep, add, to);
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

  // Some rows of all steps: their right sides as panels, and memory for factors.
  struct Block {
    int64_t begin, rows;
    const T* packed;
    const int64_t* start;  // start of each right side among the packed ones
    T* factors;
  };

  static void pack_right(const Matrix<T>& right, const Block& block, T* to) {
    for (int64_t u = 0; u < right.columns; u += width, to += block.rows * width)
      pack_columns<T>(right.data + block.begin * right.stride + u, nullptr, right.stride, block.rows,
                      least(right.columns - u, width), to);
  }

  // the rows of the results for `count` columns of left, `apart` from one to the next
  void some_rows(const Product<T>& p, const Block& block, int64_t first, int64_t apart, int64_t count) const {
    const bool shared = p.ops > 1, more = shared && first >= at.H, add = block.begin > 0;
    const bool whole = block.begin + block.rows == total;
    const int64_t reference = p.ops * at.H + (shared ? first % at.H : first);
    const T* row = p.left.data + block.begin * p.left.stride + first;
    T sums[kRows] = {};
    for (int64_t k = 0; k < block.rows; ++k, row += p.left.stride)
      for (int64_t c = 0; c < count; ++c) sums[c] += block.factors[k * count + c] = row[c * apart];
    for (T* all : p.sums)
      for (int64_t c = 0; all && c < count; ++c) {
        T& sum = all[first + c * apart];
        sum = (add ? sum : 0) + sums[c];
        if (!p.ops) continue;
        T& rest = all[reference + (shared ? 0 : c)];
        rest = (shared && (more || c) ? rest : 0) - sum;
      }
    for (int64_t side = 0; side < 2 && p.rights[side] != kNone; ++side) {
      const int64_t columns = rights[p.rights[side]].columns;
      const Less less = shared && whole ? Less::shared : p.ops == 1 ? Less::own : Less::none;
      outer_rows<T>(less, count, block.factors, block.packed + block.start[p.rights[side]], block.rows, columns,
                    p.to[side] + first * columns, apart * columns, p.to[side] + reference * columns, add, more, stream);
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
