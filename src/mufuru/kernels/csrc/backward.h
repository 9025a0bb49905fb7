// The backward pass through the steps: gradients of pre-activations and of the initial state. The gradients of the
// weights are products over all the steps at once and wait for Python.
#pragma once
#include "ops.h"
#include "shape.h"

namespace mufuru {
namespace MUFURU_ARCH {

template <class T>
class Backward {
 public:
  Backward(const Problem& problem, int64_t worker, int64_t workers)
      : at(problem),
        in(problem),
        packed(static_cast<const T*>(problem.packed_back)),
        worker(worker),
        workers(workers),
        n((problem.batch - worker + workers - 1) / workers),
        d_state(n * at.H),
        d_seen(n * at.H),
        d_controller(n * at.K),
        inner_rows(at.after ? n * at.W : 0),
        tiles(n * at.width),
        operand(n) {
    for (int64_t i = 0; i < n; ++i) {
      if (in.grad_s_n) std::memcpy(&d_state[i * at.H], static_cast<const T*>(in.grad_s_n) + index(i) * at.H, at.H * sizeof(T));
      if (at.K && in.grad_k_n)
        std::memcpy(&d_controller[i * at.K], static_cast<const T*>(in.grad_k_n) + index(i) * at.K, at.K * sizeof(T));
    }
  }

  void run() {
    for (int64_t i = in.steps - 1; i >= 0; --i) {
      const int64_t t = in.reverse ? in.steps - 1 - i : i;
      const int64_t rows = at.rows_at(t) - worker;
      alive = rows <= 0 ? 0 : (rows + workers - 1) / workers;
      for (int64_t row = 0; row < alive; ++row)
        for (int64_t u = 0; u < at.H; u += N) composition(t, row, u, lanes(u));
      if (at.K) control(t);
      if (at.before) reset_gate(t);
      to_state(t);
    }
    for (int64_t i = 0; i < n; ++i) {
      std::memcpy(static_cast<T*>(in.d_s0) + index(i) * at.H, &d_state[i * at.H], at.H * sizeof(T));
      if (at.K) std::memcpy(static_cast<T*>(in.d_k0) + index(i) * at.K, &d_controller[i * at.K], at.K * sizeof(T));
    }
  }

 private:
  static constexpr int64_t N = Lanes<T>::n;
  const Shape<T> at;
  const Problem& in;
  const T* packed;
  int64_t worker, workers, n, alive = 0;
  Buffer<T> d_state, d_seen, d_controller, inner_rows, tiles;
  Buffer<const T*> operand;

  int64_t index(int64_t i) const { return worker + i * workers; }
  int64_t lanes(int64_t u) const { return least(at.H - u, N); }
  const T* state_before(int64_t t, int64_t i) const { return at.before_row(in.output, at.H, in.s0, at.H, t, index(i)); }
  V<T> seen(int64_t t, int64_t i, int64_t u, int64_t m) const {
    V<T> s = load(state_before(t, i) + u, m);
    return in.state_mask ? s * load(static_cast<const T*>(in.state_mask) + index(i) * at.H + u, m) : s;
  }
  T* d_gates(int64_t t, int64_t i) const { return at.row(in.d_gates, t, index(i), at.W); }

  // from the gradient of the new state to those of the logits, the features and, directly, the old state
  void composition(int64_t t, int64_t i, int64_t u, int64_t m) {
    const V<T> s = load(state_before(t, i) + u, m), v = load(at.row(in.gates, t, index(i), at.W) + u, m);
    V<T> g = load(&d_state[i * at.H + u], m), ds{}, dv{};
    if (in.grad_output) g += load(at.row(in.grad_output, t, index(i), at.H) + u, m);
    if (in.zoneout) {
      V<T> share = load(at.row(in.zoneout, t, index(i), at.H) + u, m);
      ds = g * share;
      g *= T(1) - share;
    }
    if (in.grad_v) dv = load(at.row(in.grad_v, t, index(i), at.H) + u, m);
    V<T> p[kMaxOps], dp[kMaxOps], mean{};
    kept_weights<T>(at, t, index(i), u, m, p);
    for (int64_t j = 0; j < at.L; ++j) {
      Composed<T> f = composed(j, t, i, u, m, s, v);
      dp[j] = g * f.value;
      if (in.grad_p) dp[j] += load(at.row(in.grad_p, t, index(i), at.L * at.H) + j * at.H + u, m);
      mean += p[j] * dp[j];
      ds += g * p[j] * f.ds;
      dv += g * p[j] * f.dv;
    }
    T* logits = at.K ? at.row(in.d_probs, t, index(i), at.logits * at.H) : d_gates(t, i) + at.rest;
    for (int64_t j = 0; j < at.logits; ++j) store(logits + j * at.H + u, p[j] * (dp[j] - mean), m);
    store(&d_state[i * at.H + u], ds, m);
    feature(t, i, u, m, in.activation == kTanh ? dv * (T(1) - v * v) : dv * v * (T(1) - v));
  }

  Composed<T> composed(int64_t j, int64_t t, int64_t i, int64_t u, int64_t m, V<T> s, V<T> v) const {
    if (in.codes[j] < kCustom) return compose<T>(static_cast<Op>(in.codes[j]), s, v);
    return {load(at.custom_row(in.custom, j, t, index(i)) + u, m), load(at.custom_row(in.custom_ds, j, t, index(i)) + u, m),
            load(at.custom_row(in.custom_dv, j, t, index(i)) + u, m)};
  }

  void feature(int64_t t, int64_t i, int64_t u, int64_t m, V<T> dv) {
    store(d_gates(t, i) + u, dv, m);
    if (!at.after) return;
    const V<T> r = load(at.row(in.gates, t, index(i), at.W) + at.r + u, m);
    const V<T> inner = load(at.row(in.inner, t, index(i), at.H) + u, m);
    store(d_gates(t, i) + at.r + u, dv * inner * r * (T(1) - r), m);
    store(at.row(in.d_inner, t, index(i), at.H) + u, dv * r, m);
  }

  // rows times panels, and for each vector of the result done(row, column, lanes, value)
  template <class Done>
  void each(int64_t depth, const T* panel, int64_t columns, Done done) {
    for (int64_t c = 0; c < panels<T>(columns); ++c, panel += depth * at.width) {
      product<T>(operand.data(), alive, depth, panel, 1, tiles.data());
      for (int64_t i = 0; i < alive; ++i)
        for (int64_t half = 0; half < 2; ++half) {
          const int64_t u = c * at.width + half * N, m = least(columns - u, N);
          if (m > 0) done(i, u, m, load(&tiles[i * at.width + half * N]));
        }
    }
  }

  void control(int64_t t) {
    for (int64_t i = 0; i < alive; ++i) operand[i] = at.row(in.d_probs, t, index(i), at.logits * at.H);
    each(at.logits * at.H, packed + at.back_logits(), at.K, [&](int64_t i, int64_t u, int64_t m, V<T> dk) {
      dk += load(&d_controller[i * at.K + u], m);
      const V<T> k = load(at.row(in.gates, t, index(i), at.W) + at.rest + u, m);
      store(d_gates(t, i) + at.rest + u, k > T(0) ? dk : splat<T>(0), m);
    });
    for (int64_t i = 0; i < alive; ++i) operand[i] = d_gates(t, i) + at.rest;
    each(at.K, packed + at.back_k(), at.K,
         [&](int64_t i, int64_t u, int64_t m, V<T> dk) { store(&d_controller[i * at.K + u], dk, m); });
  }

  void reset_gate(int64_t t) {
    for (int64_t i = 0; i < alive; ++i) operand[i] = d_gates(t, i);
    each(at.H, packed, at.H, [&](int64_t i, int64_t u, int64_t m, V<T> d) {
      const V<T> r = load(at.row(in.gates, t, index(i), at.W) + at.r + u, m);
      store(d_gates(t, i) + at.r + u, d * seen(t, i, u, m) * r * (T(1) - r), m);
      store(&d_seen[i * at.H + u], d * r, m);
    });
  }

  void to_state(int64_t t) {
    for (int64_t i = 0; i < alive; ++i) operand[i] = at.after ? with_inner(t, i) : d_gates(t, i) + at.first;
    each(at.W - at.first, packed + at.back_state(), at.H, [&](int64_t i, int64_t u, int64_t m, V<T> d) {
      if (at.before) d += load(&d_seen[i * at.H + u], m);
      if (in.state_mask) d *= load(static_cast<const T*>(in.state_mask) + index(i) * at.H + u, m);
      store(&d_state[i * at.H + u], load(&d_state[i * at.H + u], m) + d, m);
    });
  }

  // with the reset gate after the product, the features' gradient reaches the state through the gate
  const T* with_inner(int64_t t, int64_t i) {
    T* row = &inner_rows[i * at.W];
    std::memcpy(row, d_gates(t, i), at.W * sizeof(T));
    std::memcpy(row, at.row(in.d_inner, t, index(i), at.H), at.H * sizeof(T));
    return row;
  }
};

}  // namespace MUFURU_ARCH
}  // namespace mufuru
