#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* SIZES */

#if TOKENS
typedef int input;
#else
typedef const float *input;
#endif
#if BITS == 8
typedef int8_t weight;
typedef struct { const weight *w; const float *scale; } matrix;
#else
typedef float weight;
typedef struct { const weight *w; } matrix;
#endif
typedef struct {
    int inputs;
    matrix ih, hh;
    const float *bias_ih, *bias_hh;
#if CONTROLLER
    matrix kk, op;
    const float *bias_op;
#endif
} layer;

/* WEIGHTS */

/* The model: the same text for all, chosen from by the sizes above. */

typedef struct {
    uint32_t steps;
    float h[LAYERS][HIDDEN];
#if CONTROLLER
    float k[LAYERS][CONTROLLER];
#endif
#if POOLING == POOL_MAX || POOLING == POOL_MEAN
    float pool[HIDDEN];
#elif POOLING == POOL_ATTENTION
    float pool[HIDDEN], top, weight;
#endif
} model_state;

static float dot(matrix m, int row, int columns, const float *x)
{
    const weight *w = m.w + (size_t)row * (size_t)columns;
    float sum = 0.0f;
    for (int i = 0; i < columns; i++)
        sum += (float)w[i] * x[i];
#if BITS == 8
    sum *= m.scale[row];
#endif
    return sum;
}

#if RESET || ACTIVATION == ACT_SIGMOID
static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}
#endif

static void layer_step(const layer *l, const float *x, float *s, float *k)
{
    enum { FIRST = RESET ? 2 * HIDDEN : HIDDEN };
    float a[ROWS], v[HIDDEN];
    /* rows of the weights: features, reset gate, choice of the operations */
    for (int i = 0; i < ROWS; i++)
        a[i] = dot(l->ih, i, l->inputs, x) + l->bias_ih[i];
#if RESET
    float gate[HIDDEN];
    for (int i = 0; i < HIDDEN; i++)
        gate[i] = sigmoid(a[HIDDEN + i] + dot(l->hh, HIDDEN + i, HIDDEN, s) + l->bias_hh[HIDDEN + i]);
#endif
#if RESET == RESET_BEFORE
    for (int i = 0; i < HIDDEN; i++)
        gate[i] *= s[i];
#endif
    for (int i = 0; i < HIDDEN; i++) {
#if RESET == RESET_BEFORE
        const float from_s = dot(l->hh, i, HIDDEN, gate) + l->bias_hh[i];
#elif RESET == RESET_AFTER
        const float from_s = gate[i] * (dot(l->hh, i, HIDDEN, s) + l->bias_hh[i]);
#else
        const float from_s = dot(l->hh, i, HIDDEN, s) + l->bias_hh[i];
#endif
#if ACTIVATION == ACT_SIGMOID
        v[i] = sigmoid(a[i] + from_s);
#else
        v[i] = tanhf(a[i] + from_s);
#endif
    }
    for (int i = FIRST; i < ROWS; i++)
        a[i] += dot(l->hh, i, HIDDEN, s) + l->bias_hh[i];
#if CONTROLLER
    float logits[OPS * HIDDEN];
    for (int i = 0; i < CONTROLLER; i++) {
        const float sum = a[FIRST + i] + dot(l->kk, i, CONTROLLER, k);
#if CONTROLLER_ACTIVATION == ACT_RELU
        a[FIRST + i] = sum > 0.0f ? sum : 0.0f;
#else
        a[FIRST + i] = tanhf(sum);
#endif
    }
    memcpy(k, a + FIRST, CONTROLLER * sizeof(float));
    for (int i = 0; i < OPS * HIDDEN; i++)
        logits[i] = dot(l->op, i, CONTROLLER, k) + l->bias_op[i];
#else
    const float *logits = a + FIRST;
    (void)k;
#endif
    for (int i = 0; i < HIDDEN; i++) {
        float composed[OPS], top = logits[i], total = 0.0f, sum = 0.0f;
        compose(s[i], v[i], composed);
        for (int j = 1; j < OPS; j++)
            top = logits[j * HIDDEN + i] > top ? logits[j * HIDDEN + i] : top;
        for (int j = 0; j < OPS; j++) {
            const float p = expf(logits[j * HIDDEN + i] - top);
            total += p;
            sum += p * composed[j];
        }
        s[i] = sum / total;
    }
}

void model_step(model_state *state, input step)
{
    float embedded[INPUTS];
#if MAX_LENGTH
    if (state->steps >= MAX_LENGTH)
        return;
#endif
#if TOKENS
    const int token = step >= 0 && step < TOKENS ? step : UNKNOWN;
    for (int i = 0; i < INPUTS; i++) {
        embedded[i] = (float)embedding.w[token * INPUTS + i];
#if BITS == 8
        embedded[i] *= embedding.scale[token];
#endif
    }
#else
    for (int i = 0; i < INPUTS; i++)
        embedded[i] = (step[i] - mean[i]) / deviation[i];
#endif
    const float *x = embedded;
    for (int l = 0; l < LAYERS; l++) {
#if CONTROLLER
        layer_step(&layers[l], x, state->h[l], state->k[l]);
#else
        layer_step(&layers[l], x, state->h[l], NULL);
#endif
        x = state->h[l];
    }
#if POOLING == POOL_MAX
    for (int i = 0; i < HIDDEN; i++)
        state->pool[i] = state->steps && state->pool[i] > x[i] ? state->pool[i] : x[i];
#elif POOLING == POOL_MEAN
    for (int i = 0; i < HIDDEN; i++)
        state->pool[i] += x[i];
#elif POOLING == POOL_ATTENTION
    float score = 0.0f;
    for (int i = 0; i < HIDDEN; i++)
        score += query[i] * x[i];
    /* the largest score so far is subtracted, so that no exponential overflows */
    const float top = state->steps && state->top > score ? state->top : score;
    const float old = state->steps ? expf(state->top - top) : 0.0f, added = expf(score - top);
    state->top = top;
    state->weight = old * state->weight + added;
    for (int i = 0; i < HIDDEN; i++)
        state->pool[i] = old * state->pool[i] + added * x[i];
#endif
    state->steps++;
}

void model_start(model_state *state)
{
    memset(state, 0, sizeof *state);
#ifdef FIRST_TOKEN
    model_step(state, FIRST_TOKEN);
#endif
}

void model_logits(const model_state *state, float *logits)
{
    float vector[HIDDEN];
    for (int i = 0; i < HIDDEN; i++)
#if POOLING == POOL_LAST
        vector[i] = state->h[LAYERS - 1][i];
#elif POOLING == POOL_MAX
        vector[i] = state->pool[i];
#elif POOLING == POOL_MEAN
        vector[i] = state->pool[i] / (float)state->steps;
#else
        vector[i] = state->pool[i] / state->weight;
#endif
    /* two labels have one row, the second's */
    logits[0] = 0.0f;
    for (int i = 0; i < OUTPUTS; i++)
        logits[i + LABELS - OUTPUTS] = dot(output, i, HIDDEN, vector) + output_bias[i];
}

#if NUMBERS
/* in the units of the training data; quantiles are learnt apart and may cross */
void model_values(const model_state *state, float *values)
{
    model_logits(state, values);
}
#else
void model_probabilities(const model_state *state, float *probabilities)
{
    float top, total = 0.0f;
    model_logits(state, probabilities);
    top = probabilities[0];
    for (int i = 1; i < LABELS; i++)
        top = probabilities[i] > top ? probabilities[i] : top;
    for (int i = 0; i < LABELS; i++)
        total += probabilities[i] = expf(probabilities[i] - top);
    for (int i = 0; i < LABELS; i++)
        probabilities[i] /= total;
}
#endif

#if TOKENS
int model_token(uint32_t character)
{
    int low = 0, high = CHARACTERS;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (characters[middle] < character)
            low = middle + 1;
        else
            high = middle;
    }
    return low < CHARACTERS && characters[low] == character ? tokens[low] : UNKNOWN;
}
#endif
