// The composition operations: each value beside its derivatives. The codes are those of `mufuru/ops.py`.
#pragma once
#include "problem.h"
#include "vec.h"

namespace mufuru {

enum class Op : int64_t {
  keep = 0, replace = 1, max = 2, min = 3, mul = 4, diff = 5, forget = 6, sqr_diff = 7, negate = 8, add = 9
};
constexpr int64_t kOps = 10;

namespace MUFURU_ARCH {

// the operation's value, and its derivatives by s and by v
template <class T>
struct Composed {
  V<T> value, ds, dv;
};

template <class T>
__attribute__((always_inline)) inline Composed<T> compose(Op op, V<T> s, V<T> v) {
  const V<T> zero{}, one = zero + T(1), half = zero + T(0.5);
  switch (op) {
    case Op::keep: return {s, one, zero};
    case Op::replace: return {v, zero, one};
    // at s == v torch halves the gradient of max and min between both sides, and that of |s - v| is 0
    case Op::max: return {((s > v) | (s != s)) ? s : v, s > v ? one : s == v ? half : zero, s < v ? one : s == v ? half : zero};
    case Op::min: return {((s < v) | (s != s)) ? s : v, s < v ? one : s == v ? half : zero, s > v ? one : s == v ? half : zero};
    case Op::mul: return {s * v, v, s};
    case Op::diff: {
      V<T> sign = s > v ? half : s < v ? -half : zero;
      return {(s - v) * (s > v ? half : -half), sign, -sign};
    }
    case Op::forget: return {zero, zero, zero};
    case Op::sqr_diff: return {(s - v) * (s - v) * T(0.25), (s - v) * T(0.5), (v - s) * T(0.5)};
    case Op::negate: return {-s, -one, zero};
    case Op::add: return {s + v, one, one};
  }
  return {zero, zero, zero};
}

// The operations of a call: any list, or one known at compile time, which costs no switch.
struct Listed {
  static constexpr bool fixed = false;
  static constexpr int64_t most = kMaxOps;
  const int64_t *codes, n;
  explicit Listed(const Problem& problem) : codes(problem.codes), n(problem.ops) {}
  int64_t size() const { return n; }
  Op operator[](int64_t j) const { return static_cast<Op>(codes[j]); }
  bool built_in(int64_t j) const { return codes[j] < kCustom; }
};
template <Op... ops>
struct Fixed {
  static constexpr bool fixed = true;
  static constexpr int64_t most = sizeof...(ops);
  static constexpr Op list[] = {ops...};
  explicit Fixed(const Problem&) {}
  static constexpr int64_t size() { return sizeof...(ops); }
  constexpr Op operator[](int64_t j) const { return list[j]; }
  static constexpr bool built_in(int64_t) { return true; }
  static bool fits(const Problem& problem) {
    if (problem.ops != size()) return false;
    for (int64_t j = 0; j < size(); ++j)
      if (problem.codes[j] != static_cast<int64_t>(list[j])) return false;
    return true;
  }
};
using Paper = Fixed<Op::keep, Op::replace, Op::max, Op::min, Op::mul, Op::diff, Op::forget>;
using Gru = Fixed<Op::keep, Op::replace>;

}  // namespace MUFURU_ARCH
}  // namespace mufuru
