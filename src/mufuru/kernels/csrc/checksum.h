// A checksum over all weights, to see whether packed weights are still valid. It is computed in every call, so it should
// take no longer than reading them.
#pragma once
#include "parallel.h"
#include "problem.h"

namespace mufuru {
namespace MUFURU_ARCH {

constexpr uint64_t kBasis = 14695981039346656037u, kPrime = 11400714785074694791u;
constexpr int64_t kHashed = 1 << 18;  // bytes hashed separately: the result does not depend on the number of threads

typedef uint64_t Lines __attribute__((vector_size(MUFURU_BYTES)));

// Every step is invertible: a changed word changes the state, and a changed state the next. The rotation moves the
// high bits, signs among them, to where the product spreads them.
inline uint64_t mix(uint64_t state, uint64_t word) {
  const uint64_t both = state ^ word;
  return (both << 31 | both >> 33) * kPrime;
}
// the same on vectors, which have no product of 64-bit words
inline Lines mix(Lines state, Lines word) {
  state ^= word;
  state += state << 27;
  return state ^ state >> 29;
}

inline uint64_t checksum(uint64_t seed, const char* data, int64_t bytes) {
  constexpr int64_t kChains = 8, n = sizeof(Lines) / 8;  // one chain would wait for itself
  uint64_t start[kChains * n];
  for (int64_t i = 0; i < kChains * n; ++i) start[i] = mix(seed, i);
  Lines chains[kChains];
  std::memcpy(chains, start, sizeof start);
  int64_t at = 0;
  for (; at + kChains * static_cast<int64_t>(sizeof(Lines)) <= bytes; at += kChains * sizeof(Lines))
#pragma GCC unroll 8
    for (int64_t c = 0; c < kChains; ++c) {
      Lines word;
      std::memcpy(&word, data + at + c * sizeof(Lines), sizeof(Lines));
      chains[c] = mix(chains[c], word);
    }
  uint64_t state = mix(seed, bytes);
  for (; at < bytes; at += 4) {
    uint32_t half;
    std::memcpy(&half, data + at, 4);
    state = mix(state, half);
  }
  for (int64_t c = 0; c < kChains; ++c)
    for (int64_t l = 0; l < n; ++l) state = mix(state, chains[c][l]);
  return state;
}

template <class T>
uint64_t checksum(const Problem& p, const Threads& threads) {
  const int64_t H = p.hidden, K = p.controller, logits = p.ops * H;
  const int64_t rows = (p.reset == kNoReset ? H : 2 * H) + (K ? K : logits);
  const void* data[] = {p.w_ih, p.w_hh, p.b_ih, p.b_hh, p.w_kk, p.w_op, p.b_op};
  const int64_t sizes[] = {rows * p.inputs, rows * H, rows, rows, K * K, logits * K, logits};
  // panels are as wide as the instruction set's vectors, and hold numbers or pairs
  uint64_t state = mix(mix(kBasis, MUFURU_BYTES), p.bfloat16);
  for (int64_t k = 0; k < 7; ++k) {
    const int64_t bytes = data[k] ? sizes[k] * sizeof(T) : 0, blocks = (bytes + kHashed - 1) / kHashed;
    Buffer<uint64_t> sums(blocks);
    in_parallel(threads, workers(threads, bytes / 8, blocks), [&](int64_t worker, int64_t n) {
      for (int64_t b = blocks * worker / n; b < blocks * (worker + 1) / n; ++b)
        sums[b] = checksum(b, static_cast<const char*>(data[k]) + b * kHashed, least(kHashed, bytes - b * kHashed));
    });
    state = mix(state, bytes);
    for (int64_t b = 0; b < blocks; ++b) state = mix(state, sums[b]);
  }
  return state;
}

}  // namespace MUFURU_ARCH
}  // namespace mufuru
