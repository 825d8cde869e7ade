// Logits of a large vocabulary become the loss of each row, and in their place the gradient of the loss.
//
//     x = logits + bias;   loss = log(sum of e^x) - (1 - s) x[label] - s mean(x)
//     gradient = (e^x / sum of e^x - (1 - s) [label] - s / vocab) / count
//
// Moving the numbers is what takes the time: a row is read from memory once and written once, and in between lies in
// the processor's cache. Loops are plain, and the compiler makes vectors of them.

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

static void (*parallel)(void (*)(void *), void *, unsigned, unsigned);  // GOMP_parallel: run a function on all threads
static int (*thread_number)(void), (*thread_count)(void);

void setup(void *run, void *number, void *count) {
    parallel = (void (*)(void (*)(void *), void *, unsigned, unsigned))run;
    thread_number = (int (*)(void))number;
    thread_count = (int (*)(void))count;
}

typedef struct {
    void *logits;  // (rows, vocab), fp32 or bf16; the gradient afterwards
    int is_bf16;
    const float *bias;  // (vocab,) or NULL
    const int64_t *labels;  // (rows,), -100: left out
    float *losses;  // (rows,)
    long rows, vocab;
    float smoothing, share;  // share: 1 / count
    int failed;  // no memory for a row
} Work;

INLINE float from_bf16(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// To the nearest, and to the even one of two; what is not a number stays none.
INLINE uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    const uint16_t rounded = (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    return value == value ? rounded : 0x7fc0;
}

// e^x for x <= 0: 2^n * e^r with |r| <= ln(2) / 2, where eight terms of the series are enough.
INLINE float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    const float n = x * 1.44269504f + 12582912.0f - 12582912.0f;  // 1.5 * 2^23: what is added rounds to a whole number
    const float r = x - n * 0.693359375f + n * 2.12194440e-4f;    // ln(2) in two parts
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const int32_t bits = ((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, 4);
    return p * power;
}

// One row. x has room for `vocab` floats. Several sums side by side: one would wait for itself at every addition.
enum { LANES = 64 };

static void row(const Work *work, long number, float *x) {
    const long vocab = work->vocab, label = work->labels[number];
    float *wide = (float *)work->logits + number * vocab;
    uint16_t *half = (uint16_t *)work->logits + number * vocab;
    if (label < 0 || label >= vocab) {  // left out
        work->losses[number] = 0.0f;
        if (work->is_bf16) memset(half, 0, vocab * sizeof(uint16_t));
        else memset(wide, 0, vocab * sizeof(float));
        return;
    }
    if (work->is_bf16) for (long j = 0; j < vocab; j++) x[j] = from_bf16(half[j]);
    else memcpy(x, wide, vocab * sizeof(float));
    if (work->bias != NULL) for (long j = 0; j < vocab; j++) x[j] += work->bias[j];

    float tops[LANES], sums[LANES] = {0}, powers[LANES] = {0};
    for (int k = 0; k < LANES; k++) tops[k] = -INFINITY;
    const long whole = vocab - vocab % LANES;
    for (long j = 0; j < whole; j += LANES)
        for (int k = 0; k < LANES; k++) {
            tops[k] = x[j + k] > tops[k] ? x[j + k] : tops[k];
            sums[k] += x[j + k];
        }
    float top = -INFINITY;
    double sum = 0.0, power = 0.0;
    for (int k = 0; k < LANES; k++) {
        top = tops[k] > top ? tops[k] : top;
        sum += sums[k];
    }
    for (long j = whole; j < vocab; j++) {
        top = x[j] > top ? x[j] : top;
        sum += x[j];
    }
    const float at_label = x[label];
    for (long j = 0; j < whole; j += LANES)
        for (int k = 0; k < LANES; k++) {
            x[j + k] = exponential(x[j + k] - top);
            powers[k] += x[j + k];
        }
    for (int k = 0; k < LANES; k++) power += powers[k];
    for (long j = whole; j < vocab; j++) power += x[j] = exponential(x[j] - top);

    const float s = work->smoothing;
    work->losses[number] = (float)(top + log(power) - (1.0 - s) * at_label - (s ? s * (sum / vocab) : 0.0));
    const float scale = (float)(work->share / power), off = s / vocab * work->share;
    x[label] -= (float)((1.0 - s) * power);
    if (work->is_bf16) for (long j = 0; j < vocab; j++) half[j] = to_bf16(x[j] * scale - off);
    else for (long j = 0; j < vocab; j++) wide[j] = x[j] * scale - off;
}

static void share_of_rows(void *given) {
    Work *work = given;
    const long threads = thread_count ? thread_count() : 1, mine = thread_count ? thread_number() : 0;
    float *x = malloc(work->vocab * sizeof(float));
    if (x == NULL) {
        work->failed = 1;
        return;
    }
    for (long n = work->rows * mine / threads; n < work->rows * (mine + 1) / threads; n++) row(work, n, x);
    free(x);
}

// Whether there was memory for it.
int cross_entropy(void *logits, int is_bf16, const float *bias, const int64_t *labels, float *losses, long rows,
                  long vocab, float smoothing, float share, int threads) {
    Work work = {logits, is_bf16, bias, labels, losses, rows, vocab, smoothing, share, 0};
    if (parallel && threads > 1) {
        parallel(share_of_rows, &work, threads, 0);
    } else {
        float *x = malloc(vocab * sizeof(float));
        if (x == NULL) return 0;
        for (long n = 0; n < rows; n++) row(&work, n, x);
        free(x);
    }
    return !work.failed;
}
