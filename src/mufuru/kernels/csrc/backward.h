// The backward pass through the steps: gradients of pre-activations and of the initial state. The gradients of the
// weights are products over all steps, computed at the end.
#pragma once
#include "direct.h"
#include "ops.h"
#include "parallel.h"
#include "shape.h"

namespace mufuru {
namespace MUFURU_ARCH {

// Data shared by the members of a team.
template <class T>
struct StateGradients {
  Buffer<T> state, seen, controller;
  Buffer<T> initial, initial_controller;  // gradients that resets add to the initial state
  StateGradients(const Shape<T>& at, int64_t n)
      : state(n * at.H),
        seen(n * at.H),
        controller(n * at.K),
        initial(at.in.resets ? n * at.H : 0),
        initial_controller(at.in.resets ? n * at.K : 0) {}
};

template <class T, class Ops>
class Backward {
 public:
  Backward(const Problem& problem, const Work<T>& work, StateGradients<T>& gradients, const Share& share, int64_t member,
           Team& team)
      : at(problem),
        in(problem),
        ops(problem),
        work(work),
        packed(work.packed),
        mine(share),
        n(mine.n),
        leads(member == 0),
        team(team),
        chunks(at.chunks(), member, team.n),
        k_panels(panels<T>(at.K), member, team.n),
        x_panels(panels<T>(at.X), member, team.n),
        plain(!in.allowed && !in.grad_p && !in.grad_v && !in.zoneout && in.activation == kTanh && Ops::fixed),
        d_state(gradients.state),
        d_seen(gradients.seen),
        d_controller(gradients.controller),
        d_initial(gradients.initial),
        d_initial_controller(gradients.initial_controller),
        inner_rows(at.after ? n * at.W : 0),
        stretch(at.stretch(n)),
        tiles(at.direct ? 0 : tile_size<T>(n * stretch, most(at.seen, at.X))),
        passing(at.direct ? n * stretch : 0, most(at.seen, at.X)),
        rounded(at.pairs, n * stretch, most(at.W, at.logits * at.H)),
        operand(n * stretch),
        rows(n) {
    for (int64_t i = 0; i < n; ++i) {
      rows[i].allowed = in.allowed ? in.allowed + mine.index(i) * at.L : nullptr;
      rows[i].mask = in.state_mask ? static_cast<const T*>(in.state_mask) + mine.index(i) * at.H : nullptr;
      if (!leads) continue;
      if (in.grad_s_n)
        std::memcpy(&d_state[i * at.H], static_cast<const T*>(in.grad_s_n) + mine.index(i) * at.H, at.H * sizeof(T));
      if (at.K && in.grad_k_n)
        std::memcpy(&d_controller[i * at.K], static_cast<const T*>(in.grad_k_n) + mine.index(i) * at.K, at.K * sizeof(T));
    }
  }

  void run() {
    team.wait();
    for (int64_t i = in.steps - 1; i >= 0; --i) {
      enter(mine.in_order(i));
      for (int64_t row = 0; row < alive; ++row)
        for (int64_t u = chunks.begin * at.width; u < units_end(); u += N)
          if (plain && u + N <= at.H) composition<Ops::fixed, true>(row, u, N);
          else if (plain) composition<Ops::fixed, false>(row, u, lanes(u));
          else composition<false, false>(row, u, lanes(u));
      keep_operands();
      team.wait();
      if (at.K) control();
      if (at.before) reset_gate();
      if (at.K || at.before) team.wait();
      to_state();
      if (in.resets) set_back();
      if (in.d_x && i % stretch == 0) to_inputs(i, least(i + stretch, in.steps));
    }
    team.wait();
    if (in.resets && leads) add_initial();
    for (int64_t i = 0; i < n && leads; ++i) {
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
  const bool leads;  // whether this member does the work that a team needs done once
  Team& team;
  const Range chunks, k_panels, x_panels;
  const bool plain;  // none of the rarer options
  int64_t alive = 0;
  Buffer<T> &d_state, &d_seen, &d_controller, &d_initial, &d_initial_controller;
  Buffer<T> inner_rows;
  const int64_t stretch;
  Buffer<T> tiles;
  Passing<T> passing;
  Operands<T> rounded;  // the operand of a product, for pairs
  Buffer<const T*> operand;
  Buffer<Row> rows;

  int64_t lanes(int64_t u) const { return least(at.H - u, N); }
  int64_t units_end() const { return least(chunks.end * at.width, at.H); }

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
      if (at.K && leads) {
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

  // from the gradient of the new state to those of the logits, the features and, directly, the old state; `plain`: none
  // of the rarer options, `whole`: a whole vector, so that the code has no branches
  template <bool plain, bool whole>
  void composition(int64_t i, int64_t u, int64_t m) {
    const Row& row = rows[i];
    const V<T> s = load<whole>(row.before + u, m), v = load<whole>(row.gates + u, m);
    V<T> g = load<whole>(&d_state[i * at.H + u], m), ds{}, dv{};
    if (row.grad_output) g += load<whole>(row.grad_output + u, m);
    if (!plain && row.zoneout) {
      const V<T> share = load(row.zoneout + u, m);
      ds = g * share;
      g *= T(1) - share;
    }
    if (!plain && row.grad_v) dv = load(row.grad_v + u, m);
    constexpr int64_t most = plain ? Ops::most : kMaxOps;
    V<T> p[most], dp[most], mean{};
    kept_weights<plain, whole, T>(at, ops.size() - 1, row.probs + u, row.allowed, m, p);
    for (int64_t j = 0; j < ops.size(); ++j) {
      const Composed<T> f = composed(j, row, u, m, s, v);
      const V<T> share = g * p[j];
      dp[j] = g * f.value;
      if (!plain && row.grad_p) dp[j] += load(row.grad_p + j * at.H + u, m);
      mean += p[j] * dp[j];
      ds += share * f.ds;
      dv += share * f.dv;
    }
    for (int64_t j = 0; j < at.logits; ++j) store<whole>(row.d_logits + j * at.H + u, p[j] * (dp[j] - mean), m);
    store<whole>(&d_state[i * at.H + u], ds, m);
    feature<whole>(row, u, m, plain || in.activation == kTanh ? dv * (T(1) - v * v) : dv * v * (T(1) - v));
  }

  Composed<T> composed(int64_t j, const Row& row, int64_t u, int64_t m, V<T> s, V<T> v) const {
    if (ops.built_in(j)) return compose<T>(ops[j], s, v);
    return {load(at.custom_row(in.custom, j, row.place) + u, m), load(at.custom_row(in.custom_ds, j, row.place) + u, m),
            load(at.custom_row(in.custom_dv, j, row.place) + u, m)};
  }

  template <bool whole>
  void feature(const Row& row, int64_t u, int64_t m, V<T> dv) {
    store<whole>(row.d_gates + u, dv, m);
    if (!at.after) return;
    const V<T> r = load<whole>(row.gates + at.r + u, m);
    store<whole>(row.d_gates + at.r + u, dv * load<whole>(row.inner + u, m) * r * (T(1) - r), m);
    store<whole>(row.d_inner + u, dv * r, m);
  }

  // operands times the weights, and for each vector of the result done(row, column, lanes, value); runs(begin, end, visit)
  // visits rows of the unpacked weights
  template <class Runs, class Done>
  void each(int64_t n_rows, int64_t depth, const T* panel, Runs runs, int64_t columns, const Range& range, Done done) {
    const T* const* operands = operand.data();
    if (!at.direct)
      return each_product<T>(at.pairs, rounded.of(operands, n_rows, depth), n_rows, depth, panel, columns, range.begin,
                             range.end, tiles.data(), done);
    if (n_rows >= kFewRows)
      return passing.by_columns(operands, n_rows, depth, columns, range.begin, range.end, runs,
                                [&](int64_t c, const T* tile) { each_vector<T>(tile, n_rows, c, 1, columns, done); });
    const int64_t begin = range.begin * at.width, own = least(range.end * at.width, columns) - begin;
    if (own <= 0) return;
    const T* sums = passing.by_sweeps(operands, n_rows, columns, own, [&](auto visit) {
      runs(0, depth, [&](int64_t k, int64_t n, const T* weight, const T* less) {
        visit(k, n, weight + begin, less ? less + begin : nullptr);
      });
    });
    for (int64_t i = 0; i < n_rows; ++i)
      for (int64_t u = 0; u < own; u += N) done(i, begin + u, least(own - u, N), load(sums + i * own + u, least(own - u, N)));
  }
  // the rows of the weights of gates, from `row` on
  auto gates(const void* weight, int64_t size, int64_t row) const {
    return [this, weight, size, row](int64_t begin, int64_t end, auto visit) {
      gate_runs<T>(at, weight, size, row + begin, row + end,
                   [&](int64_t k, int64_t n, const T* w, const T* less) { visit(k - row, n, w, less); });
    };
  }

  // the state as the products of this step saw it
  void keep_operands() {
    for (int64_t i = 0; i < alive; ++i)
      for (int64_t u = chunks.begin * at.width; u < units_end(); u += N) {
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
    const auto logits = [&](int64_t begin, int64_t end, auto visit) { logit_runs<T>(at, begin, end, visit); };
    each(alive, at.logits * at.H, packed + at.back_logits(), logits, at.K, k_panels, [&](int64_t i, int64_t u, int64_t m, V<T> dk) {
      dk += load(&d_controller[i * at.K + u], m);
      const V<T> k = load(rows[i].gates + at.rest + u, m);
      dk = in.controller_activation == kTanh ? dk * (T(1) - k * k) : k <= T(0) ? splat<T>(0) : dk;
      store(rows[i].d_gates + at.rest + u, dk, m);
    });
    team.wait();
    for (int64_t i = 0; i < alive; ++i) operand[i] = rows[i].d_gates + at.rest;
    const auto own = [&](int64_t begin, int64_t end, auto visit) {
      visit(begin, end - begin, at.weights(in.w_kk) + begin * at.K, static_cast<const T*>(nullptr));
    };
    each(alive, at.K, packed + at.back_k(), own, at.K, k_panels,
         [&](int64_t i, int64_t u, int64_t m, V<T> dk) { store(&d_controller[i * at.K + u], dk, m); });
  }

  void reset_gate() {
    for (int64_t i = 0; i < alive; ++i) operand[i] = rows[i].d_gates;
    each(alive, at.H, packed, gates(in.w_hh, at.H, 0), at.H, chunks, [&](int64_t i, int64_t u, int64_t m, V<T> d) {
      const Row& row = rows[i];
      const V<T> r = load(row.gates + at.r + u, m);
      store(row.d_gates + at.r + u, d * load(row.seen + u, m) * r * (T(1) - r), m);
      store(&d_seen[i * at.H + u], d * r, m);
    });
  }

  void to_state() {
    for (int64_t i = 0; i < alive; ++i) operand[i] = at.after ? with_inner(i) : rows[i].d_gates + at.first;
    const auto weights = gates(in.w_hh, at.H, at.first);
    each(alive, at.W - at.first, packed + at.back_state(), weights, at.H, chunks, [&](int64_t i, int64_t u, int64_t m, V<T> d) {
      if (at.before) d += load(&d_seen[i * at.H + u], m);
      if (rows[i].mask) d *= load(rows[i].mask + u, m);
      store(&d_state[i * at.H + u], load(&d_state[i * at.H + u], m) + d, m);
    });
  }

  // where a step started with the initial state, the gradient goes there and not to the step before
  void set_back() {
    for (int64_t i = 0; i < alive; ++i) {
      if (!in.resets[rows[i].place]) continue;
      const int64_t k_begin = k_panels.begin * at.width, k_end = least(k_panels.end * at.width, at.K);
      T *state = &d_state[i * at.H], *initial = &d_initial[i * at.H];
      for (int64_t u = chunks.begin * at.width; u < units_end(); state[u++] = 0) initial[u] += state[u];
      T *controller = &d_controller[i * at.K], *initial_controller = &d_initial_controller[i * at.K];
      for (int64_t u = k_begin; u < k_end; controller[u++] = 0) initial_controller[u] += controller[u];
    }
  }

  void add_initial() {
    for (int64_t u = 0; u < n * at.H; ++u) d_state[u] += d_initial[u];
    for (int64_t u = 0; u < n * at.K; ++u) d_controller[u] += d_initial_controller[u];
  }

  // the gradients of the inputs of the steps from `begin` to `end`, counted in order
  void to_inputs(int64_t begin, int64_t end) {
    int64_t m = 0;
    for (int64_t k = begin; k < end; ++k)
      for (int64_t t = mine.in_order(k), i = 0; i < mine.alive(t); ++i) operand[m++] = at.row(work.d_gates, t, mine.index(i), at.W);
    T* to = static_cast<T*>(in.d_x);
    const T* first = work.d_gates;
    const auto weights = gates(in.w_ih, at.X, 0);
    each(m, at.W, packed + at.back_x(), weights, at.X, x_panels, [&](int64_t i, int64_t u, int64_t l, V<T> d) {
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
