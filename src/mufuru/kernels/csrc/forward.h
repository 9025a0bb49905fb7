// The forward pass: a worker takes its sequences through all the steps.
#pragma once
#include "ops.h"
#include "shape.h"

namespace mufuru {
namespace MUFURU_ARCH {

template <class T>
class Forward {
 public:
  // sequences worker, worker + workers, ...: interleaved, so that each worker has long and short ones
  Forward(const Problem& problem, int64_t worker, int64_t workers, int64_t first_step)
      : at(problem),
        in(problem),
        packed(static_cast<const T*>(problem.packed)),
        worker(worker),
        workers(workers),
        n((problem.batch - worker + workers - 1) / workers),
        state(n * at.H),
        seen(n * at.seen),
        next_seen(n * at.seen),
        reset_state(at.before ? n * at.H : 0),
        controller(n * at.K),
        tiles(n * at.width * (at.logits + 2)),
        operand(n) {
    for (int64_t i = 0; i < n; ++i) start(i, first_step);
  }

  void run() {
    for (int64_t i = 0; i < in.steps; ++i) {
      const int64_t t = in.reverse ? in.steps - 1 - i : i;
      activate(t, true);
    }
    finish();
  }

  // the gates of one step; with `composing` also the new state
  void activate(int64_t t, bool composing) {
    alive = alive_at(t);
    if (at.before) reset_gate(t);
    if (at.K) control(t);
    for (int64_t c = 0; c < at.chunks(); ++c) chunk(t, c, composing);
    seen.swap(next_seen);
  }

  // the new state of a step whose gates are known
  void compose_step(int64_t t) {
    alive = alive_at(t);
    for (int64_t i = 0; i < alive; ++i)
      for (int64_t u = 0; u < at.H; u += N) {
        const int64_t m = lanes(u);
        V<T> p[kMaxOps];
        kept_weights<T>(at, t, index(i), u, m, p);
        new_state(t, i, u, m, p, load(at.row(in.gates, t, index(i), at.W) + u, m));
      }
  }

  void finish() {
    for (int64_t i = 0; i < n; ++i) {
      std::memcpy(static_cast<T*>(in.s_n) + index(i) * at.H, &state[i * at.H], at.H * sizeof(T));
      if (at.K) std::memcpy(static_cast<T*>(in.k_n) + index(i) * at.K, &seen[i * at.seen + at.H], at.K * sizeof(T));
    }
  }

 private:
  static constexpr int64_t N = Lanes<T>::n;
  const Shape<T> at;
  const Problem& in;
  const T* packed;
  int64_t worker, workers, n, alive = 0;
  Buffer<T> state, seen, next_seen, reset_state, controller, tiles;
  Buffer<const T*> operand;

  int64_t index(int64_t i) const { return worker + i * workers; }
  int64_t lanes(int64_t u) const { return least(at.H - u, N); }
  int64_t alive_at(int64_t t) const {
    const int64_t rows = at.rows_at(t) - worker;
    return rows <= 0 ? 0 : (rows + workers - 1) / workers;
  }
  const T* const* rows_of(const Buffer<T>& matrix, int64_t width) {
    for (int64_t i = 0; i < alive; ++i) operand[i] = &matrix[i * width];
    return operand.data();
  }

  void start(int64_t i, int64_t t) {
    std::memcpy(&state[i * at.H], at.before_row(in.output, at.H, in.s0, at.H, t, index(i)), at.H * sizeof(T));
    for (int64_t u = 0; u < at.H; u += N) see(seen, i, u, lanes(u), load(&state[i * at.H + u], lanes(u)));
    if (!at.K) return;
    const T* k = at.before_row(static_cast<const T*>(in.gates) + at.rest, at.W, in.k0, at.K, t, index(i));
    std::memcpy(&seen[i * at.seen + at.H], k, at.K * sizeof(T));
  }

  // what products will see of a state
  void see(Buffer<T>& to, int64_t i, int64_t u, int64_t m, V<T> s) {
    if (in.state_mask) s *= load(static_cast<const T*>(in.state_mask) + index(i) * at.H + u, m);
    store(&to[i * at.seen + u], s, m);
  }

  void reset_gate(int64_t t) {
    const T* const* rows = rows_of(seen, at.seen);
    for (int64_t c = 0; c < at.chunks(); ++c) {
      product<T>(rows, alive, at.H, packed + at.packed_r() + c * at.H * at.width, 1, tiles.data());
      for (int64_t i = 0; i < alive; ++i)
        for (int64_t half = 0; half < 2; ++half) {
          const int64_t u = c * at.width + half * N, m = lanes(u);
          if (m <= 0) break;
          T* gate = at.row(in.gates, t, index(i), at.W) + at.r + u;
          V<T> r = sigmoid<T>(load(gate, m) + load(&tiles[i * at.width + half * N]));
          store(gate, r, m);
          store(&reset_state[i * at.H + u], r * load(&seen[i * at.seen + u], m), m);
        }
    }
  }

  // k = relu(from x + W_hk s + W_kk k), the operand of the logits and part of what the next step sees
  void control(int64_t t) {
    const T* const* rows = rows_of(seen, at.seen);
    for (int64_t c = 0; c < panels<T>(at.K); ++c) {
      product<T>(rows, alive, at.seen, packed + at.packed_k() + c * at.seen * at.width, 1, tiles.data());
      for (int64_t i = 0; i < alive; ++i)
        for (int64_t half = 0; half < 2; ++half) {
          const int64_t u = c * at.width + half * N, m = least(at.K - u, N);
          if (m <= 0) break;
          T* gate = at.row(in.gates, t, index(i), at.W) + at.rest + u;
          V<T> k = load(gate, m) + load(&tiles[i * at.width + half * N]);
          k = k < T(0) ? splat<T>(0) : k;
          store(gate, k, m);
          store(&controller[i * at.K + u], k, m);
          store(&next_seen[i * at.seen + at.H + u], k, m);
        }
    }
    for (int64_t i = alive; i < n; ++i)
      std::memcpy(&next_seen[i * at.seen + at.H], &seen[i * at.seen + at.H], at.K * sizeof(T));
  }

  void chunk(int64_t t, int64_t c, bool composing) {
    const int64_t tile = alive * at.width;
    const T* panel = packed + at.packed_chunks() + c * at.packed_chunk();
    if (at.before) product<T>(rows_of(reset_state, at.H), alive, at.H, panel, 1, tiles.data());
    else product<T>(rows_of(seen, at.seen), alive, at.H, panel, at.after ? 2 : 1, tiles.data());
    panel += (at.after ? 2 : 1) * at.H * at.width;
    T* logit_tiles = tiles.data() + 2 * tile;
    const T* const* rows = at.K ? rows_of(controller, at.K) : rows_of(seen, at.seen);
    product<T>(rows, alive, at.logit_depth, panel, at.logits, logit_tiles);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t u = c * at.width + half * N, m = lanes(u), from = i * at.width + half * N;
        if (m <= 0) break;
        if (i >= alive) {  // ended, or (in reverse) not begun: the state stays
          store(&next_seen[i * at.seen + u], load(&seen[i * at.seen + u], m), m);
          continue;
        }
        V<T> v = feature(t, i, u, m, load(&tiles[from]), load(&tiles[tile + from]));
        V<T> p[kMaxOps];
        for (int64_t j = 0; j < at.logits; ++j) p[j] = load(logit_tiles + j * tile + from);
        softmax(t, i, u, m, p);
        if (composing) new_state(t, i, u, m, p, v);
      }
  }

  V<T> feature(int64_t t, int64_t i, int64_t u, int64_t m, V<T> from_s, V<T> reset_from_s) {
    T* gate = at.row(in.gates, t, index(i), at.W) + u;
    if (at.after) {
      V<T> r = sigmoid<T>(load(gate + at.r, m) + reset_from_s);
      store(gate + at.r, r, m);
      if (in.inner_bias) from_s += load(static_cast<const T*>(in.inner_bias) + u, m);
      if (in.inner) store(at.row(in.inner, t, index(i), at.H) + u, from_s, m);
      from_s *= r;
    }
    V<T> v = load(gate, m) + from_s;
    v = in.activation == kTanh ? tanh<T>(v) : sigmoid<T>(v);
    store(gate, v, m);
    return v;
  }

  // in: products with the state; out: the weights of all L operations, kept for the backward pass but for the last
  void softmax(int64_t t, int64_t i, int64_t u, int64_t m, V<T>* p) {
    T* kept = at.probs_row(t, index(i)) + u;
    const T* bias = static_cast<const T*>(in.logit_bias);
    const int64_t last = at.logits;
    p[last] = bias ? load(bias + (at.K ? last * at.H : 0) + u, m) : splat<T>(0);
    for (int64_t j = 0; j < last; ++j) {
      if (!at.K) p[j] += load(kept + j * at.H, m);
      else if (bias) p[j] += load(bias + j * at.H + u, m);
    }
    const uint8_t* allowed = in.allowed ? in.allowed + index(i) * at.L : nullptr;
    V<T> top = splat<T>(-std::numeric_limits<T>::infinity());
    for (int64_t j = 0; j < at.L; ++j) {
      if (allowed && !allowed[j]) p[j] = splat<T>(-std::numeric_limits<T>::infinity());
      top = p[j] > top ? p[j] : top;
    }
    V<T> sum{};
    for (int64_t j = 0; j < at.L; ++j) sum += p[j] = exp_falling<T>(p[j] - top);
    const V<T> scale = T(1) / sum;
    for (int64_t j = 0; j < at.L; ++j) p[j] *= scale;
    for (int64_t j = 0; j < last; ++j) store(kept + j * at.H, p[j], m);
    for (int64_t j = 0; in.p && j < at.L; ++j) store(at.row(in.p, t, index(i), at.L * at.H) + j * at.H + u, p[j], m);
  }


  void new_state(int64_t t, int64_t i, int64_t u, int64_t m, const V<T>* p, V<T> v) {
    const V<T> s = load(&state[i * at.H + u], m);
    V<T> sum{};
    for (int64_t j = 0; j < at.L; ++j) {
      if (in.codes[j] < kCustom) sum += p[j] * compose<T>(static_cast<Op>(in.codes[j]), s, v).value;
      else sum += p[j] * load(at.custom_row(in.custom, j, t, index(i)) + u, m);
    }
    if (in.zoneout) {
      V<T> share = load(at.row(in.zoneout, t, index(i), at.H) + u, m);
      sum = share * s + (T(1) - share) * sum;
    }
    store(at.row(in.output, t, index(i), at.H) + u, sum, m);
    store(&state[i * at.H + u], sum, m);
    see(next_seen, i, u, m, sum);
  }
};

}  // namespace MUFURU_ARCH
}  // namespace mufuru
