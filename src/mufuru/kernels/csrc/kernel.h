// The kernel of one instruction set; included by plain.cpp, avx2.cpp and avx512.cpp, which name it and its vector size.
#pragma once
#include "backward.h"
#include "cross_entropy.h"
#include "forward.h"
#include "gradients.h"

namespace mufuru {
namespace MUFURU_ARCH {

template <class T>
int64_t workers(const Problem& problem, const Threads& threads, int64_t steps_rows, bool by_sequence = true) {
  const Shape<T> at(problem);
  return workers(threads, steps_rows * at.W * (at.seen + at.X), by_sequence ? problem.batch : kMany);
}

// run(Ops) with the list of operations that fits; the lists known at compile time where speed matters most
template <class T, class Run>
void with_ops(const Problem& problem, Run run) {
  if constexpr (sizeof(T) == 4 && MUFURU_BYTES > 16) {
    if (Paper::fits(problem)) return run(static_cast<Paper*>(nullptr));
    if (Gru::fits(problem)) return run(static_cast<Gru*>(nullptr));
  }
  run(static_cast<Listed*>(nullptr));
}

template <class T>
void forward(const Problem& problem, const Threads& threads) {
  const int64_t first = problem.reverse ? problem.steps - 1 : 0;
  with_ops<T>(problem, [&](auto* ops) {
    using Ops = std::remove_pointer_t<decltype(ops)>;
    in_parallel(threads, workers<T>(problem, threads, problem.offsets[problem.steps]),
                [&](int64_t worker, int64_t n) { Forward<T, Ops>(problem, worker, n, first).run(); });
  });
}

template <class T>
void activate(const Problem& problem, const Threads& threads, int64_t step) {
  in_parallel(threads, workers<T>(problem, threads, problem.batch),
              [&](int64_t worker, int64_t n) { Forward<T, Listed>(problem, worker, n, step).activate(step); });
}

template <class T>
void compose(const Problem& problem, const Threads&, int64_t step) {
  Forward<T, Listed>(problem, 0, 1, step).compose_step(step);
}

template <class T>
void backward(const Problem& problem, const Threads& threads) {
  const Work<T> work(Shape<T>(problem), problem.space);
  pack_backward<T>(problem, work.packed);
  with_ops<T>(problem, [&](auto* ops) {
    using Ops = std::remove_pointer_t<decltype(ops)>;
    in_parallel(threads, workers<T>(problem, threads, problem.offsets[problem.steps]),
                [&](int64_t worker, int64_t n) { Backward<T, Ops>(problem, work, worker, n).run(); });
  });
  const Gradients<T> gradients(problem, work);
  in_parallel(threads, workers<T>(problem, threads, problem.offsets[problem.steps], false),
              [&](int64_t worker, int64_t n) { gradients.run(worker, n); });
  gradients.complete();
}

template <class T>
int64_t space(const Problem& problem, bool back) {
  const Shape<T> at(problem);
  return back ? Work<T>(at, nullptr).size : at.packed_size();
}

template <class T>
void pack(const Problem& problem) {
  pack_forward<T>(problem, static_cast<T*>(problem.space));
}

template <class T>
void function(int64_t which, int64_t n, const void* x, void* y) {
  for (int64_t i = 0; i < n; i += Lanes<T>::n) {
    const int64_t m = least(n - i, Lanes<T>::n);
    const V<T> a = load(static_cast<const T*>(x) + i, m);
    store(static_cast<T*>(y) + i, which == 0 ? exp<T>(a) : which == 1 ? tanh<T>(a) : sigmoid<T>(a), m);
  }
}

template <class T>
int64_t predictions_space(const Predictions& in) {
  return CrossEntropy<T>(in).room();
}

template <class T>
void predict(const Predictions& in, const Threads& threads) {
  CrossEntropy<T>(in).run(threads);
}

template <class T>
constexpr Kernel make() {
  return {space<T>, pack<T>, forward<T>, activate<T>, compose<T>, backward<T>, predictions_space<T>, predict<T>, function<T>};
}

}  // namespace MUFURU_ARCH

extern const Kernel MUFURU_KERNELS[2];  // float, double
const Kernel MUFURU_KERNELS[2] = {MUFURU_ARCH::make<float>(), MUFURU_ARCH::make<double>()};

}  // namespace mufuru
