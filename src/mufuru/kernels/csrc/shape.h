// The problem with types: sizes, where things lie in a row of gates, and how the weights are packed.
#pragma once
#include "panels.h"
#include "problem.h"

namespace mufuru {
namespace MUFURU_ARCH {

template <class T>
struct Shape {
  const Problem& in;
  int64_t X, H, K, L, logits;    // X inputs; logits: all operations but the reference
  int64_t r, rest, W;            // columns of gates: v at 0, r, then logits or k; W in all
  int64_t seen;                  // what products see: the state and, with a controller, its last state
  int64_t logit_depth;           // the operand of the logits: the state or the controller
  int64_t first;                 // first column of d_gates that flows straight back to the state
  bool before, after;

  explicit Shape(const Problem& p)
      : in(p),
        X(p.inputs),
        H(p.hidden),
        K(p.controller),
        L(p.ops),
        logits(p.ops - 1),
        before(p.reset == kBefore),
        after(p.reset == kAfter) {
    r = H;
    rest = p.reset == kNoReset ? H : 2 * H;
    W = rest + (K ? K : logits * H);
    seen = H + K;
    logit_depth = K ? K : H;
    first = before ? H : 0;
  }

  static constexpr int64_t width = Panel<T>::width;
  int64_t chunks() const { return panels<T>(H); }

  // packed for the forward pass: reset (if before), controller, chunk by chunk feature, reset (if after) and logits,
  // inputs, and what is added to their products, behind it the reference's bias
  int64_t packed_r() const { return 0; }
  int64_t packed_k() const { return before ? chunks() * H * width : 0; }
  int64_t packed_chunks() const { return packed_k() + (K ? panels<T>(K) * seen * width : 0); }
  int64_t packed_chunk() const { return ((after ? 2 : 1) * H + logits * logit_depth) * width; }
  int64_t packed_x() const { return packed_chunks() + chunks() * packed_chunk(); }
  int64_t packed_bias() const { return packed_x() + panels<T>(W) * X * width; }
  int64_t packed_size() const { return packed_bias() + W + (K ? 0 : H); }
  // and for the backward pass: feature (if before), all else to the state, logits to controller, its own loop, inputs
  int64_t back_state() const { return before ? chunks() * H * width : 0; }
  int64_t back_logits() const { return back_state() + chunks() * (W - first) * width; }
  int64_t back_k() const { return back_logits() + (K ? panels<T>(K) * logits * H * width : 0); }
  int64_t back_x() const { return back_k() + (K ? panels<T>(K) * K * width : 0); }
  int64_t back_size() const { return back_x() + panels<T>(X) * W * width; }

  // the gradients of the weights as Gradients sums them up: by inputs and state, by the controller's last state, by k
  int64_t turned_size() const {
    const int64_t gates = panels<T>(H) + panels<T>(W - H), of_logits = K ? panels<T>(logits * H) : 0;
    return (gates * (X + H) + (panels<T>(K) + of_logits) * K) * width;
  }

  const T* weights(const void* p) const { return static_cast<const T*>(p); }
  int64_t rows_at(int64_t t) const { return in.offsets[t + 1] - in.offsets[t]; }
  T* row(void* base, int64_t t, int64_t i, int64_t size) const { return static_cast<T*>(base) + (in.offsets[t] + i) * size; }
  const T* row(const void* base, int64_t t, int64_t i, int64_t size) const {
    return static_cast<const T*>(base) + (in.offsets[t] + i) * size;
  }
  // whether sequence i begins anew at step t
  bool set_back(int64_t t, int64_t i) const { return in.resets && i < rows_at(t) && in.resets[in.offsets[t] + i]; }
  // the row that step t of sequence i started from: of an earlier step, or an initial one
  const T* before_row(const void* states, int64_t size, const void* initial, int64_t initial_size, int64_t t,
                      int64_t i) const {
    const int64_t earlier = in.reverse ? t + 1 : t - 1;
    if (earlier < 0 || earlier >= in.steps || i >= rows_at(earlier) || set_back(t, i))
      return static_cast<const T*>(initial) + i * initial_size;
    return row(states, earlier, i, size);
  }
  // steps worked on together where they need not follow each other: enough rows for the products to run at full speed
  int64_t stretch(int64_t rows) const { return rows >= 48 || rows < 1 ? 1 : 48 / rows; }
  const T* custom_row(const void* values, int64_t op, int64_t place) const {
    return static_cast<const T*>(values) + ((in.codes[op] - kCustom) * in.offsets[in.steps] + place) * H;
  }
};

// One worker's sequences: worker, worker + workers, ..., interleaved so that each worker has long and short ones.
struct Share {
  const Problem& in;
  const int64_t worker, workers, n;

  Share(const Problem& problem, int64_t worker, int64_t workers)
      : in(problem), worker(worker), workers(workers), n((problem.batch - worker + workers - 1) / workers) {}
  int64_t index(int64_t i) const { return worker + i * workers; }
  // the step that comes t-th
  int64_t in_order(int64_t t) const { return in.reverse ? in.steps - 1 - t : t; }
  // how many of the sequences have step t
  int64_t alive(int64_t t) const {
    const int64_t left = in.offsets[t + 1] - in.offsets[t] - worker;
    return left <= 0 ? 0 : (left + workers - 1) / workers;
  }
};

// The weights p that the forward pass kept; the last one is what is missing to 1.
template <bool plain, class T>
inline void kept_weights(const Shape<T>& at, int64_t logits, const T* kept, const uint8_t* allowed, int64_t m, V<T>* p) {
  V<T> last = splat<T>(1);
  for (int64_t j = 0; j < logits; ++j) last -= p[j] = load<plain>(kept + j * at.H, m);
  p[logits] = !plain && allowed && !allowed[logits] ? splat<T>(0) : last;
}

// the reference's row of W_ih for row i of the gates, or null where nothing is taken off
template <class T>
inline const T* reference_row(const Shape<T>& at, int64_t i) {
  if (at.K || i < at.rest) return nullptr;
  return static_cast<const T*>(at.in.w_ih) + (at.W + (i - at.rest) % at.H) * at.X;
}

template <class T>
void pack_forward(const Problem& problem, T* to) {
  const Shape<T> at(problem);
  const int64_t H = at.H, K = at.K, width = at.width;
  const T *w = at.weights(problem.w_hh), *kk = at.weights(problem.w_kk), *op = at.weights(problem.w_op);
  const T* logits = K ? op : w + at.rest * H;
  const T* reference = logits + at.logits * H * at.logit_depth;
  for (int64_t c = 0; c < panels<T>(K); ++c) {
    T* panel = to + at.packed_k() + c * at.seen * width;
    const int64_t columns = least(K - c * width, width);
    pack_rows<T>(w + (at.rest + c * width) * H, nullptr, H, H, columns, panel);
    pack_rows<T>(kk + c * width * K, nullptr, K, K, columns, panel + H * width);
  }
  for (int64_t c = 0; c < at.chunks(); ++c) {
    const int64_t u = c * width, columns = least(H - u, width);
    if (at.before) pack_rows<T>(w + (at.r + u) * H, nullptr, H, H, columns, to + at.packed_r() + c * H * width);
    T* panel = to + at.packed_chunks() + c * at.packed_chunk();
    pack_rows<T>(w + u * H, nullptr, H, H, columns, panel);
    panel += H * width;
    if (at.after) {
      pack_rows<T>(w + (at.r + u) * H, nullptr, H, H, columns, panel);
      panel += H * width;
    }
    const int64_t depth = at.logit_depth;
    for (int64_t j = 0; j < at.logits; ++j, panel += depth * width)
      pack_rows<T>(logits + (j * H + u) * depth, reference + u * depth, depth, depth, columns, panel);
  }
  T* inputs = to + at.packed_x();
  for (int64_t i = 0; i < panels<T>(at.W) * width; ++i) {
    T* column = inputs + i / width * at.X * width + i % width;
    const T *from = at.weights(problem.w_ih) + i * at.X, *less = i < at.W ? reference_row<T>(at, i) : nullptr;
    for (int64_t k = 0; k < at.X; ++k) column[k * width] = i < at.W ? (less ? from[k] - less[k] : from[k]) : 0;
  }
  const T *b_ih = at.weights(problem.b_ih), *b_hh = at.weights(problem.b_hh);
  T* bias = to + at.packed_bias();
  for (int64_t i = 0; i < at.packed_size() - at.packed_bias(); ++i) {
    const bool inside = at.after && i < H;  // added to the product with the state, before the reset gate
    bias[i] = b_ih ? b_ih[i] + (inside ? 0 : b_hh[i]) : 0;
  }
}

template <class T>
void pack_backward(const Problem& problem, T* to) {
  const Shape<T> at(problem);
  const int64_t H = at.H, K = at.K, width = at.width;
  const T *w = at.weights(problem.w_hh), *kk = at.weights(problem.w_kk), *op = at.weights(problem.w_op);
  for (int64_t c = 0; c < at.chunks(); ++c) {
    const int64_t u = c * width, columns = least(H - u, width);
    if (at.before) pack_columns<T>(w + u, nullptr, H, H, columns, to + c * H * width);
    T* panel = to + at.back_state() + c * (at.W - at.first) * width;
    const int64_t direct = (K ? at.W : at.rest) - at.first;
    pack_columns<T>(w + at.first * H + u, nullptr, H, direct, columns, panel);
    panel += direct * width;
    const T *logits = w + at.rest * H + u, *reference = logits + at.logits * H * H;
    for (int64_t j = 0; !K && j < at.logits; ++j, panel += H * width)
      pack_columns<T>(logits + j * H * H, reference, H, H, columns, panel);
  }
  for (int64_t c = 0; c < panels<T>(K); ++c) {
    const int64_t u = c * width, columns = least(K - u, width);
    T* panel = to + at.back_logits() + c * at.logits * H * width;
    for (int64_t j = 0; j < at.logits; ++j, panel += H * width)
      pack_columns<T>(op + j * H * K + u, op + at.logits * H * K + u, K, H, columns, panel);
    pack_columns<T>(kk + u, nullptr, K, K, columns, to + at.back_k() + c * K * width);
  }
  for (int64_t c = 0; c < panels<T>(at.X); ++c) {
    const int64_t u = c * width, columns = least(at.X - u, width);
    T* panel = to + at.back_x() + c * at.W * width;
    for (int64_t i = 0; i < at.W; ++i, panel += width) {
      const T* less = reference_row<T>(at, i);
      pack_columns<T>(at.weights(problem.w_ih) + i * at.X + u, less ? less + u : nullptr, at.X, 1, columns, panel);
    }
  }
}

// The backward pass's part of `space`: the weights as panels, and what only that pass reads.
template <class T>
struct Work {
  T* packed;
  T *d_gates, *d_probs, *d_inner;  // gradients of the pre-activations, of the controller's logits, of W_v s + b_v
  T *seen, *reset, *k;  // by step: the state that products saw, the same behind the reset gate, the controller's last
  T* turned;            // the gradients of the weights, a panel of their rows after another, transposed
  int64_t size = 0;

  Work(const Shape<T>& at, void* space) {
    const int64_t total = at.in.offsets[at.in.steps];
    const auto take = [&](int64_t n) {
      T* const here = space ? static_cast<T*>(space) + size : nullptr;
      size += (n + 15) / 16 * 16;
      return here;
    };
    packed = take(at.back_size());
    d_gates = take(total * at.W);
    d_probs = take(at.K ? total * at.logits * at.H : 0);
    d_inner = take(at.after ? total * at.H : 0);
    seen = take(total * at.H);
    reset = take(at.before ? total * at.H : 0);
    k = take(total * at.K);
    turned = take(at.turned_size());
  }
};

}  // namespace MUFURU_ARCH
}  // namespace mufuru
