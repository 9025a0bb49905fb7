// The forward pass: a worker takes its sequences through all the steps.
#pragma once
#include "ops.h"
#include "shape.h"

namespace mufuru {
namespace MUFURU_ARCH {

template <class T, class Ops>
class Forward {
 public:
  Forward(const Problem& problem, int64_t worker, int64_t workers, int64_t first_step)
      : at(problem),
        in(problem),
        ops(problem),
        packed(static_cast<const T*>(problem.space)),
        mine(problem, worker, workers),
        n(mine.n),
        plain(Ops::fixed && in.activation == kTanh && (!at.K || in.b_op) && !in.allowed && !in.p && !in.zoneout && !in.state_mask),
        keeping(in.gates),
        state(n * at.H),
        seen(n * at.seen),
        next_seen(n * at.seen),
        reset_state(at.before ? n * at.H : 0),
        controller(n * at.K),
        stretch(at.stretch(n)),
        gates(in.gates ? 0 : stretch * n * at.W),
        probs(at.K && !in.gates ? n * at.logits * at.H : 0),
        units(tile_size<T>(n, at.H)),
        resets(at.after ? tile_size<T>(n, at.H) : 0),
        tiles(most(tile_size<T>(n * stretch, most(at.W, at.H)), n * at.logits * at.width)),
        operand(stretch * n),
        gate_rows(stretch * n),
        rows(n) {
    for (int64_t i = 0; i < n; ++i) start(i, first_step);
  }

  void run() {
    for (int64_t done = 0; done < in.steps; done += stretch) {
      const int64_t count = least(stretch, in.steps - done);
      project(done, count);
      for (int64_t k = 0; k < count; ++k) step(mine.in_order(done + k), k, true);
    }
    for (int64_t i = 0; i < n; ++i) {
      std::memcpy(static_cast<T*>(in.s_n) + mine.index(i) * at.H, &state[i * at.H], at.H * sizeof(T));
      if (at.K) std::memcpy(static_cast<T*>(in.k_n) + mine.index(i) * at.K, &seen[i * at.seen + at.H], at.K * sizeof(T));
    }
  }

  // the gates of one step; its new state is left to compose_step
  void activate(int64_t t) {
    project(mine.in_order(t), 1);
    step(t, 0, false);
  }

  // the new state of a step whose gates are known
  void compose_step(int64_t t) {
    enter(t, 0);
    for (int64_t i = 0; i < alive; ++i)
      for (int64_t u = 0; u < at.H; u += N) {
        const int64_t m = lanes(u);
        V<T> p[kMaxOps];
        kept_weights<false, T>(at, ops.size() - 1, rows[i].probs + u, rows[i].allowed, m, p);
        new_state<false>(i, u, m, p, load(rows[i].gates + u, m));
      }
  }

 private:
  static constexpr int64_t N = Lanes<T>::n;
  // where the parts of one sequence's step lie
  struct Row {
    T *gates, *probs, *output, *p, *v, *inner;
    const T *zoneout, *mask;
    const uint8_t* allowed;
    int64_t place;  // among all rows of all steps
  };
  const Shape<T> at;
  const Problem& in;
  const Ops ops;
  const T* packed;
  const Share mine;
  const int64_t n;
  const bool plain;    // none of the rarer options
  const bool keeping;  // a backward pass will come
  int64_t alive = 0;
  Buffer<T> state, seen, next_seen, reset_state, controller;
  const int64_t stretch;
  Buffer<T> gates, probs;  // only when they are not kept
  Buffer<T> units, resets, tiles;  // products: of units with one block of the weights, and others
  Buffer<const T*> operand;
  Buffer<T*> gate_rows;
  Buffer<Row> rows;

  int64_t lanes(int64_t u) const { return least(at.H - u, N); }
  // the gates of sequence i at step t, the k-th of a stretch
  T* gate_row(int64_t t, int64_t i, int64_t k) {
    return in.gates ? at.row(in.gates, t, mine.index(i), at.W) : &gates[(k * n + i) * at.W];
  }
  const T* const* rows_of(const Buffer<T>& matrix, int64_t width) {
    for (int64_t i = 0; i < alive; ++i) operand[i] = &matrix[i * width];
    return operand.data();
  }

  void start(int64_t i, int64_t t) {
    rows[i].mask = in.state_mask ? static_cast<const T*>(in.state_mask) + mine.index(i) * at.H : nullptr;
    rows[i].allowed = in.allowed ? in.allowed + mine.index(i) * at.L : nullptr;
    std::memcpy(&state[i * at.H], at.before_row(in.output, at.H, in.s0, at.H, t, mine.index(i)), at.H * sizeof(T));
    for (int64_t u = 0; u < at.H; u += N) see(seen, i, u, lanes(u), load(&state[i * at.H + u], lanes(u)));
    if (!at.K) return;
    const T* kept = in.gates ? static_cast<const T*>(in.gates) + at.rest : nullptr;
    const T* k = at.before_row(kept, at.W, in.k0, at.K, t, mine.index(i));
    std::memcpy(&seen[i * at.seen + at.H], k, at.K * sizeof(T));
  }

  void enter(int64_t t, int64_t k) {
    alive = mine.alive(t);
    for (int64_t i = 0; i < alive; ++i) {
      Row& row = rows[i];
      row.place = in.offsets[t] + mine.index(i);
      row.gates = gate_row(t, i, k);
      row.probs = row.gates + at.rest;
      if (at.K) row.probs = in.gates ? at.row(in.probs, t, mine.index(i), at.logits * at.H) : &probs[i * at.logits * at.H];
      row.output = at.row(in.output, t, mine.index(i), at.H);
      row.p = in.p ? at.row(in.p, t, mine.index(i), at.L * at.H) : nullptr;
      row.v = in.v ? at.row(in.v, t, mine.index(i), at.H) : nullptr;
      row.inner = in.inner ? at.row(in.inner, t, mine.index(i), at.H) : nullptr;
      row.zoneout = in.zoneout ? at.row(in.zoneout, t, mine.index(i), at.H) : nullptr;
    }
  }

  // products of the inputs of `count` steps, beginning with the one that is `first` in order
  void project(int64_t first, int64_t count) {
    int64_t m = 0;
    for (int64_t k = 0; k < count; ++k) {
      const int64_t t = mine.in_order(first + k), alive = mine.alive(t);
      for (int64_t i = 0; i < alive; ++i, ++m) {
        operand[m] = at.row(in.x, t, mine.index(i), at.X);
        gate_rows[m] = gate_row(t, i, k);
      }
    }
    const T* bias = packed + at.packed_bias();
    each_product<T>(operand.data(), m, at.X, packed + at.packed_x(), at.W, tiles.data(),
                    [&](int64_t i, int64_t column, int64_t l, V<T> y) __attribute__((always_inline)) {
                      store(gate_rows[i] + column, y + load(bias + column, l), l);
                    });
  }

  void step(int64_t t, int64_t k, bool composing) {
    enter(t, k);
    for (int64_t i = 0; in.resets && i < alive; ++i)
      if (in.resets[rows[i].place]) start(i, t);
    if (at.before) reset_gate();
    if (at.K) control();
    const int64_t together = alive > kRows ? 1 : at.chunks();
    for (int64_t c = 0; c < at.chunks(); c += together) {
      from_state(c, together);
      for (int64_t k = 0; k < together; ++k) chunk(c + k, k, composing);
    }
    for (int64_t i = alive; i < n; ++i)  // ended, or (in reverse) not begun: the state stays
      std::memcpy(&next_seen[i * at.seen], &seen[i * at.seen], at.seen * sizeof(T));
    seen.swap(next_seen);
  }

  // what products will see of a state
  void see(Buffer<T>& to, int64_t i, int64_t u, int64_t m, V<T> s) {
    if (rows[i].mask) s *= load(rows[i].mask + u, m);
    store(&to[i * at.seen + u], s, m);
  }

  void reset_gate() {
    each_product<T>(rows_of(seen, at.seen), alive, at.H, packed + at.packed_r(), at.H, tiles.data(),
                    [&](int64_t i, int64_t u, int64_t m, V<T> y) __attribute__((always_inline)) {
                      T* gate = rows[i].gates + at.r + u;
                      const V<T> r = sigmoid<T>(load(gate, m) + y);
                      if (keeping) store(gate, r, m);
                      store(&reset_state[i * at.H + u], r * load(&seen[i * at.seen + u], m), m);
                    });
  }

  // k = tanh or relu(from x + W_hk s + W_kk k), the operand of the logits and part of what the next step sees
  void control() {
    each_product<T>(rows_of(seen, at.seen), alive, at.seen, packed + at.packed_k(), at.K, tiles.data(),
                    [&](int64_t i, int64_t u, int64_t m, V<T> y) __attribute__((always_inline)) {
                      T* gate = rows[i].gates + at.rest + u;
                      V<T> k = load(gate, m) + y;
                      k = in.controller_activation == kTanh ? tanh<T>(k) : k < T(0) ? splat<T>(0) : k;
                      store(gate, k, m);
                      store(&controller[i * at.K + u], k, m);
                      store(&next_seen[i * at.seen + at.H + u], k, m);
                    });
  }

  // what the features of `count` panels of units take from the state and, with the reset gate after it, that gate too
  void from_state(int64_t first, int64_t count) {
    const T* panel = packed + at.packed_chunks() + first * at.packed_chunk();
    const T* const* operands = at.before ? rows_of(reset_state, at.H) : rows_of(seen, at.seen);
    product<T>(operands, alive, at.H, panel, at.packed_chunk(), first, count, at.H, units.data());
    if (!at.after) return;
    product<T>(operands, alive, at.H, panel + at.H * at.width, at.packed_chunk(), first, count, at.H, resets.data());
  }

  // features, weights and new state of the units of panel c, the k-th of those that from_state worked on
  void chunk(int64_t c, int64_t k, bool composing) {
    const int64_t tile = alive * at.width;
    const T* panel = packed + at.packed_chunks() + c * at.packed_chunk() + (at.after ? 2 : 1) * at.H * at.width;
    const T* const* operands = at.K ? rows_of(controller, at.K) : rows_of(seen, at.seen);
    product<T>(operands, alive, at.logit_depth, panel, at.logit_depth * at.width, at.logits, is_half<T>(at.H, c), tiles.data());
    each_vector<T>(&units[k * tile], alive, c, 1, at.H, [&](int64_t i, int64_t u, int64_t m, V<T> y) __attribute__((always_inline)) {
      const int64_t place = i * at.width + u - c * at.width;
      const V<T> reset_y = at.after ? load(&resets[k * tile + place]) : V<T>{};
      if (plain && m == N) unit<Ops::fixed>(i, u, N, y, reset_y, &tiles[place], tile, composing);
      else unit<false>(i, u, m, y, reset_y, &tiles[place], tile, composing);
    });
  }

  // `plain` here and below: a whole vector and none of the rarer options, so that the code has no branches
  template <bool plain>
  __attribute__((always_inline)) void unit(int64_t i, int64_t u, int64_t m, V<T> y, V<T> reset_y, const T* logits,
                                           int64_t tile, bool composing) {
    const V<T> v = feature<plain>(i, u, m, y, reset_y);
    V<T> p[plain ? Ops::most : kMaxOps];
    softmax<plain>(i, u, m, logits, tile, p);
    if (composing) new_state<plain>(i, u, m, p, v);
  }

  template <bool plain>
  V<T> feature(int64_t i, int64_t u, int64_t m, V<T> from_s, V<T> reset_from_s) {
    T* gate = rows[i].gates + u;
    if (at.after) {
      const V<T> r = sigmoid<T>(load<plain>(gate + at.r, m) + reset_from_s);
      if (keeping) store<plain>(gate + at.r, r, m);
      if (in.b_hh) from_s += load<plain>(static_cast<const T*>(in.b_hh) + u, m);
      if (rows[i].inner) store<plain>(rows[i].inner + u, from_s, m);
      from_s *= r;
    }
    V<T> v = load<plain>(gate, m) + from_s;
    v = plain || in.activation == kTanh ? tanh<T>(v) : sigmoid<T>(v);
    if (keeping) store<plain>(gate, v, m);
    if (!plain && rows[i].v) store(rows[i].v + u, v, m);
    return v;
  }

  // the weights p of all operations from the products with the state; kept for the backward pass but for the last
  template <bool plain>
  void softmax(int64_t i, int64_t u, int64_t m, const T* from_s, int64_t tile, V<T>* p) {
    const Row& row = rows[i];
    T* kept = row.probs + u;
    const int64_t last = ops.size() - 1;
    // what the products with the state are added to: the inputs' part, biases in it, or with a controller biases alone
    const T* added = at.K ? static_cast<const T*>(in.b_op) : row.probs;
    const T* reference = at.K ? added + (added ? last * at.H : 0) : packed + at.packed_bias() + at.W;
    const V<T> forbidden = splat<T>(-std::numeric_limits<T>::infinity());
    p[last] = plain || reference ? load<plain>(reference + u, m) : splat<T>(0);
    if (!plain && row.allowed && !row.allowed[last]) p[last] = forbidden;
    V<T> top = p[last];
    for (int64_t j = 0; j < last; ++j) {
      p[j] = load(from_s + j * tile);
      if (plain || added) p[j] += load<plain>(added + j * at.H + u, m);
      if (!plain && row.allowed && !row.allowed[j]) p[j] = forbidden;
      top = higher<T>(p[j], top);
    }
    V<T> sum{};
    for (int64_t j = 0; j <= last; ++j) sum += p[j] = exp_falling<T>(p[j] - top);
    const V<T> scale = T(1) / sum;
    for (int64_t j = 0; j <= last; ++j) {
      p[j] *= scale;
      if (keeping && j < last) store<plain>(kept + j * at.H, p[j], m);
      if (!plain && row.p) store(row.p + j * at.H + u, p[j], m);
    }
  }

  template <bool plain>
  void new_state(int64_t i, int64_t u, int64_t m, const V<T>* p, V<T> v) {
    const Row& row = rows[i];
    const V<T> s = load<plain>(&state[i * at.H + u], m);
    V<T> sum{};
    for (int64_t j = 0; j < ops.size(); ++j) {
      if (ops.built_in(j)) sum += p[j] * compose<T>(ops[j], s, v).value;
      else sum += p[j] * load(at.custom_row(in.custom, j, row.place) + u, m);
    }
    if (!plain && row.zoneout) {
      const V<T> share = load(row.zoneout + u, m);
      sum = share * s + (T(1) - share) * sum;
    }
    store<plain>(row.output + u, sum, m);
    store<plain>(&state[i * at.H + u], sum, m);
    if (plain) store(&next_seen[i * at.seen + u], sum);
    else see(next_seen, i, u, m, sum);
  }
};

}  // namespace MUFURU_ARCH
}  // namespace mufuru
