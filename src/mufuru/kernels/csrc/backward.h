// The backward pass through the steps: gradients of pre-activations and of the initial state. The gradients of the
// weights are products over all the steps at once and wait for the end.
#pragma once
#include "ops.h"
#include "shape.h"

namespace mufuru {
namespace MUFURU_ARCH {

template <class T, class Ops>
class Backward {
 public:
  Backward(const Problem& problem, const Work<T>& work, int64_t worker, int64_t workers)
      : at(problem),
        in(problem),
        ops(problem),
        work(work),
        packed(work.packed),
        mine(problem, worker, workers),
        n(mine.n),
        plain(!in.allowed && !in.grad_p && !in.grad_v && !in.zoneout && in.activation == kTanh && Ops::fixed),
        d_state(n * at.H),
        d_seen(n * at.H),
        d_controller(n * at.K),
        inner_rows(at.after ? n * at.W : 0),
        stretch(at.stretch(n)),
        tiles(tile_size<T>(n * stretch, most(at.seen, at.X))),
        operand(n * stretch),
        rows(n) {
    for (int64_t i = 0; i < n; ++i) {
      rows[i].allowed = in.allowed ? in.allowed + mine.index(i) * at.L : nullptr;
      rows[i].mask = in.state_mask ? static_cast<const T*>(in.state_mask) + mine.index(i) * at.H : nullptr;
      if (in.grad_s_n)
        std::memcpy(&d_state[i * at.H], static_cast<const T*>(in.grad_s_n) + mine.index(i) * at.H, at.H * sizeof(T));
      if (at.K && in.grad_k_n)
        std::memcpy(&d_controller[i * at.K], static_cast<const T*>(in.grad_k_n) + mine.index(i) * at.K, at.K * sizeof(T));
    }
  }

  void run() {
    for (int64_t i = in.steps - 1; i >= 0; --i) {
      enter(mine.in_order(i));
      for (int64_t row = 0; row < alive; ++row)
        for (int64_t u = 0; u < at.H; u += N)
          if (plain && u + N <= at.H) composition<Ops::fixed>(row, u, N);
          else composition<false>(row, u, lanes(u));
      keep_operands();
      if (at.K) control();
      if (at.before) reset_gate();
      to_state();
      if (in.d_x && i % stretch == 0) to_inputs(i, least(i + stretch, in.steps));
    }
    for (int64_t i = 0; i < n; ++i) {
      std::memcpy(static_cast<T*>(in.d_s0) + mine.index(i) * at.H, &d_state[i * at.H], at.H * sizeof(T));
      if (at.K) std::memcpy(static_cast<T*>(in.d_k0) + mine.index(i) * at.K, &d_controller[i * at.K], at.K * sizeof(T));
    }
  }

 private:
  static constexpr int64_t N = Lanes<T>::n;
  // where the parts of one sequence's step lie
  struct Row {
    const T *gates, *probs, *inner, *before, *zoneout, *mask, *grad_output, *grad_p, *grad_v;
    T *d_gates, *d_logits, *d_inner, *seen;
    const uint8_t* allowed;
    int64_t place;
  };
  const Shape<T> at;
  const Problem& in;
  const Ops ops;
  const Work<T>& work;
  const T* packed;
  const Share mine;
  const int64_t n;
  const bool plain;  // none of the rarer options
  int64_t alive = 0;
  Buffer<T> d_state, d_seen, d_controller, inner_rows;
  const int64_t stretch;
  Buffer<T> tiles;
  Buffer<const T*> operand;
  Buffer<Row> rows;

  int64_t lanes(int64_t u) const { return least(at.H - u, N); }

  void enter(int64_t t) {
    alive = mine.alive(t);
    for (int64_t i = 0; i < alive; ++i) {
      Row& row = rows[i];
      row.place = in.offsets[t] + mine.index(i);
      row.gates = at.row(in.gates, t, mine.index(i), at.W);
      row.probs = at.K ? at.row(in.probs, t, mine.index(i), at.logits * at.H) : row.gates + at.rest;
      row.before = at.before_row(in.output, at.H, in.s0, at.H, t, mine.index(i));
      row.d_gates = at.row(work.d_gates, t, mine.index(i), at.W);
      row.seen = at.row(work.seen, t, mine.index(i), at.H);
      if (at.K) {
        const T* k = at.before_row(static_cast<const T*>(in.gates) + at.rest, at.W, in.k0, at.K, t, mine.index(i));
        std::memcpy(at.row(work.k, t, mine.index(i), at.K), k, at.K * sizeof(T));
      }
      row.d_logits = at.K ? at.row(work.d_probs, t, mine.index(i), at.logits * at.H) : row.d_gates + at.rest;
      row.inner = in.inner ? at.row(in.inner, t, mine.index(i), at.H) : nullptr;
      row.d_inner = at.after ? at.row(work.d_inner, t, mine.index(i), at.H) : nullptr;
      row.zoneout = in.zoneout ? at.row(in.zoneout, t, mine.index(i), at.H) : nullptr;
      row.grad_output = in.grad_output ? at.row(in.grad_output, t, mine.index(i), at.H) : nullptr;
      row.grad_p = in.grad_p ? at.row(in.grad_p, t, mine.index(i), at.L * at.H) : nullptr;
      row.grad_v = in.grad_v ? at.row(in.grad_v, t, mine.index(i), at.H) : nullptr;
    }
  }

  // from the gradient of the new state to those of the logits, the features and, directly, the old state; `plain`: a
  // whole vector and none of the rarer options, so that the code has no branches
  template <bool plain>
  void composition(int64_t i, int64_t u, int64_t m) {
    const Row& row = rows[i];
    const V<T> s = load<plain>(row.before + u, m), v = load<plain>(row.gates + u, m);
    V<T> g = load<plain>(&d_state[i * at.H + u], m), ds{}, dv{};
    if (row.grad_output) g += load<plain>(row.grad_output + u, m);
    if (!plain && row.zoneout) {
      const V<T> share = load(row.zoneout + u, m);
      ds = g * share;
      g *= T(1) - share;
    }
    if (!plain && row.grad_v) dv = load(row.grad_v + u, m);
    constexpr int64_t most = plain ? Ops::most : kMaxOps;
    V<T> p[most], dp[most], mean{};
    kept_weights<plain, T>(at, ops.size() - 1, row.probs + u, row.allowed, m, p);
    for (int64_t j = 0; j < ops.size(); ++j) {
      const Composed<T> f = composed(j, row, u, m, s, v);
      const V<T> share = g * p[j];
      dp[j] = g * f.value;
      if (!plain && row.grad_p) dp[j] += load(row.grad_p + j * at.H + u, m);
      mean += p[j] * dp[j];
      ds += share * f.ds;
      dv += share * f.dv;
    }
    for (int64_t j = 0; j < ops.size() - 1; ++j) store<plain>(row.d_logits + j * at.H + u, p[j] * (dp[j] - mean), m);
    store<plain>(&d_state[i * at.H + u], ds, m);
    feature<plain>(row, u, m, plain || in.activation == kTanh ? dv * (T(1) - v * v) : dv * v * (T(1) - v));
  }

  Composed<T> composed(int64_t j, const Row& row, int64_t u, int64_t m, V<T> s, V<T> v) const {
    if (ops.built_in(j)) return compose<T>(ops[j], s, v);
    return {load(at.custom_row(in.custom, j, row.place) + u, m), load(at.custom_row(in.custom_ds, j, row.place) + u, m),
            load(at.custom_row(in.custom_dv, j, row.place) + u, m)};
  }

  template <bool plain>
  void feature(const Row& row, int64_t u, int64_t m, V<T> dv) {
    store<plain>(row.d_gates + u, dv, m);
    if (!at.after) return;
    const V<T> r = load<plain>(row.gates + at.r + u, m);
    store<plain>(row.d_gates + at.r + u, dv * load<plain>(row.inner + u, m) * r * (T(1) - r), m);
    store<plain>(row.d_inner + u, dv * r, m);
  }

  // operands times panels, and for each vector of the result done(row, column, lanes, value)
  template <class Done>
  void each(int64_t n_rows, int64_t depth, const T* panel, int64_t columns, Done done) {
    each_product<T>(operand.data(), n_rows, depth, panel, columns, tiles.data(), done);
  }

  // what the products of this step saw of the state
  void keep_operands() {
    for (int64_t i = 0; i < alive; ++i)
      for (int64_t u = 0; u < at.H; u += N) {
        const Row& row = rows[i];
        const int64_t m = lanes(u);
        V<T> seen = load(row.before + u, m);
        if (row.mask) seen *= load(row.mask + u, m);
        store(row.seen + u, seen, m);
        if (!at.before) continue;
        store(work.reset + row.place * at.H + u, seen * load(row.gates + at.r + u, m), m);
      }
  }

  void control() {
    for (int64_t i = 0; i < alive; ++i) operand[i] = rows[i].d_logits;
    each(alive, at.logits * at.H, packed + at.back_logits(), at.K, [&](int64_t i, int64_t u, int64_t m, V<T> dk) {
      dk += load(&d_controller[i * at.K + u], m);
      const V<T> k = load(rows[i].gates + at.rest + u, m);
      dk = in.controller_activation == kTanh ? dk * (T(1) - k * k) : k <= T(0) ? splat<T>(0) : dk;
      store(rows[i].d_gates + at.rest + u, dk, m);
    });
    for (int64_t i = 0; i < alive; ++i) operand[i] = rows[i].d_gates + at.rest;
    each(alive, at.K, packed + at.back_k(), at.K,
         [&](int64_t i, int64_t u, int64_t m, V<T> dk) { store(&d_controller[i * at.K + u], dk, m); });
  }

  void reset_gate() {
    for (int64_t i = 0; i < alive; ++i) operand[i] = rows[i].d_gates;
    each(alive, at.H, packed, at.H, [&](int64_t i, int64_t u, int64_t m, V<T> d) {
      const Row& row = rows[i];
      const V<T> r = load(row.gates + at.r + u, m);
      store(row.d_gates + at.r + u, d * load(row.seen + u, m) * r * (T(1) - r), m);
      store(&d_seen[i * at.H + u], d * r, m);
    });
  }

  void to_state() {
    for (int64_t i = 0; i < alive; ++i) operand[i] = at.after ? with_inner(i) : rows[i].d_gates + at.first;
    each(alive, at.W - at.first, packed + at.back_state(), at.H, [&](int64_t i, int64_t u, int64_t m, V<T> d) {
      if (at.before) d += load(&d_seen[i * at.H + u], m);
      if (rows[i].mask) d *= load(rows[i].mask + u, m);
      store(&d_state[i * at.H + u], load(&d_state[i * at.H + u], m) + d, m);
    });
  }

  // the gradients of the inputs of the steps from `begin` to `end`, counted in order
  void to_inputs(int64_t begin, int64_t end) {
    int64_t m = 0;
    for (int64_t k = begin; k < end; ++k)
      for (int64_t t = mine.in_order(k), i = 0; i < mine.alive(t); ++i) operand[m++] = at.row(work.d_gates, t, mine.index(i), at.W);
    T* to = static_cast<T*>(in.d_x);
    const T* first = work.d_gates;
    each(m, at.W, packed + at.back_x(), at.X, [&](int64_t i, int64_t u, int64_t l, V<T> d) {
      store(to + (operand[i] - first) / at.W * at.X + u, d, l);
    });
  }

  // with the reset gate after the product, the features' gradient reaches the state through the gate
  const T* with_inner(int64_t i) {
    T* row = &inner_rows[i * at.W];
    std::memcpy(row, rows[i].d_gates, at.W * sizeof(T));
    std::memcpy(row, rows[i].d_inner, at.H * sizeof(T));
    return row;
  }
};

}  // namespace MUFURU_ARCH
}  // namespace mufuru
