// Work distributed over torch's threads.
#pragma once
#include <sched.h>

#include "problem.h"
#include "vec.h"

namespace mufuru {
namespace MUFURU_ARCH {

// the fewest multiplications worth a thread of its own
constexpr int64_t kWorthAThread = 100000;
constexpr int64_t kMany = std::numeric_limits<int64_t>::max();

// number of threads worth using for this many multiplications in this many parts
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

// Threads that work on the same rows and wait for each other between one part of a step and the next.
class Team {
 public:
  explicit Team(int64_t n) : n(n) {}
  const int64_t n;

  // wait until every member has arrived here
  void wait() {
    if (n == 1) return;
    const int64_t now = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&waiting, 1, __ATOMIC_ACQ_REL) == n) {
      __atomic_store_n(&waiting, 0, __ATOMIC_RELAXED);
      __atomic_store_n(&generation, now + 1, __ATOMIC_RELEASE);
      return;
    }
    for (int64_t spins = 0; __atomic_load_n(&generation, __ATOMIC_ACQUIRE) == now; ++spins)
      spins < kSpins ? pause() : static_cast<void>(sched_yield());
  }

  // Whether all members have started, each on its own thread. The first to time out decides for all that they have
  // not: a busy machine, or a pool that runs one member after another, must not make the others wait for ever.
  bool gather() {
    __atomic_add_fetch(&gathered, 1, __ATOMIC_ACQ_REL);
    for (int64_t spins = 0; !__atomic_load_n(&decision, __ATOMIC_ACQUIRE); ++spins) {
      if (__atomic_load_n(&gathered, __ATOMIC_ACQUIRE) == n) decide(kTogether);
      else if (spins > kPatience) decide(kAlone);
      else pause();
    }
    return __atomic_load_n(&decision, __ATOMIC_ACQUIRE) == kTogether;
  }
  void refuse() { decide(kAlone); }

 private:
  enum Decision : int64_t { kOpen = 0, kTogether = 1, kAlone = 2 };
  static constexpr int64_t kSpins = 2000, kPatience = 5000;
  int64_t waiting = 0, generation = 0, gathered = 0, decision = kOpen;

  void decide(int64_t how) {
    int64_t open = kOpen;
    __atomic_compare_exchange_n(&decision, &open, how, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
};

// run(member, team) on n threads that may wait for each other, or on one if they are not available at once
template <class Run>
void in_team(const Threads& threads, int64_t n, Run run) {
  Team alone(1), team(n);
  if (n == 1 || !threads.parallel_for) return run(0, alone);
  struct Context {
    Run& run;
    Team &alone, &team;
  } context{run, alone, team};
  threads.parallel_for(
      0, n, 1,
      [](int64_t begin, int64_t end, void* p) {
        auto& context = *static_cast<Context*>(p);
        if (end - begin > 1) context.team.refuse();
        if (context.team.gather()) context.run(begin, context.team);
        else if (begin == 0) context.run(0, context.alone);
      },
      &context);
}

}  // namespace MUFURU_ARCH
}  // namespace mufuru
