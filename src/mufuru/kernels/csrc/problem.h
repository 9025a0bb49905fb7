// Arguments of one call of one unit. `kernels/problem.py` fills the struct field by field; its pointers are the rows of
// the table of tensors, in order, which a test compares.
#pragma once
#include <cstdint>

namespace mufuru {

constexpr int64_t kAbi = 7;
constexpr int64_t kMaxOps = 32;
// an operation code of kCustom + i means: value and derivatives of the i-th Python operation lie in memory
constexpr int64_t kCustom = 1000;

enum Reset : int64_t { kNoReset = 0, kBefore = 1, kAfter = 2 };
enum Activation : int64_t { kTanh = 0, kSigmoid = 1, kRelu = 2 };
// how products multiply: in full precision, or rounded to bfloat16, by emulation or by the instruction for it
enum Multiplied : int64_t { kWhole = 0, kLowered = 1, kInstructed = 2 };

// Letters: T steps, B sequences, total rows of all steps, H hidden, K controller (0: none), L operations.
// A row of gates is [feature H, reset H or none, L-1 logits of H each, or the controller K]: its width is W.
// The last operation is the reference of the softmax: logits are relative to it, so it needs no product.
struct Problem {
  int64_t steps, batch, inputs, hidden, controller, ops;
  int64_t reset, activation, controller_activation, reverse, is_double;
  int64_t bfloat16;      // how products multiply; only float and packed weights have a choice
  int64_t direct;        // whether products read unpacked weights; otherwise the weights are packed beforehand
  const int64_t* codes;  // L
  void* space;           // forward: the weights packed by mufuru_pack; backward: scratch memory; its size is mufuru_space

  const void* x;           // total x inputs
  const void *s0, *k0;     // B x H, B x K
  const void *w_ih, *w_hh, *b_ih, *b_hh, *w_kk, *w_op, *b_op;  // as in the layer; biases may be null
  const int64_t* offsets;  // T + 1: where the rows of each step begin
  const void *state_mask, *zoneout;  // B x H, total x H, or null
  const uint8_t* allowed;            // B x L or null
  const uint8_t* resets;             // total or null: whether the state is reset to the initial one before the step

  void* output;  // total x H
  void *s_n, *k_n;
  void *p, *v;   // total x L x H, total x H, or null
  // kept for the backward pass; null when there will be none
  void* gates;   // total x W: v, r and the weights p (or k)
  void* probs;   // recurrent controller: total x (L-1) x H
  void* inner;   // reset after: total x H: W_v s + b_v

  const void *grad_output, *grad_s_n, *grad_k_n, *grad_p, *grad_v;  // null means zero
  void* d_x;                                  // total x inputs or null
  void *d_s0, *d_k0;
  void *d_ih, *d_hh, *d_bias_ih, *d_bias_hh;  // shaped as the weights; biases may be null
  void *d_kk, *d_op, *d_bias_op;
  const void *custom, *custom_ds, *custom_dv;  // operations x total x H
};

// Arguments for the loss of a softmax over many words; `kernels/cross_entropy.py` fills the struct.
struct Predictions {
  int64_t rows, features, words, is_double;
  const void *hidden, *weight, *bias;  // rows x features, words x features, words
  const int64_t* targets;              // rows
  void* space;                         // scratch memory; its size is mufuru_predictions_space
  void* losses;                        // rows
  void *d_hidden, *d_weight, *d_bias;  // gradients of the sum of the losses
};

// LibTorch's stable C ABI: int torch_parallel_for(begin, end, grain, function(begin, end, context), context)
using Body = void (*)(int64_t, int64_t, void*);
using ParallelFor = int32_t (*)(int64_t, int64_t, int64_t, Body, void*);
using NumThreads = int32_t (*)(uint32_t*);

struct Threads {
  ParallelFor parallel_for = nullptr;
  NumThreads num_threads = nullptr;
};

// Products of pairs of bfloat16 numbers, which lie two and two in the room of a float; `depth` and `pairs` count them.
struct PairProducts {
  // rows times panels `apart` numbers from one to the next, into out[panel][row][width]; `half`: as in panels.h
  void (*product)(const float* const* rows, int64_t n_rows, int64_t depth, const float* panel, int64_t apart, int64_t count,
                  bool half, float* out);
  void (*outer)(int64_t columns, const float* right, const float* left, int64_t pairs, bool add, float* to);  // as in outer.h
  void (*round)(const float* from, int64_t n, float* to);  // a row to pairs
};

// The functions of one instruction set and one number type.
struct Kernel {
  int64_t (*space)(const Problem&, bool back);  // in numbers of its type
  uint64_t (*checksum)(const Problem&, const Threads&);  // of the weights and of how they are packed
  void (*pack)(const Problem&, const Threads&);  // the weights, for the forward pass; not if it is direct
  void (*forward)(const Problem&, const Threads&);
  void (*activate)(const Problem&, const Threads&, int64_t step);  // gates of one step, for Python operations
  void (*compose)(const Problem&, const Threads&, int64_t step);   // its new state, once their values are there
  void (*backward)(const Problem&, const Threads&);
  int64_t (*predictions_space)(const Predictions&);  // in numbers of its type
  void (*predict)(const Predictions&, const Threads&);
  void (*function)(int64_t which, int64_t n, const void* x, void* y);  // exp, tanh, sigmoid: for tests
};

}  // namespace mufuru
