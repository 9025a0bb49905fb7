// Compares the ways of tests/bfloat16_products.cpp with each other, bit for bit.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "problem.h"

using mufuru::PairProducts;
extern const PairProducts lowered_products, fused_products, emulated_products;
#if defined(MUFURU_SIMDE)
extern const PairProducts simde_products;
#endif

constexpr int64_t kWidth = 32, kGroup = 8;  // numbers of a panel of AVX-512, columns of a group
using Numbers = std::vector<float>;
enum Kind { kNoise, kEdges, kWhole };  // whole numbers: every sum is exact, whatever its order

static std::mt19937 generator(7);
static int64_t compared = 0;

static float number(Kind kind) {
  if (kind == kWhole) return static_cast<float>(static_cast<int>(generator() % 17) - 8);
  const float x = std::normal_distribution<float>()(generator);
  const float edges[] = {0, -0.0f, 1e-39f, -1e-41f, 1.1754942e-38f, 1.5e-38f, 1e-20f, 3e-19f, 3.4e38f, -3e38f, INFINITY, -INFINITY, NAN};
  return kind == kEdges && generator() % 4 == 0 ? edges[generator() % 13] : x;
}
static Numbers numbers(Kind kind, int64_t n) {
  Numbers all(n);
  for (float& x : all) x = number(kind);
  return all;
}

static void require_same(const Numbers& a, const Numbers& b, const char* what) {
  for (size_t i = 0; i < a.size(); ++i, ++compared) {
    if (!std::memcmp(&a[i], &b[i], 4) || (a[i] != a[i] && b[i] != b[i])) continue;
    std::fprintf(stderr, "bfloat16_check: %s: number %zu is %a by one way and %a by the other\n", what, i, a[i], b[i]);
    std::exit(1);
  }
}

// rows of pairs, made by `round` of the way itself
static Numbers pairs(const PairProducts& way, const Numbers& from, int64_t rows, int64_t depth) {
  const int64_t stride = (depth + 1) / 2;
  Numbers to(rows * stride);
  for (int64_t i = 0; i < rows; ++i) way.round(from.data() + i * depth, depth, to.data() + i * stride);
  return to;
}

static void compare(const PairProducts& one, const PairProducts& other, Kind kind) {
  for (int64_t rows = 0; rows <= 18; ++rows)
    for (int64_t depth : {0, 1, 2, 15, 16, 33, 70})
      for (int64_t count : {1, 2, 7, 13})
        for (bool half : {false, true}) {
          const int64_t deep = (depth + 1) / 2;
          const Numbers x = numbers(kind, rows * depth), w = numbers(kind, count * kWidth * 2 * deep);
          const Numbers panel = pairs(one, w, 1, w.size());
          Numbers results[2];
          for (int k = 0; k < 2; ++k) {
            const PairProducts& way = k ? other : one;
            const Numbers operand = pairs(way, x, rows, depth);
            if (k == 1) require_same(pairs(one, x, rows, depth), operand, "rounding");
            std::vector<const float*> places;
            for (int64_t i = 0; i < rows; ++i) places.push_back(operand.data() + i * deep);
            results[k].assign(count * rows * kWidth, 0);
            way.product(places.data(), rows, deep, panel.data(), deep * kWidth, count, half, results[k].data());
            // of a half panel the other half means nothing
            for (size_t i = 0; half && i < results[k].size(); ++i)
              if (i % kWidth >= kWidth / 2) results[k][i] = 0;
          }
          require_same(results[0], results[1], "product");
        }
  for (int64_t columns = 1; columns <= kGroup; ++columns)
    for (int64_t deep : {0, 1, 5, 128})
      for (bool add : {false, true}) {
        const Numbers right = pairs(one, numbers(kind, 2 * deep * kGroup), 1, 2 * deep * kGroup);
        const Numbers left = pairs(one, numbers(kind, 2 * deep * kWidth), 1, 2 * deep * kWidth);
        const Numbers there = numbers(kind, columns * kWidth);
        Numbers results[2] = {there, there};
        for (int k = 0; k < 2; ++k) (k ? other : one).outer(columns, right.data(), left.data(), deep, add, results[k].data());
        require_same(results[0], results[1], "outer");
      }
}

int main() {
  for (Kind kind : {kNoise, kEdges, kWhole}) {
    compare(emulated_products, lowered_products, kind);
    // two vectors of AVX2 stand for one here, of which g++ fuses nothing: products beyond the largest number would differ
    if (kind != kEdges) compare(emulated_products, fused_products, kind);
  }
#if defined(MUFURU_SIMDE)
  compare(simde_products, lowered_products, kWhole);  // SIMDe adds a pair the other way round
#endif
  std::printf("%lld numbers are the same\n", static_cast<long long>(compared));
}
