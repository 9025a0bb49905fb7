// The loss of a softmax over many words, and its gradients, without storing all logits.
//
// Rows are lanes and words follow each other: the highest logit and the sum of a row are computed lane by lane. Some
// rows at a time go through the words in chunks, in three passes:
//   first   logits, as exponentials relative to the highest of the chunk
//   second  the gradient by the logits, by weight and bias
//   third   by the hidden features.
// Chunks, and rows in the third, are distributed over threads. Every number is summed by one of them in one order.
#pragma once
#include "outer.h"
#include "parallel.h"

namespace mufuru {
namespace MUFURU_ARCH {

template <class T>
class CrossEntropy {
 public:
  explicit CrossEntropy(const Predictions& in)
      : in(in),
        F(in.features),
        words(in.words),
        chunks((words + kChunk - 1) / kChunk),
        weight(static_cast<const T*>(in.weight)),
        bias(static_cast<const T*>(in.bias)) {
    const int64_t most_rows = most(kFewest, least(kRowsAtOnce, kNumbers / most(words, 1)));
    const int64_t blocks = (in.rows + most_rows - 1) / most_rows;
    lanes = blocks ? panels<T>((in.rows + blocks - 1) / blocks) * width : 0;
    T* place = static_cast<T*>(in.space);
    const Part parts[] = {{&exps, words}, {&by_feature, F}, {&by_row, panels<T>(F) * width}, {&d_by_feature, F},
                          {&highest, chunks}, {&sums, chunks}, {&target, 1}};
    for (const Part& part : parts) {
      *part.start = place + total;
      total += part.size * lanes;
    }
  }

  int64_t room() const { return total; }

  void run(const Threads& threads) {
    const int64_t work = lanes * words * F;
    for (first = 0; first < in.rows; first += lanes) {
      rows = least(lanes, in.rows - first);
      take_hidden();
      in_parallel(threads, workers(threads, work, chunks), [&](int64_t worker, int64_t n) {
        for (int64_t c = worker; c < chunks; c += n) exponentials(c);
      });
      for (int64_t i = 0; i < lanes; i += N) losses(i);
      in_parallel(threads, workers(threads, work, chunks), [&](int64_t worker, int64_t n) {
        Buffer<T> d_bias(kChunk * width);
        for (int64_t c = worker; c < chunks; c += n) weights(c, d_bias.data());
      });
      in_parallel(threads, workers(threads, work, lanes / width), [&](int64_t worker, int64_t n) { features(worker, n); });
    }
  }

 private:
  static constexpr int64_t N = Lanes<T>::n, width = Panel<T>::width;
  static constexpr int64_t kChunk = 126;                     // words whose numbers for all rows stay in cache; sums depend on it
  static constexpr int64_t kRowsAtOnce = 352, kFewest = 64;  // rows whose panel of features stays in the first cache
  static constexpr int64_t kNumbers = 1 << 24;               // exponentials stored at once, unless the number of words needs more
  struct Part {
    T** start;
    int64_t size;  // for a row
  };

  const Predictions& in;
  const int64_t F, words, chunks;
  const T *const weight, *const bias;
  int64_t lanes, first = 0, rows = 0, total = 0;
  T* exps;          // panel of rows, word, row: later the gradients by the logits
  T* by_feature;    // the hidden features: panel of rows, feature, row
  T* by_row;        // and the other way: panel of features, row, feature
  T* d_by_feature;  // the gradients by them
  T *highest, *sums;  // chunk, row: of the logits; later the factors from exponentials to probabilities
  T* target;        // row: the target's logit

  int64_t begin_of(int64_t chunk) const { return chunk * kChunk; }
  int64_t count_of(int64_t chunk) const { return least(kChunk, words - begin_of(chunk)); }
  T* exps_of(int64_t panel, int64_t word) const { return exps + (panel * words + word) * width; }

  // work(place of the target in a panel's words, row) for each row of the panel whose target is in the chunk
  template <class Each>
  void each_target(int64_t chunk, int64_t panel, Each work) const {
    for (int64_t lane = 0, row = panel * width; lane < width && row < rows; ++lane, ++row) {
      const int64_t word = in.targets[first + row] - begin_of(chunk);
      if (word >= 0 && word < count_of(chunk)) work(word * width + lane, row);
    }
  }

  void take_hidden() {
    const T* hidden = static_cast<const T*>(in.hidden) + first * F;
    for (int64_t row = 0; row < lanes; row += width)
      pack_rows<T>(hidden + row * F, nullptr, F, F, most(0, least(width, rows - row)), by_feature + row * F);
    for (int64_t f = 0; f < F; f += width) {
      T* to = by_row + f * lanes;
      pack_columns<T>(hidden + f, nullptr, F, rows, least(width, F - f), to);
      for (int64_t i = rows * width; i < lanes * width; ++i) to[i] = 0;
    }
    for (int64_t i = 0; i < lanes; ++i) target[i] = std::numeric_limits<T>::quiet_NaN();
  }

  void exponentials(int64_t chunk) const {
    const int64_t begin = begin_of(chunk), count = count_of(chunk);
    const T* of_word[kChunk];
    for (int64_t word = 0; word < count; ++word) of_word[word] = weight + (begin + word) * F;
    for (int64_t panel = 0; panel < lanes / width; ++panel) {
      T* at = exps_of(panel, begin);
      product<T, 2>(of_word, count, F, by_feature + panel * width * F, 0, 1, at);
      // lowest, not -inf: where all logits are -inf their exponentials are 0
      V<T> top[2] = {splat<T>(std::numeric_limits<T>::lowest()), splat<T>(std::numeric_limits<T>::lowest())}, sum[2]{};
      for (int64_t word = 0; word < count; ++word)
        for (int64_t half = 0; half < 2; ++half) {
          T* place = at + word * width + half * N;
          const V<T> logit = load(place) + bias[begin + word];
          store(place, logit);
          top[half] = higher<T>(logit, top[half]);
        }
      each_target(chunk, panel, [&](int64_t place, int64_t row) { target[row] = at[place]; });
      for (int64_t word = 0; word < count; ++word)
        for (int64_t half = 0; half < 2; ++half) {
          T* place = at + word * width + half * N;
          const V<T> e = exp_falling<T>(load(place) - top[half]);
          store(place, e);
          sum[half] += e;
        }
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t place = chunk * lanes + panel * width + half * N;
        store(highest + place, top[half]);
        store(sums + place, sum[half]);
      }
    }
  }

  // not std::log: code in this namespace is compiled for this instruction set
  static float logarithm(float x) { return __builtin_logf(x); }
  static double logarithm(double x) { return __builtin_log(x); }

  // for one vector of rows
  void losses(int64_t i) const {
    V<T> top = splat<T>(std::numeric_limits<T>::lowest()), sum{};
    for (int64_t c = 0; c < chunks; ++c) top = higher<T>(load(highest + c * lanes + i), top);
    for (int64_t c = 0; c < chunks; ++c) {
      const V<T> factor = exp_falling<T>(load(highest + c * lanes + i) - top);
      sum += factor * load(sums + c * lanes + i);
      store(highest + c * lanes + i, factor);
    }
    // lanes beyond the rows count nothing
    const int64_t there = most(0, rows - i);
    for (int64_t c = 0; c < chunks; ++c) store(highest + c * lanes + i, load(highest + c * lanes + i, there) / sum);
    T* to = static_cast<T*>(in.losses) + first;
    for (int64_t lane = 0; lane < N && i + lane < rows; ++lane)
      to[i + lane] = logarithm(sum[lane]) - (target[i + lane] - top[lane]);
  }

  void weights(int64_t chunk, T* d_bias) const {
    const int64_t begin = begin_of(chunk), count = count_of(chunk);
    for (int64_t panel = 0; panel < lanes / width; ++panel) logit_gradients(chunk, panel, d_bias);
    for (int64_t word = 0; word < count; ++word) {
      T sum = 0, *to = static_cast<T*>(in.d_bias) + begin + word;
      for (int64_t lane = 0; lane < width; ++lane) sum += d_bias[word * width + lane];
      *to = (first ? *to : 0) + sum;
    }
    for (int64_t f = 0; f < F; f += width)
      for (int64_t word = 0; word < count; word += kRows)
        with_count<kRows>(least(count - word, kRows), [&](auto n) { weight_gradient<n>(begin + word, f); });
  }

  // probability minus 1 at the target, and the sums over the panels
  void logit_gradients(int64_t chunk, int64_t panel, T* d_bias) const {
    const int64_t count = count_of(chunk), row = panel * width;
    T* at = exps_of(panel, begin_of(chunk));
    for (int64_t half = 0; half < 2; ++half) {
      const V<T> factor = load(highest + chunk * lanes + row + half * N);
      for (int64_t word = 0; word < count; ++word) {
        const int64_t place = word * width + half * N;
        const V<T> d = load(at + place) * factor;
        store(at + place, d);
        store(d_bias + place, panel ? load(d_bias + place) + d : d);
      }
    }
    each_target(chunk, panel, [&](int64_t place, int64_t) { at[place] -= 1, d_bias[place] -= 1; });
  }

  // R words times one panel of features
  template <int R>
  __attribute__((noinline)) void weight_gradient(int64_t word, int64_t f) const {
    V<T> sum[R][2];  // fully unrolled, so that it stays in registers
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = splat<T>(0);
    const T *h = by_row + f * lanes, *d = exps_of(0, word);
    for (int64_t panel = 0; panel < lanes / width; ++panel, d += (words - 1) * width)
      for (int64_t lane = 0; lane < width; ++lane, ++d, h += width) {
        const V<T> h0 = load(h), h1 = load(h + N);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const V<T> factor = splat<T>(d[r * width]);
          sum[r][0] += factor * h0;
          sum[r][1] += factor * h1;
        }
      }
    T* to = static_cast<T*>(in.d_weight) + word * F + f;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r, to += F)
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t n = F - f - half * N;
        if (n > 0) store(to + half * N, first ? load(to + half * N, n) + sum[r][half] : sum[r][half], n);
      }
  }

  // for every workers-th panel of rows
  void features(int64_t worker, int64_t workers) const {
    Buffer<T> packed(kChunk * grouped(F));
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t begin = begin_of(chunk), count = count_of(chunk);
      pack_groups<T>({weight, F, F}, begin, count, packed.data());
      for (int64_t panel = worker; panel < lanes / width; panel += workers)
        for (int64_t f = 0; f < F; f += kTileColumns)
          outer<T>(least(F - f, kTileColumns), &packed[f * count], exps_of(panel, begin), count, chunk > 0,
                   d_by_feature + (panel * F + f) * width);
    }
    for (int64_t panel = worker; panel < lanes / width; panel += workers) {
      const int64_t row = panel * width;
      if (row < rows)
        turn<T>(d_by_feature + panel * F * width, F, least(width, rows - row), static_cast<T*>(in.d_hidden) + (first + row) * F);
    }
  }
};

}  // namespace MUFURU_ARCH
}  // namespace mufuru
