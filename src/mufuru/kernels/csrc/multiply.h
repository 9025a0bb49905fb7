// How the products of a call multiply: in full precision, or rounded to bfloat16 and in pairs.
#pragma once
#include "pairs.h"

namespace mufuru {

extern const PairProducts* const instructed_pairs;  // null if the compiler did not know the instruction

namespace MUFURU_ARCH {

constexpr PairProducts lowered_pairs = make_pairs();

// null: full precision. Unpacked weights have that too: used once or a few times, they are read in float anyway.
template <class T>
inline const PairProducts* pairs_for(const Problem& problem) {
  if constexpr (sizeof(T) == 4) {
    if (problem.direct) return nullptr;
#if MUFURU_BYTES == 64
    if (problem.bfloat16 == kInstructed) return instructed_pairs;
#endif
    if (problem.bfloat16 != kWhole) return &lowered_pairs;
  }
  return nullptr;
}

// `product` of panels.h, with pairs or without
template <class T>
inline void product(const PairProducts* pairs, const T* const* rows, int64_t n_rows, int64_t depth, const T* panel,
                    int64_t apart, int64_t count, bool half, T* out) {
  if constexpr (sizeof(T) == 4)
    if (pairs) return pairs->product(rows, n_rows, pairs_of(depth), panel, apart, count, half, out);
  product<T>(rows, n_rows, depth, panel, apart, count, half, out);
}
template <class T>
inline void product(const PairProducts* pairs, const T* const* rows, int64_t n_rows, int64_t depth, const T* panel,
                    int64_t apart, int64_t first, int64_t count, int64_t columns, T* out) {
  if (!pairs) return product<T>(rows, n_rows, depth, panel, apart, first, count, columns, out);
  const int64_t last = count - 1, halves = is_half<T>(columns, first + last) ? 1 : 0;
  product<T>(pairs, rows, n_rows, depth, panel, apart, count - halves, false, out);
  if (halves)
    product<T>(pairs, rows, n_rows, depth, panel + last * apart, apart, 1, true, out + last * n_rows * Panel<T>::width);
}

// `each_product` of panels.h, with pairs or without
template <class T, class Done>
inline void each_product(const PairProducts* pairs, const T* const* rows, int64_t n_rows, int64_t depth, const T* panel,
                         int64_t columns, int64_t begin, int64_t end, T* tiles, Done done) {
  if (!pairs) return each_product<T>(rows, n_rows, depth, panel, columns, begin, end, tiles, done);
  const int64_t size = pairs_of(depth) * Panel<T>::width;
  const int64_t together = n_rows > kRows ? 1 : end - begin;
  for (int64_t first = begin; first < end; first += together) {
    product<T>(pairs, rows, n_rows, depth, panel + first * size, size, first, together, columns, tiles);
    each_vector<T>(tiles, n_rows, first, together, columns, done);
  }
}

// Rows as products take them: where these multiply pairs, a rounded copy.
template <class T>
class Operands {
 public:
  Operands(const PairProducts* pairs, int64_t n_rows, int64_t depth) : pairs(pairs), stride(pairs_of(depth)) {
    if (!pairs) return;  // a short call should not allocate memory that it does not need
    numbers.take(n_rows * stride);
    places.take(n_rows);
  }

  const T* const* of(const T* const* rows, int64_t n_rows, int64_t depth) {
    if (!pairs) return rows;
    if constexpr (sizeof(T) == 4)
      for (int64_t i = 0; i < n_rows; ++i) {
        pairs->round(rows[i], depth, &numbers[i * stride]);
        places[i] = &numbers[i * stride];
      }
    return places.data();
  }
  // the same, but the rows of the last call are used again until they are forgotten
  const T* const* once(const T* const* rows, int64_t n_rows, int64_t depth) {
    if (!pairs || known) return pairs ? places.data() : rows;
    known = true;
    return of(rows, n_rows, depth);
  }
  void forget() { known = false; }

 private:
  const PairProducts* const pairs;
  const int64_t stride;
  bool known = false;
  Buffer<T> numbers;
  Buffer<const T*> places;
};

}  // namespace MUFURU_ARCH
}  // namespace mufuru
