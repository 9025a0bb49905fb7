// The native kernel without Python, for sanitizers and other processors: every buffer is on the heap and exactly as large
// as it must be, so that any access beside it is seen. `make sanitize` and `make arm64` build and run this.
//
// `native_check few` takes one of seven combinations of options, and prints of each case two sums over its results, which
// another processor must come close to.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "problem.h"

using namespace mufuru;

extern "C" {
int64_t mufuru_space(const Problem*, int back);
uint64_t mufuru_checksum(const Problem*);
void mufuru_pack(const Problem*);
void mufuru_forward(const Problem*);
void mufuru_activate(const Problem*, int64_t step);
void mufuru_compose(const Problem*, int64_t step);
void mufuru_backward(const Problem*);
int64_t mufuru_predictions_space(const Predictions*);
void mufuru_predict(const Predictions*);
void mufuru_function(int is_double, int64_t which, int64_t n, const void* x, void* y);
int mufuru_choose(const char* name);
int mufuru_bfloat16();
void mufuru_set_threads(ParallelFor, NumThreads);
}

static uint32_t thread_count = 1;

static int32_t count_threads(uint32_t* n) {
  *n = thread_count;
  return 0;
}

static int32_t parallel_for(int64_t begin, int64_t end, int64_t, Body body, void* context) {
  std::vector<std::thread> threads;
  for (int64_t i = begin; i < end; ++i) threads.emplace_back([=] { body(i, i + 1, context); });
  for (auto& thread : threads) thread.join();
  return 0;
}

static void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "native_check: %s\n", what);
  std::exit(1);
}

struct Sizes {
  int64_t inputs, hidden, controller, ops;
  std::vector<int64_t> alive;  // sequences at each step
  int64_t batch;
  bool masks, python;  // masks: and a trace
};

template <class T>
class Check {
 public:
  Check(const Sizes& sizes, int64_t reset, bool reverse, bool train, bool direct, int64_t bfloat16)
      : sizes(sizes), train(train), random(7) {
    const int64_t X = sizes.inputs, H = sizes.hidden, K = sizes.controller, L = sizes.ops, B = sizes.batch;
    for (int64_t n : sizes.alive) offsets.push_back(offsets.back() + n);
    const int64_t total = offsets.back(), rest = reset == kNoReset ? H : 2 * H, W = rest + (K ? K : (L - 1) * H);
    for (int64_t j = 0; j < L; ++j) codes.push_back(sizes.python && j % 3 == 1 ? kCustom + j / 3 : j % 10);
    const int64_t python = sizes.python ? (L + 1) / 3 : 0;
    problem.steps = sizes.alive.size(), problem.batch = B, problem.inputs = X, problem.hidden = H;
    problem.controller = K, problem.ops = L, problem.controller_activation = reverse ? kRelu : kTanh;
    problem.reset = reset, problem.reverse = reverse, problem.is_double = sizeof(T) == 8;
    problem.direct = direct, problem.bfloat16 = bfloat16;
    problem.offsets = offsets.data(), problem.codes = codes.data();
    const int64_t rows = rest + (K ? K : L * H);
    problem.w_ih = fresh(rows * X), problem.w_hh = fresh(rows * H), problem.x = fresh(total * X);
    if (!reverse) problem.b_ih = fresh(rows), problem.b_hh = fresh(rows);
    problem.w_kk = K ? fresh(K * K) : nullptr, problem.w_op = K ? fresh(L * H * K) : nullptr;
    problem.b_op = K && !reverse ? fresh(L * H) : nullptr;
    problem.s0 = fresh(B * H), problem.k0 = K ? fresh(B * K) : nullptr;
    if (sizes.masks) {
      problem.state_mask = fresh(B * H), problem.zoneout = fresh(total * H);
      for (int64_t i = 0; i < B * L; ++i) allowed.push_back(i % L == 0 || i % 3);
      problem.allowed = allowed.data();
      for (int64_t i = 0; i < total; ++i) resets.push_back(i % 4 == 1);
      problem.resets = resets.data();
    }
    problem.custom = fresh(python * total * H);
    problem.custom_ds = fresh(python * total * H), problem.custom_dv = fresh(python * total * H);
    if (train || sizes.python) {
      problem.gates = fresh(total * W), problem.probs = K ? fresh(total * (L - 1) * H) : nullptr;
      problem.inner = reset == kAfter ? fresh(total * H) : nullptr;
    }
    problem.output = fresh(total * H), problem.s_n = fresh(B * H), problem.k_n = K ? fresh(B * K) : nullptr;
    if (sizes.masks) problem.p = fresh(total * L * H), problem.v = fresh(total * H);
    problem.grad_output = fresh(total * H), problem.grad_s_n = fresh(B * H), problem.grad_k_n = K ? fresh(B * K) : nullptr;
    if (sizes.masks) problem.grad_p = fresh(total * L * H), problem.grad_v = fresh(total * H);
    problem.d_s0 = fresh(B * H), problem.d_k0 = K ? fresh(B * K) : nullptr;
    problem.d_x = reverse ? nullptr : fresh(total * X);
    problem.d_ih = fresh(rows * X), problem.d_hh = fresh(rows * H);
    problem.d_bias_ih = reverse ? nullptr : fresh(rows), problem.d_bias_hh = reverse ? nullptr : fresh(rows);
    problem.d_kk = K ? fresh(K * K) : nullptr, problem.d_op = K ? fresh(L * H * K) : nullptr;
    problem.d_bias_op = K && !reverse ? fresh(L * H) : nullptr;
    gate_rows = rows;
  }

  // the states after every step and, in training, gradients of the first ones and of the weights
  std::vector<T> run() {
    mufuru_checksum(&problem);
    problem.space = fresh(mufuru_space(&problem, 0));
    if (!problem.direct) mufuru_pack(&problem);
    if (sizes.python) by_steps();
    else mufuru_forward(&problem);
    std::vector<T> result;
    append(result, problem.output, offsets.back() * sizes.hidden);
    if (train) {
      problem.space = fresh(mufuru_space(&problem, 1));
      mufuru_backward(&problem);
      append(result, problem.d_s0, sizes.batch * sizes.hidden);
      append(result, problem.d_ih, gate_rows * sizes.inputs);
      append(result, problem.d_hh, gate_rows * sizes.hidden);
    }
    for (T x : result) require(x - x == 0, "a result is not finite");
    return result;
  }

 private:
  Sizes sizes;
  bool train;
  Problem problem{};
  int64_t gate_rows;
  std::vector<int64_t> offsets{0}, codes;
  std::vector<uint8_t> allowed, resets;
  std::vector<std::vector<T>> kept;
  std::mt19937 random;

  T* fresh(int64_t n) {
    kept.emplace_back(n);
    for (T& x : kept.back()) x = T(random() % 2001) / 1000 - 1;
    return kept.back().data();
  }

  static void append(std::vector<T>& to, const void* from, int64_t n) {
    const T* numbers = static_cast<const T*>(from);
    to.insert(to.end(), numbers, numbers + n);
  }

  void by_steps() {
    for (int64_t i = 0; i < problem.steps; ++i) {
      const int64_t t = problem.reverse ? problem.steps - 1 - i : i;
      mufuru_activate(&problem, t);
      mufuru_compose(&problem, t);
    }
  }
};

// sums that notice a wrong number and a wrong place; after more steps rounding alone decides the results
template <class T>
static void print_sums(const char* what, int64_t steps, const std::vector<T>& result) {
  if (steps > 4) return;
  double sum = 0, size = 0;
  for (size_t i = 0; i < result.size(); ++i) sum += result[i] * std::cos(double(i)), size += std::fabs(result[i]);
  std::printf("%s %d %.17g %.17g\n", what, int(8 * sizeof(T)), sum, size);
}

template <class T>
static void check(const Sizes& sizes, int64_t reset, bool reverse, bool train, bool print) {
  std::vector<T> first;
  for (bool direct : {false, true})
    for (uint32_t threads : {1, 2, 3}) {
      thread_count = threads;
      std::vector<T> result = Check<T>(sizes, reset, reverse, train, direct, kWhole).run();
      if (threads == 1 && !direct) first = result;
      require(first == result, "the result depends on the threads, or on whether the weights are packed beforehand");
    }
  if (print) print_sums("layer", sizes.alive.size(), first);
}

// the same with products in bfloat16, lowered and, where there is one, by the instruction
static void check_bfloat16(const Sizes& sizes, int64_t reset, bool reverse, bool train) {
  for (int64_t way = kLowered; way <= mufuru_bfloat16(); ++way) {
    std::vector<float> first;
    for (uint32_t threads : {1, 2, 3}) {
      thread_count = threads;
      std::vector<float> result = Check<float>(sizes, reset, reverse, train, false, way).run();
      if (threads == 1) first = result;
      require(first == result, "the result in bfloat16 depends on the threads");
    }
  }
}

// losses and gradients of a softmax, the same on any number of threads
template <class T>
static void check_predictions(int64_t rows, int64_t features, int64_t words, bool print) {
  std::vector<T> first;
  for (uint32_t threads : {1, 2, 3}) {
    thread_count = threads;
    std::vector<T> hidden(rows * features, T(0.1)), weight(words * features, T(-0.2)), bias(words, T(0.3));
    std::vector<T> losses(rows), d_hidden(rows * features), d_weight(words * features), d_bias(words);
    std::vector<int64_t> targets(rows);
    for (int64_t i = 0; i < rows; ++i) targets[i] = 7 * i % words;
    Predictions in{rows, features, words, sizeof(T) == 8, hidden.data(), weight.data(), bias.data(), targets.data(),
                   nullptr, losses.data(), d_hidden.data(), d_weight.data(), d_bias.data()};
    std::vector<T> space(mufuru_predictions_space(&in));
    in.space = space.data();
    mufuru_predict(&in);
    for (const auto* part : {&d_hidden, &d_weight, &d_bias}) losses.insert(losses.end(), part->begin(), part->end());
    for (T x : losses) require(x - x == 0, "a result is not finite");
    if (threads == 1) first = losses;
    require(first == losses, "the result depends on the threads");
  }
  if (print) print_sums("softmax", 1, first);
}

template <class T>
static void check_functions() {
  for (int64_t n = 0; n < 40; ++n)
    for (int64_t which = 0; which < 3; ++which) {
      std::vector<T> x(n, T(-3)), y(n);
      mufuru_function(sizeof(T) == 8, which, n, x.data(), y.data());
    }
}

int main(int count, char** arguments) {
  const bool few = count > 1 && !std::strcmp(arguments[1], "few");
  mufuru_set_threads(parallel_for, count_threads);
  const std::vector<int64_t> many_steps(30, 7), many_rows(60, 5), stream(12, 1);
  // inputs, hidden, controller, operations, sequences at each step, batch, masks and trace, Python operations
  const std::vector<Sizes> all = {
      {1, 1, 0, 1, {1}, 1, false, false},          {2, 1, 1, 2, {2, 1}, 3, true, false},
      {3, 11, 0, 7, {5, 5, 4, 1}, 6, true, false}, {3, 11, 7, 7, {5, 5, 4, 1}, 6, true, false},
      {8, 16, 0, 2, {6, 6}, 6, false, false},      {19, 33, 17, 10, {13, 12, 7}, 13, true, false},
      {3, 11, 0, 4, {5, 4, 1}, 6, false, true},    {33, 19, 5, 7, {3, 3, 2}, 3, true, true},
      {3, 11, 0, 7, {}, 3, true, false},           {3, 11, 3, 7, {}, 0, false, false},
      {5, 33, 0, 7, many_steps, 7, true, false},   {2, 5, 0, 32, {4, 2}, 4, true, false},
      {20, 44, 0, 7, many_rows, 5, false, false},  {7, 23, 9, 7, many_rows, 5, false, false},
      {0, 9, 0, 7, {3, 2}, 3, false, false},       {5, 20, 0, 2, many_rows, 5, false, false},
      {5, 19, 0, 7, {29, 26, 3}, 30, true, false}, {20, 44, 0, 7, {26, 25}, 26, false, false},
      {3, 11, 0, 4, {24, 7}, 24, false, true},     {0, 9, 0, 2, {25}, 25, false, false},
      {19, 50, 0, 7, stream, 1, true, false},      {270, 40, 36, 7, {1, 1}, 1, false, false},
      {270, 40, 0, 7, {3, 2}, 3, false, false},    {20, 40, 0, 2, {140, 140}, 140, true, false},
      {520, 40, 0, 7, {1}, 1, false, false},       {520, 40, 0, 7, {5, 1}, 6, false, false},
  };
  for (const char* set : {"plain", "avx2", "avx512"}) {
    if (!mufuru_choose(set)) {
      std::printf("%s: not on this machine\n", set);
      continue;
    }
    int64_t turn = 0;
    for (const Sizes& sizes : all)
      for (int64_t reset : {kNoReset, kBefore, kAfter})
        for (bool reverse : {false, true})
          for (bool train : {false, true}) {
            if (few && turn++ % 7) continue;
            check<float>(sizes, reset, reverse, train, few);
            check<double>(sizes, reset, reverse, train, few);
            check_bfloat16(sizes, reset, reverse, train);
          }
    for (int64_t rows : {0, 1, 17, 353, 720})
      for (int64_t features : {1, 8, 19})
        for (int64_t words : {1, 126, 133}) {
          if (few && turn++ % 7) continue;
          check_predictions<float>(rows, features, words, few);
          check_predictions<double>(rows, features, words, few);
        }
    check_functions<float>();
    check_functions<double>();
    std::printf("%s: right\n", set);
  }
}
