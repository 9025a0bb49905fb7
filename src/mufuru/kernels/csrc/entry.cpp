// The functions that Python calls, and the choice of the instruction set.
#include <cstdlib>
#include <cstring>

#include "problem.h"
#ifndef MUFURU_PORTABLE_ONLY
#include <cpuid.h>
#endif

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace mufuru {

extern const Kernel kernels_plain[2], kernels_avx2[2], kernels_avx512[2];
extern const PairProducts* const instructed_pairs;
constexpr int64_t kInstructionSets = 3;
static const char* const kNames[kInstructionSets] = {"plain", "avx2", "avx512"};

static bool supported(int64_t set) {
#ifndef MUFURU_PORTABLE_ONLY
  __builtin_cpu_init();
  if (set == 1) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (set == 2)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw");
#endif
  return set == 0;
}

static const Kernel* kernels(int64_t set) {
#ifndef MUFURU_PORTABLE_ONLY
  if (set == 1) return kernels_avx2;
  if (set == 2) return kernels_avx512;
#endif
  return set == 0 ? kernels_plain : nullptr;
}

static int64_t best() {
  int64_t set = kInstructionSets - 1;
  while (!supported(set)) --set;
  return set;
}

// whether the processor multiplies pairs of bfloat16 numbers; AVX-512 is needed as well
static bool has_bfloat16() {
#ifndef MUFURU_PORTABLE_ONLY
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_max(0, nullptr) >= 7 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= 1 &&
         __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
#else
  return false;
#endif
}

static Threads threads;
static int64_t chosen = best();

template <class Arguments>
static const Kernel& kernel(const Arguments* p) {
  return kernels(chosen)[p->is_double ? 1 : 0];
}

}  // namespace mufuru

using namespace mufuru;

EXPORT int mufuru_abi() { return kAbi; }
EXPORT int64_t mufuru_problem_size() { return sizeof(Problem); }

EXPORT void mufuru_set_threads(ParallelFor parallel_for, NumThreads num_threads) { threads = {parallel_for, num_threads}; }

EXPORT const char* mufuru_instruction_set() { return kNames[chosen]; }
// returns whether this machine has the named set; an empty name chooses the best
EXPORT int mufuru_choose(const char* name) {
  if (!*name) {
    chosen = best();
    return 1;
  }
  for (int64_t set = 0; set < kInstructionSets; ++set)
    if (!std::strcmp(name, kNames[set]) && supported(set)) {
      chosen = set;
      return 1;
    }
  return 0;
}

// how float products can multiply numbers rounded to bfloat16 with the chosen set: by emulation or by the instruction
EXPORT int mufuru_bfloat16() {
#ifndef MUFURU_PORTABLE_ONLY
  if (chosen == 2 && instructed_pairs && has_bfloat16()) return kInstructed;
#endif
  return kLowered;
}
// whether the processor has the instruction, whichever set is chosen
EXPORT int mufuru_has_bfloat16() { return has_bfloat16() && supported(2); }

EXPORT uint64_t mufuru_checksum(const Problem* p) { return kernel(p).checksum(*p, threads); }
EXPORT int64_t mufuru_space(const Problem* p, int back) { return kernel(p).space(*p, back); }
EXPORT void mufuru_pack(const Problem* p) { kernel(p).pack(*p, threads); }
EXPORT void mufuru_forward(const Problem* p) { kernel(p).forward(*p, threads); }
EXPORT void mufuru_activate(const Problem* p, int64_t step) { kernel(p).activate(*p, threads, step); }
EXPORT void mufuru_compose(const Problem* p, int64_t step) { kernel(p).compose(*p, threads, step); }
EXPORT void mufuru_backward(const Problem* p) { kernel(p).backward(*p, threads); }
EXPORT int64_t mufuru_predictions_space(const Predictions* p) { return kernel(p).predictions_space(*p); }
EXPORT void mufuru_predict(const Predictions* p) { kernel(p).predict(*p, threads); }
EXPORT void mufuru_function(int is_double, int64_t which, int64_t n, const void* x, void* y) {
  kernels(chosen)[is_double].function(which, n, x, y);
}
