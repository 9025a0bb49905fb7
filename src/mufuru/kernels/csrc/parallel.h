// Work dealt out to torch's threads.
#pragma once
#include "problem.h"
#include "vec.h"

namespace mufuru {
namespace MUFURU_ARCH {

// the fewest multiplications worth a thread of its own
constexpr int64_t kWorthAThread = 100000;
constexpr int64_t kMany = std::numeric_limits<int64_t>::max();

// how many threads so many multiplications are worth, of those that there are and if the work has so many parts
inline int64_t workers(const Threads& threads, int64_t multiplications, int64_t parts) {
  uint32_t available = 1;
  if (threads.num_threads) threads.num_threads(&available);
  return most(1, least(least(available, parts), multiplications / kWorthAThread));
}

// run(worker, workers) on as many threads as there are workers
template <class Run>
void in_parallel(const Threads& threads, int64_t n, Run run) {
  if (n == 1 || !threads.parallel_for) {
    for (int64_t worker = 0; worker < n; ++worker) run(worker, n);
    return;
  }
  struct Context {
    Run& run;
    int64_t n;
  } context{run, n};
  threads.parallel_for(
      0, n, 1,
      [](int64_t begin, int64_t end, void* p) {
        auto& context = *static_cast<Context*>(p);
        for (int64_t worker = begin; worker < end; ++worker) context.run(worker, context.n);
      },
      &context);
}

}  // namespace MUFURU_ARCH
}  // namespace mufuru
