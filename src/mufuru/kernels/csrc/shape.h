// The problem with types: sizes, the layout of a row of gates, and how the weights are packed.
#pragma once
#include "direct.h"
#include "multiply.h"
#include "problem.h"

namespace mufuru {
namespace MUFURU_ARCH {

template <class T>
struct Shape {
  const Problem& in;
  int64_t X, H, K, L, logits;    // X inputs; logits: all operations but the reference
  int64_t r, rest, W;            // columns of gates: v at 0, r, then logits or k; W in all
  int64_t seen;                  // width of a product's operand: the state and, with a controller, its last state
  int64_t logit_depth;           // the operand of the logits: the state or the controller
  int64_t first;                 // first column of d_gates that flows straight back to the state
  bool before, after, direct;
  const PairProducts* pairs;     // if products multiply pairs of bfloat16 numbers

  explicit Shape(const Problem& p)
      : in(p),
        X(p.inputs),
        H(p.hidden),
        K(p.controller),
        L(p.ops),
        logits(p.ops - 1),
        before(p.reset == kBefore),
        after(p.reset == kAfter),
        direct(p.direct),
        pairs(pairs_for<T>(p)) {
    r = H;
    rest = p.reset == kNoReset ? H : 2 * H;
    W = rest + (K ? K : logits * H);
    seen = H + K;
    logit_depth = K ? K : H;
    first = before ? H : 0;
  }

  static constexpr int64_t width = Panel<T>::width;
  int64_t chunks() const { return panels<T>(H); }
  // numbers of a packed panel
  int64_t panel(int64_t depth) const { return (pairs ? pairs_of(depth) : depth) * width; }
  // blocks of columns of gates: feature, reset, the logits one after another, or the controller
  int64_t blocks() const { return rest / H + (K ? 1 : logits); }
  int64_t block_size(int64_t block) const { return K && block * H == rest ? K : H; }
  int64_t block_panels() const { return (blocks() - 1) * chunks() + panels<T>(block_size(blocks() - 1)); }

  // packed for the forward pass: reset (if before), controller, chunk by chunk feature, reset (if after) and logits,
  // inputs, and what is added to their products, behind it the reference's bias
  int64_t packed_r() const { return 0; }
  int64_t packed_k() const { return before ? chunks() * panel(H) : 0; }
  int64_t packed_chunks() const { return packed_k() + (K ? panels<T>(K) * panel(seen) : 0); }
  int64_t packed_chunk() const { return (after ? 2 : 1) * panel(H) + logits * panel(logit_depth); }
  int64_t packed_x() const { return packed_chunks() + chunks() * packed_chunk(); }
  int64_t packed_bias() const { return packed_x() + panels<T>(W) * panel(X); }
  int64_t packed_size() const { return packed_bias() + W + (K ? 0 : H); }
  // and for the backward pass: feature (if before), all else to the state, logits to controller, its own loop, inputs
  int64_t back_state() const { return before ? chunks() * panel(H) : 0; }
  int64_t back_logits() const { return back_state() + chunks() * panel(W - first); }
  int64_t back_k() const { return back_logits() + (K ? panels<T>(K) * panel(logits * H) : 0); }
  int64_t back_x() const { return back_k() + (K ? panels<T>(K) * panel(K) : 0); }
  int64_t back_size() const { return back_x() + panels<T>(X) * panel(W); }

  // the gradients of the weights as Gradients sums them: by inputs and state, by the controller's last state, by k
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
  // whether sequence i is reset at step t
  bool set_back(int64_t t, int64_t i) const { return in.resets && i < rows_at(t) && in.resets[in.offsets[t] + i]; }
  // the row that step t of sequence i started from: of an earlier step, or an initial one
  const T* before_row(const void* states, int64_t size, const void* initial, int64_t initial_size, int64_t t,
                      int64_t i) const {
    const int64_t earlier = in.reverse ? t + 1 : t - 1;
    if (earlier < 0 || earlier >= in.steps || i >= rows_at(earlier) || set_back(t, i))
      return static_cast<const T*>(initial) + i * initial_size;
    return row(states, earlier, i, size);
  }
  // steps processed together where their order does not matter: enough rows for products at full speed
  int64_t stretch(int64_t rows) const { return rows < 1 ? 1 : most(1, least(in.steps, 48 / rows)); }
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
  // the t-th step in order
  int64_t in_order(int64_t t) const { return in.reverse ? in.steps - 1 - t : t; }
  // how many of the sequences have step t
  int64_t alive(int64_t t) const {
    const int64_t left = in.offsets[t + 1] - in.offsets[t] - worker;
    return left <= 0 ? 0 : (left + workers - 1) / workers;
  }
};

// The panels of columns of one member of several.
struct Range {
  int64_t begin, end;
  Range(int64_t all, int64_t member, int64_t members) : begin(all * member / members), end(all * (member + 1) / members) {}
};

// The weights p kept by the forward pass; the last one is 1 minus the others.
template <bool plain, bool whole, class T>
inline void kept_weights(const Shape<T>& at, int64_t logits, const T* kept, const uint8_t* allowed, int64_t m, V<T>* p) {
  V<T> last = splat<T>(1);
  for (int64_t j = 0; j < logits; ++j) last -= p[j] = load<whole>(kept + j * at.H, m);
  p[logits] = !plain && allowed && !allowed[logits] ? splat<T>(0) : last;
}

// the reference's row of W_ih for row i of the gates, or null where nothing is subtracted
template <class T>
inline const T* reference_row(const Shape<T>& at, int64_t i) {
  if (at.K || i < at.rest) return nullptr;
  return static_cast<const T*>(at.in.w_ih) + (at.W + (i - at.rest) % at.H) * at.X;
}

// the first n biases of the gates: b_ih + b_hh
template <class T>
inline void add_biases(const Shape<T>& at, int64_t n, T* to) {
  const T *b_ih = at.weights(at.in.b_ih), *b_hh = at.weights(at.in.b_hh);
  for (int64_t i = 0; i < n; ++i) {
    const bool inside = at.after && i < at.H;  // added to the product with the state, before the reset gate
    to[i] = b_ih ? b_ih[i] + (inside ? 0 : b_hh[i]) : 0;
  }
}

// The unpacked weights of panels in the forward pass: of the inputs, all blocks of gates for some units after another, so
// that the rows subtracted from the logits' stay in the cache; with a controller, which has no such rows, block by block, ...
template <class T>
struct InputPanel {
  int64_t block, c;
  InputPanel(const Shape<T>& at, int64_t i)
      : block(at.K ? least(i / at.chunks(), at.blocks() - 1) : i % at.blocks()),
        c(at.K ? i - block * at.chunks() : i / at.blocks()) {}
};
template <class T>
inline Rows<T> input_rows(const Shape<T>& at, const InputPanel<T>& panel) {
  const int64_t u = panel.c * at.width, row = panel.block * at.H + u;
  return {at.weights(at.in.w_ih) + row * at.X, reference_row<T>(at, row), at.X, least(at.block_size(panel.block) - u, at.width)};
}

// ... of the controller, by the state and by its own last state, ...
template <class T>
inline Rows<T> controller_rows(const Shape<T>& at, int64_t c) {
  const int64_t u = c * at.width;
  const T *by_state = at.weights(at.in.w_hh) + (at.rest + u) * at.H, *own = at.weights(at.in.w_kk) + u * at.K;
  return {by_state, nullptr, at.H, least(at.K - u, at.width), own, at.K, at.H};
}

// ... and of the j-th logits of the units of panel c
template <class T>
inline Rows<T> logit_rows(const Shape<T>& at, int64_t j, int64_t c) {
  const T* w = at.K ? at.weights(at.in.w_op) : at.weights(at.in.w_hh) + at.rest * at.H;
  const int64_t u = c * at.width, depth = at.logit_depth;
  return {w + (j * at.H + u) * depth, w + (at.logits * at.H + u) * depth, depth, least(at.H - u, at.width)};
}

// the inputs' weights of all gates together, without a gap between the blocks
template <class T>
inline void pack_inputs(const Shape<T>& at, int64_t c, T* to) {
  const T* w = at.weights(at.in.w_ih);
  const int64_t i = c * at.width, columns = least(at.W - i, at.width);
  const T *less = reference_row<T>(at, i), *last = reference_row<T>(at, i + columns - 1);
  if (!last || (less && last - less == (columns - 1) * at.X))  // the subtracted rows are contiguous too
    return pack_rows<T>(w + i * at.X, less, at.X, at.X, columns, to);
  std::memset(to, 0, at.X * at.width * sizeof(T));
  for (int64_t column = 0; column < columns; ++column) {
    const T *from = w + (i + column) * at.X, *off = reference_row<T>(at, i + column);
    for (int64_t k = 0; k < at.X; ++k) to[k * at.width + column] = off ? from[k] - off[k] : from[k];
  }
}

// Packs panels: pack(to) has the numbers of one, of this depth; where products multiply pairs, these go to its place.
template <class T>
class Packing {
 public:
  Packing(const Shape<T>& at, int64_t deepest) : at(at), room(at.pairs ? deepest * at.width : 0) {}
  template <class Pack>
  void operator()(int64_t depth, T* place, Pack pack) {
    if (!at.pairs) return pack(place);
    pack(room.data());
    if constexpr (sizeof(T) == 4) pair_rows(room.data(), depth, at.width, place);
  }

 private:
  const Shape<T>& at;
  Buffer<T> room;
};

template <class T>
void pack_forward(const Problem& problem, T* to, int64_t worker, int64_t workers) {
  const Shape<T> at(problem);
  const int64_t H = at.H, width = at.width;
  const T* w = at.weights(problem.w_hh);
  const Range k_panels(panels<T>(at.K), worker, workers), chunks(at.chunks(), worker, workers);
  const Range gates(panels<T>(at.W), worker, workers);
  Packing<T> pack(at, most(at.seen, at.X));
  for (int64_t c = k_panels.begin; c < k_panels.end; ++c)
    pack(at.seen, to + at.packed_k() + c * at.panel(at.seen),
         [&](T* place) { controller_rows<T>(at, c).pack(0, at.seen, place); });
  for (int64_t c = chunks.begin; c < chunks.end; ++c) {
    const int64_t u = c * width, columns = least(H - u, width);
    const auto by_state = [&](int64_t row, T* place) {
      pack(H, place, [&](T* place) { pack_rows<T>(w + (row + u) * H, nullptr, H, H, columns, place); });
      return place + at.panel(H);
    };
    if (at.before) by_state(at.r, to + at.packed_r() + c * at.panel(H));
    T* panel = by_state(0, to + at.packed_chunks() + c * at.packed_chunk());
    if (at.after) panel = by_state(at.r, panel);
    for (int64_t j = 0; j < at.logits; ++j, panel += at.panel(at.logit_depth))
      pack(at.logit_depth, panel, [&](T* place) { logit_rows<T>(at, j, c).pack(0, at.logit_depth, place); });
  }
  for (int64_t c = gates.begin; c < gates.end; ++c)
    pack(at.X, to + at.packed_x() + c * at.panel(at.X), [&](T* place) { pack_inputs<T>(at, c, place); });
  if (worker == 0) add_biases<T>(at, at.packed_size() - at.packed_bias(), to + at.packed_bias());
}

// The weights in the backward pass, `size` columns of them: visit(k, rows, weight, less) for the rows of gates from k on,
// as many at a time as are contiguous together with the rows subtracted from them
template <class T, class Visit>
inline void gate_runs(const Shape<T>& at, const void* weights, int64_t size, int64_t k, int64_t end, Visit visit) {
  const T* w = at.weights(weights);
  while (k < end) {
    const bool relative = !at.K && k >= at.rest;
    const int64_t inside = relative ? (k - at.rest) % at.H : 0;
    const int64_t next = relative ? k - inside + at.H : at.K ? end : at.rest;
    const int64_t n = least(next, end) - k;
    visit(k, n, w + k * size, relative ? w + (at.W + inside) * size : nullptr);
    k += n;
  }
}

// the same for rows of logits and the controller
template <class T, class Visit>
inline void logit_runs(const Shape<T>& at, int64_t k, int64_t end, Visit visit) {
  const T* w = at.weights(at.in.w_op);
  while (k < end) {
    const int64_t inside = k % at.H, n = least(k - inside + at.H, end) - k;
    visit(k, n, w + k * at.K, w + (at.logits * at.H + inside) * at.K);
    k += n;
  }
}

template <class T>
void pack_backward(const Problem& problem, T* to, int64_t worker, int64_t workers) {
  const Shape<T> at(problem);
  const int64_t H = at.H, K = at.K, width = at.width, logits = at.logits * H;
  Packing<T> pack(at, most(at.W, logits));
  const T *w = at.weights(problem.w_hh), *kk = at.weights(problem.w_kk);
  const Range chunks(at.chunks(), worker, workers), k_panels(panels<T>(K), worker, workers);
  const Range x_panels(panels<T>(at.X), worker, workers);
  for (int64_t c = chunks.begin; c < chunks.end; ++c) {
    const int64_t back = at.W - at.first;
    if (at.before)
      pack(H, to + c * at.panel(H), [&](T* place) { gate_runs<T>(at, w, H, 0, H, PackRuns<T>{c, H, place}); });
    pack(back, to + at.back_state() + c * at.panel(back),
         [&](T* place) { gate_runs<T>(at, w, H, at.first, at.W, PackRuns<T>{c, H, place}); });
  }
  for (int64_t c = k_panels.begin; c < k_panels.end; ++c) {
    pack(logits, to + at.back_logits() + c * at.panel(logits),
         [&](T* place) { logit_runs<T>(at, 0, logits, PackRuns<T>{c, K, place}); });
    pack(K, to + at.back_k() + c * at.panel(K),
         [&](T* place) { pack_columns<T>(kk + c * width, nullptr, K, K, least(K - c * width, width), place); });
  }
  for (int64_t c = x_panels.begin; c < x_panels.end; ++c)
    pack(at.W, to + at.back_x() + c * at.panel(at.W),
         [&](T* place) { gate_runs<T>(at, problem.w_ih, at.X, 0, at.W, PackRuns<T>{c, at.X, place}); });
}

// The backward pass's part of `space`: the weights as panels, and its own intermediate results.
template <class T>
struct Work {
  T* packed;
  T *d_gates, *d_probs, *d_inner;  // gradients of the pre-activations, of the controller's logits, of W_v s + b_v
  T *seen, *reset, *k;  // by step: the state that products saw, the same behind the reset gate, the controller's last
  T* turned;            // the gradients of the weights, panel by panel of their rows, transposed
  int64_t size = 0;

  Work(const Shape<T>& at, void* space) {
    const int64_t total = at.in.offsets[at.in.steps];
    const auto take = [&](int64_t n) {
      T* const here = space ? static_cast<T*>(space) + size : nullptr;
      size += (n + 15) / 16 * 16;
      return here;
    };
    packed = take(at.direct ? 0 : at.back_size());
    d_gates = take(total * at.W);
    d_probs = take(at.K ? total * at.logits * at.H : 0);
    d_inner = take(at.after ? total * at.H : 0);
    seen = take(total * at.H);
    reset = take(at.before ? total * at.H : 0);
    k = take(total * at.K);
    turned = take(at.direct ? 0 : at.turned_size());
  }
};

}  // namespace MUFURU_ARCH
}  // namespace mufuru
