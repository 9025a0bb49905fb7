// The kernel of one instruction set; included by plain.cpp, avx2.cpp and avx512.cpp, which name it and its vector size.
#pragma once
#if defined(__linux__)
#include <sys/mman.h>
#endif
#include "backward.h"
#include "checksum.h"
#include "cross_entropy.h"
#include "forward.h"
#include "gradients.h"

namespace mufuru {
namespace MUFURU_ARCH {

constexpr int64_t kPacking = 4;  // packing the weights takes about as long as the products of this many rows

constexpr int64_t kOwnMapping = 1 << 25;  // from so many bytes on a block of memory is always a mapping of its own

// Ask for huge pages: touching a new block page by page takes about as long as a tenth of the products of its rows.
inline void in_huge_pages(void* block, int64_t bytes) {
#if defined(MADV_HUGEPAGE)
  constexpr uintptr_t page = 4096;
  if (bytes < kOwnMapping) return;
  const auto begin = (reinterpret_cast<uintptr_t>(block) + page - 1) / page * page, end = reinterpret_cast<uintptr_t>(block) + bytes;
  madvise(reinterpret_cast<void*>(begin), (end - begin) / page * page, MADV_HUGEPAGE);  // refused: then it is as before
#else
  static_cast<void>(block), static_cast<void>(bytes);
#endif
}

// number of threads worth using for a call with this many rows of all steps and this many parts
template <class T>
int64_t workers(const Problem& problem, const Threads& threads, int64_t rows, int64_t parts) {
  const Shape<T> at(problem);
  return workers(threads, rows * at.W * (at.seen + at.X), parts);
}

// Work on all rows of all steps: run(common, share, member, team). Workers with sequences of their own need not wait for
// each other; a team works on the same sequences, each member on some units, and has a Common for all.
template <class T, class Common, class Run>
void share_out(const Problem& problem, const Threads& threads, int64_t rows, Run run) {
  const Shape<T> at(problem);
  const int64_t by_units = workers<T>(problem, threads, rows, at.chunks());
  if (at.direct || (problem.batch == 1 && by_units > 1)) {
    Common common(at, problem.batch);
    return in_team(threads, by_units, [&](int64_t member, Team& team) { run(common, Share(problem, 0, 1), member, team); });
  }
  in_parallel(threads, workers<T>(problem, threads, rows, problem.batch), [&](int64_t worker, int64_t n) {
    const Share share(problem, worker, n);
    Common common(at, share.n);
    Team alone(1);
    run(common, share, 0, alone);
  });
}

// run(Ops) with the list of operations that fits; the lists known at compile time where speed matters most
template <class T, class Run>
void with_ops(const Problem& problem, Run run) {
#ifdef MUFURU_PORTABLE_ONLY
  constexpr bool matters = sizeof(T) == 4;
#else
  constexpr bool matters = sizeof(T) == 4 && MUFURU_BYTES > 16;
#endif
  if constexpr (matters) {
    if (Paper::fits(problem)) return run(static_cast<Paper*>(nullptr));
    if (Gru::fits(problem)) return run(static_cast<Gru*>(nullptr));
  }
  run(static_cast<Listed*>(nullptr));
}

template <class T>
void forward(const Problem& problem, const Threads& threads) {
  if (problem.gates) in_huge_pages(problem.gates, problem.offsets[problem.steps] * Shape<T>(problem).W * sizeof(T));
  const int64_t first = problem.reverse ? problem.steps - 1 : 0;
  with_ops<T>(problem, [&](auto* ops) {
    using Ops = std::remove_pointer_t<decltype(ops)>;
    const auto run = [&](States<T>& states, const Share& share, int64_t member, Team& team) {
      Forward<T, Ops>(problem, states, share, first, member, team).run();
    };
    share_out<T, States<T>>(problem, threads, problem.offsets[problem.steps], run);
  });
}

template <class T>
void activate(const Problem& problem, const Threads& threads, int64_t step) {
  const auto run = [&](States<T>& states, const Share& share, int64_t member, Team& team) {
    Forward<T, Listed>(problem, states, share, step, member, team).activate(step);
  };
  share_out<T, States<T>>(problem, threads, problem.batch, run);
}

template <class T>
void compose(const Problem& problem, const Threads&, int64_t step) {
  States<T> states(Shape<T>(problem), problem.batch);
  Team alone(1);
  Forward<T, Listed>(problem, states, Share(problem, 0, 1), step, 0, alone).compose_step(step);
}

template <class T>
void backward(const Problem& problem, const Threads& threads) {
  const Work<T> work(Shape<T>(problem), problem.space);
  in_huge_pages(problem.space, work.size * sizeof(T));
  const int64_t total = problem.offsets[problem.steps];
  const Gradients<T> gradients(problem, work);
  if (!problem.direct)
    in_parallel(threads, workers<T>(problem, threads, kPacking, kMany),
                [&](int64_t worker, int64_t n) { pack_backward<T>(problem, work.packed, worker, n); });
  with_ops<T>(problem, [&](auto* ops) {
    using Ops = std::remove_pointer_t<decltype(ops)>;
    const auto run = [&](StateGradients<T>& states, const Share& share, int64_t member, Team& team) {
      Backward<T, Ops>(problem, work, states, share, member, team).run();
      if (problem.direct) gradients.run_direct(member, team.n);
    };
    share_out<T, StateGradients<T>>(problem, threads, total, run);
  });
  if (problem.direct && problem.ops > 1) return;
  if (!problem.direct)
    in_parallel(threads, workers<T>(problem, threads, total, kMany),
                [&](int64_t worker, int64_t n) { gradients.run(worker, n); });
  gradients.complete();
}

template <class T>
int64_t space(const Problem& problem, bool back) {
  const Shape<T> at(problem);
  return back ? Work<T>(at, nullptr).size : at.direct ? 0 : at.packed_size();
}

template <class T>
void pack(const Problem& problem, const Threads& threads) {
  in_parallel(threads, workers<T>(problem, threads, kPacking, kMany),
              [&](int64_t worker, int64_t n) { pack_forward<T>(problem, static_cast<T*>(problem.space), worker, n); });
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
  return {space<T>, checksum<T>, pack<T>, forward<T>, activate<T>, compose<T>, backward<T>, predictions_space<T>, predict<T>, function<T>};
}

}  // namespace MUFURU_ARCH

extern const Kernel MUFURU_KERNELS[2];  // float, double
const Kernel MUFURU_KERNELS[2] = {MUFURU_ARCH::make<float>(), MUFURU_ARCH::make<double>()};

}  // namespace mufuru
