// The forward pass: a worker runs all steps of its sequences, or a team runs all sequences, each member some units.
#pragma once
#include "direct.h"
#include "ops.h"
#include "parallel.h"
#include "shape.h"

namespace mufuru {
namespace MUFURU_ARCH {

// Data shared by the members of a team.
template <class T>
struct States {
  const int64_t stretch;
  Buffer<T> state, seen[2], reset_state, controller, bias;
  Buffer<T> gates;  // only when they are not kept

  States(const Shape<T>& at, int64_t n)
      : stretch(at.stretch(n)),
        state(n * at.H),
        seen{Buffer<T>(n * at.seen), Buffer<T>(n * at.seen)},
        reset_state(at.before ? n * at.H : 0),
        controller(n * at.K),
        bias(at.direct ? at.packed_size() - at.packed_bias() : 0),
        gates(at.in.gates ? 0 : stretch * n * at.W) {
    if (at.direct) add_biases<T>(at, at.packed_size() - at.packed_bias(), bias.data());
  }
};

template <class T, class Ops>
class Forward {
 public:
  Forward(const Problem& problem, States<T>& states, const Share& share, int64_t first_step, int64_t member, Team& team)
      : at(problem),
        in(problem),
        ops(problem),
        packed(static_cast<const T*>(problem.space)),
        bias(at.direct ? states.bias.data() : packed + at.packed_bias()),
        mine(share),
        n(mine.n),
        leads(member == 0),
        team(team),
        states(states),
        gate_panels(at.direct ? at.block_panels() : panels<T>(at.W), member, team.n),
        chunks(at.chunks(), member, team.n),
        k_panels(panels<T>(at.K), member, team.n),
        plain(Ops::fixed && in.activation == kTanh && (!at.K || in.b_op) && !in.allowed && !in.p && !in.zoneout && !in.state_mask),
        keeping(in.gates),
        units(tile_size<T>(n, at.H)),
        resets(at.after ? tile_size<T>(n, at.H) : 0),
        tiles(most(at.direct ? 0 : tile_size<T>(n * states.stretch, most(at.W, at.H)), n * at.logits * at.width)),
        passing(at.direct ? n * states.stretch : 0, 0),
        inputs(at.pairs, n * states.stretch, at.X),
        by_state(at.pairs, n, at.H),
        by_reset(at.pairs, at.before ? n : 0, at.H),
        by_seen(at.pairs, at.K ? n : 0, at.seen),
        by_controller(at.pairs, at.K ? n : 0, at.K),
        operand(states.stretch * n),
        gate_rows(states.stretch * n),
        rows(n) {
    for (int64_t i = 0; i < n; ++i) start(i, first_step);
    team.wait();
  }

  void run() {
    for (int64_t done = 0; done < in.steps; done += states.stretch) {
      const int64_t count = least(states.stretch, in.steps - done);
      project(done, count);
      for (int64_t k = 0; k < count; ++k) step(mine.in_order(done + k), k, true);
    }
    for (int64_t i = 0; i < n && leads; ++i) {
      std::memcpy(static_cast<T*>(in.s_n) + mine.index(i) * at.H, &states.state[i * at.H], at.H * sizeof(T));
      if (at.K) std::memcpy(static_cast<T*>(in.k_n) + mine.index(i) * at.K, &seen()[i * at.seen + at.H], at.K * sizeof(T));
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
        kept_weights<false, false, T>(at, ops.size() - 1, rows[i].probs + u, rows[i].allowed, m, p);
        new_state<false, false>(i, u, m, p, load(rows[i].gates + u, m));
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
  const T *packed, *bias;
  const Share mine;
  const int64_t n;
  const bool leads;  // whether this member does the work that a team needs done once
  Team& team;
  States<T>& states;
  const Range gate_panels, chunks, k_panels;
  const bool plain;    // none of the rarer options
  const bool keeping;  // whether a backward pass follows
  int64_t alive = 0, now = 0;
  Buffer<T> units, resets, tiles;  // products: of units with one block of the weights, and others
  Passing<T> passing;
  Operands<T> inputs, by_state, by_reset, by_seen, by_controller;  // of products, rounded for them
  Buffer<const T*> operand;
  Buffer<T*> gate_rows;
  Buffer<Row> rows;

  Buffer<T>& seen() { return states.seen[now]; }
  Buffer<T>& next_seen() { return states.seen[1 - now]; }
  int64_t lanes(int64_t u) const { return least(at.H - u, N); }
  // the gates of sequence i at step t, the k-th of the steps worked on together
  T* gate_row(int64_t t, int64_t i, int64_t k) {
    return in.gates ? at.row(in.gates, t, mine.index(i), at.W) : &states.gates[(k * n + i) * at.W];
  }
  // the first `depth` numbers of each row of a matrix that stays as it is until the step ends
  const T* const* rows_of(const Buffer<T>& matrix, int64_t width, int64_t depth, Operands<T>& operands) {
    for (int64_t i = 0; i < alive; ++i) operand[i] = &matrix[i * width];
    return operands.once(operand.data(), alive, depth);
  }

  void start(int64_t i, int64_t t) {
    rows[i].mask = in.state_mask ? static_cast<const T*>(in.state_mask) + mine.index(i) * at.H : nullptr;
    rows[i].allowed = in.allowed ? in.allowed + mine.index(i) * at.L : nullptr;
    if (!leads) return;
    std::memcpy(&states.state[i * at.H], at.before_row(in.output, at.H, in.s0, at.H, t, mine.index(i)), at.H * sizeof(T));
    for (int64_t u = 0; u < at.H; u += N) see(seen(), i, u, lanes(u), load(&states.state[i * at.H + u], lanes(u)));
    if (!at.K) return;
    const T* kept = in.gates ? static_cast<const T*>(in.gates) + at.rest : nullptr;
    const T* k = at.before_row(kept, at.W, in.k0, at.K, t, mine.index(i));
    std::memcpy(&seen()[i * at.seen + at.H], k, at.K * sizeof(T));
  }

  void enter(int64_t t, int64_t k) {
    alive = mine.alive(t);
    for (int64_t i = 0; i < alive; ++i) {
      Row& row = rows[i];
      row.place = in.offsets[t] + mine.index(i);
      row.gates = gate_row(t, i, k);
      row.probs = !at.K ? row.gates + at.rest : keeping ? at.row(in.probs, t, mine.index(i), at.logits * at.H) : nullptr;
      row.output = at.row(in.output, t, mine.index(i), at.H);
      row.p = in.p ? at.row(in.p, t, mine.index(i), at.L * at.H) : nullptr;
      row.v = in.v ? at.row(in.v, t, mine.index(i), at.H) : nullptr;
      row.inner = in.inner ? at.row(in.inner, t, mine.index(i), at.H) : nullptr;
      row.zoneout = in.zoneout ? at.row(in.zoneout, t, mine.index(i), at.H) : nullptr;
    }
  }

  // operands times the weights of the panels in a range, and for each vector of the result done(row, column, lanes, value);
  // rows(c) are the unpacked weights of a panel
  template <class Weights, class Done>
  void each(const T* const* operands, int64_t n_rows, int64_t depth, const T* panel, Weights rows, int64_t columns,
            const Range& range, Done done) {
    if (!at.direct)
      return each_product<T>(at.pairs, operands, n_rows, depth, panel, columns, range.begin, range.end, tiles.data(), done);
    passing.by_rows(operands, n_rows, depth, range.begin, range.end, rows, [&](int64_t c, const T* tile) {
      each_vector<T>(tile, n_rows, c, 1, columns, done);
    });
  }
  // operands times unpacked weights, into out[panel][row][width]
  template <class Weights>
  void into(const T* const* operands, int64_t depth, int64_t begin, int64_t end, Weights rows, T* out) {
    const int64_t size = alive * at.width;
    passing.by_rows(operands, alive, depth, begin, end, rows, [&](int64_t c, const T* tile) {
      std::memcpy(out + (c - begin) * size, tile, size * sizeof(T));
    });
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
    const auto stored = [&](int64_t i, int64_t column, int64_t l, V<T> y) __attribute__((always_inline)) {
      store(gate_rows[i] + column, y + load(bias + column, l), l);
    };
    if (!at.direct)
      each_product<T>(at.pairs, inputs.of(operand.data(), m, at.X), m, at.X, packed + at.packed_x(), at.W,
                      gate_panels.begin, gate_panels.end, tiles.data(), stored);
    else
      passing.by_rows(operand.data(), m, at.X, gate_panels.begin, gate_panels.end,
                      [&](int64_t i) { return input_rows<T>(at, InputPanel<T>(at, i)); },
                      [&](int64_t i, const T* tile) {
                        const InputPanel<T> panel(at, i);
                        each_vector<T>(tile, m, panel.c, 1, at.block_size(panel.block),
                                       [&](int64_t row, int64_t u, int64_t l, V<T> y) {
                                         stored(row, panel.block * at.H + u, l, y);
                                       });
                      });
    team.wait();
  }

  void step(int64_t t, int64_t k, bool composing) {
    enter(t, k);
    for (int64_t i = 0; in.resets && i < alive; ++i)
      if (in.resets[rows[i].place]) start(i, t);
    if (in.resets) team.wait();
    by_state.forget(), by_reset.forget(), by_seen.forget(), by_controller.forget();
    if (at.before) reset_gate();
    if (at.K) control();
    if (at.before || at.K) team.wait();
    const int64_t together = alive > kRows ? kTilePanels : chunks.end - chunks.begin;
    for (int64_t c = chunks.begin; c < chunks.end; c += together) {
      const int64_t now = least(together, chunks.end - c);
      from_state(c, now);
      for (int64_t k = 0; k < now; ++k) chunk(c + k, k, composing);
    }
    for (int64_t i = alive; i < n && leads; ++i)  // ended, or (in reverse) not started: the state stays
      std::memcpy(&next_seen()[i * at.seen], &seen()[i * at.seen], at.seen * sizeof(T));
    now = 1 - now;
    team.wait();
  }

  // the state as products will see it
  void see(Buffer<T>& to, int64_t i, int64_t u, int64_t m, V<T> s) {
    if (rows[i].mask) s *= load(rows[i].mask + u, m);
    store(&to[i * at.seen + u], s, m);
  }

  void reset_gate() {
    each(rows_of(seen(), at.seen, at.H, by_state), alive, at.H, packed + at.packed_r(), state_rows(at.r), at.H, chunks,
         [&](int64_t i, int64_t u, int64_t m, V<T> y) __attribute__((always_inline)) {
           const V<T> r = sigmoid<T>(load(rows[i].gates + at.r + u, m) + y);
           if (keeping) store(rows[i].gates + at.r + u, r, m);
           store(&states.reset_state[i * at.H + u], r * load(&seen()[i * at.seen + u], m), m);
         });
  }

  // k = tanh or relu(from x + W_hk s + W_kk k), the operand of the logits and part of what the next step sees
  void control() {
    const auto weights = [&](int64_t c) { return controller_rows<T>(at, c); };
    each(rows_of(seen(), at.seen, at.seen, by_seen), alive, at.seen, packed + at.packed_k(), weights, at.K, k_panels,
         [&](int64_t i, int64_t u, int64_t m, V<T> y) __attribute__((always_inline)) {
           V<T> k = load(rows[i].gates + at.rest + u, m) + y;
           k = in.controller_activation == kTanh ? tanh<T>(k) : k < T(0) ? splat<T>(0) : k;
           if (keeping) store(rows[i].gates + at.rest + u, k, m);
           store(&states.controller[i * at.K + u], k, m);
           store(&next_seen()[i * at.seen + at.H + u], k, m);
         });
  }

  // the weights by the state of panels of units, the rows of W_hh from `row` on
  auto state_rows(int64_t row) const {
    return [this, row](int64_t c) {
      const int64_t u = c * at.width;
      return Rows<T>{at.weights(in.w_hh) + (row + u) * at.H, nullptr, at.H, least(at.H - u, at.width)};
    };
  }

  // the state's part of the features of `count` panels of units and, if the reset gate comes after it, of that gate
  void from_state(int64_t first, int64_t count) {
    const T* const* operands = at.before ? rows_of(states.reset_state, at.H, at.H, by_reset)
                                          : rows_of(seen(), at.seen, at.H, by_state);
    if (at.direct) {
      into(operands, at.H, first, first + count, state_rows(0), units.data());
      if (at.after) into(operands, at.H, first, first + count, state_rows(at.r), resets.data());
      return;
    }
    const T* panel = packed + at.packed_chunks() + first * at.packed_chunk();
    product<T>(at.pairs, operands, alive, at.H, panel, at.packed_chunk(), first, count, at.H, units.data());
    if (!at.after) return;
    panel += at.panel(at.H);
    product<T>(at.pairs, operands, alive, at.H, panel, at.packed_chunk(), first, count, at.H, resets.data());
  }

  // the products of the logits of the units of panel c, one operation after another
  void logits(int64_t c) {
    const T* const* operands = at.K ? rows_of(states.controller, at.K, at.K, by_controller)
                                     : rows_of(seen(), at.seen, at.H, by_state);
    const int64_t depth = at.logit_depth;
    if (at.direct)
      return into(operands, depth, 0, at.logits, [&](int64_t j) { return logit_rows<T>(at, j, c); }, tiles.data());
    const T* panel = packed + at.packed_chunks() + c * at.packed_chunk() + (at.after ? 2 : 1) * at.panel(at.H);
    product<T>(at.pairs, operands, alive, depth, panel, at.panel(depth), at.logits, is_half<T>(at.H, c), tiles.data());
  }

  // features, weights and new state of the units of panel c, the k-th of those that from_state worked on
  void chunk(int64_t c, int64_t k, bool composing) {
    const int64_t tile = alive * at.width;
    logits(c);
    each_vector<T>(&units[k * tile], alive, c, 1, at.H, [&](int64_t i, int64_t u, int64_t m, V<T> y) __attribute__((always_inline)) {
      const int64_t place = i * at.width + u - c * at.width;
      const V<T> reset_y = at.after ? load(&resets[k * tile + place]) : V<T>{};
      if (plain && m == N) unit<Ops::fixed, true>(i, u, N, y, reset_y, &tiles[place], tile, composing);
      else if (plain) unit<Ops::fixed, false>(i, u, m, y, reset_y, &tiles[place], tile, composing);
      else unit<false, false>(i, u, m, y, reset_y, &tiles[place], tile, composing);
    });
  }

  // `plain` here and below: none of the rarer options, `whole`: a whole vector, so that the code has no branches
  template <bool plain, bool whole>
  __attribute__((always_inline)) void unit(int64_t i, int64_t u, int64_t m, V<T> y, V<T> reset_y, const T* logits,
                                           int64_t tile, bool composing) {
    const V<T> v = feature<plain, whole>(i, u, m, y, reset_y);
    V<T> p[plain ? Ops::most : kMaxOps];
    softmax<plain, whole>(i, u, m, logits, tile, p);
    if (composing) new_state<plain, whole>(i, u, m, p, v);
  }

  template <bool plain, bool whole>
  V<T> feature(int64_t i, int64_t u, int64_t m, V<T> from_s, V<T> reset_from_s) {
    T* gate = rows[i].gates + u;
    if (at.after) {
      const V<T> r = sigmoid<T>(load<whole>(gate + at.r, m) + reset_from_s);
      if (keeping) store<whole>(gate + at.r, r, m);
      if (in.b_hh) from_s += load<whole>(static_cast<const T*>(in.b_hh) + u, m);
      if (rows[i].inner) store<whole>(rows[i].inner + u, from_s, m);
      from_s *= r;
    }
    V<T> v = load<whole>(gate, m) + from_s;
    v = plain || in.activation == kTanh ? tanh<T>(v) : sigmoid<T>(v);
    if (keeping) store<whole>(gate, v, m);
    if (!plain && rows[i].v) store(rows[i].v + u, v, m);
    return v;
  }

  // the weights p of all operations from the products with the state; kept for the backward pass but for the last
  template <bool plain, bool whole>
  void softmax(int64_t i, int64_t u, int64_t m, const T* from_s, int64_t tile, V<T>* p) {
    const Row& row = rows[i];
    T* kept = keeping ? row.probs + u : nullptr;
    const int64_t last = ops.size() - 1;
    // the products with the state are added to this: the inputs' part with biases, or with a controller biases alone
    const T* added = at.K ? static_cast<const T*>(in.b_op) : row.probs;
    const T* reference = at.K ? added + (added ? last * at.H : 0) : bias + at.W;
    const V<T> forbidden = splat<T>(-std::numeric_limits<T>::infinity());
    p[last] = plain || reference ? load<whole>(reference + u, m) : splat<T>(0);
    if (!plain && row.allowed && !row.allowed[last]) p[last] = forbidden;
    V<T> top = p[last];
    for (int64_t j = 0; j < last; ++j) {
      p[j] = load(from_s + j * tile);
      if (plain || added) p[j] += load<whole>(added + j * at.H + u, m);
      if (!plain && row.allowed && !row.allowed[j]) p[j] = forbidden;
      top = higher<T>(p[j], top);
    }
    V<T> sum{};
    for (int64_t j = 0; j <= last; ++j) sum += p[j] = exp_falling<T>(p[j] - top);
    const V<T> scale = T(1) / sum;
    for (int64_t j = 0; j <= last; ++j) {
      p[j] *= scale;
      if (keeping && j < last) store<whole>(kept + j * at.H, p[j], m);
      if (!plain && row.p) store(row.p + j * at.H + u, p[j], m);
    }
  }

  template <bool plain, bool whole>
  void new_state(int64_t i, int64_t u, int64_t m, const V<T>* p, V<T> v) {
    const Row& row = rows[i];
    const V<T> s = load<whole>(&states.state[i * at.H + u], m);
    V<T> sum{};
    for (int64_t j = 0; j < ops.size(); ++j) {
      if (ops.built_in(j)) sum += p[j] * compose<T>(ops[j], s, v).value;
      else sum += p[j] * load(at.custom_row(in.custom, j, row.place) + u, m);
    }
    if (!plain && row.zoneout) {
      const V<T> share = load(row.zoneout + u, m);
      sum = share * s + (T(1) - share) * sum;
    }
    store<whole>(row.output + u, sum, m);
    store<whole>(&states.state[i * at.H + u], sum, m);
    if (plain) store<whole>(&next_seen()[i * at.seen + u], sum, m);
    else see(next_seen(), i, u, m, sum);
  }
};

}  // namespace MUFURU_ARCH
}  // namespace mufuru
