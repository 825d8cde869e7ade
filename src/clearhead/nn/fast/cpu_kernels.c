// What writing one token after another costs: products of a few rows with a big matrix, and a whole layer of them.
//
//     y[r][o] = bias[o] + sum over i of x[r][i] * w[o][i]          x, y in fp32; w in one of the KINDs below
//
// With few rows the time goes into reading w from memory, so each weight is read once, turned into fp32 in a register
// and used for up to four rows. Vectors are the compilers' own (GCC, Clang), as wide as the processor's registers.
// Threads are those of torch's own OpenMP runtime, handed over by `setup`.

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__) && !defined(PLAIN)  // -DPLAIN: the code of any other processor, so that tests can run it
#define AVX512
#include <immintrin.h>
#define LANES 16  // floats in a vector
#define OUTS 4    // outputs that are computed together: OUTS x ROWS sums live in registers
#elif defined(__AVX2__) && !defined(PLAIN)
#define AVX2
#include <immintrin.h>
#define LANES 8
#define OUTS 2
#else
#define LANES 4
#define OUTS 2
#endif
#define ROWS 4    // rows that are computed together
#define GROUP 32  // inputs per step
#define PARTS (GROUP / LANES)
#define FEW 8     // rows for which reading weights takes longer than multiplying

#define INLINE static inline __attribute__((always_inline))
#define VECTOR(type) __attribute__((vector_size(LANES * sizeof(type))))
#define IN_MEMORY(type) __attribute__((vector_size(LANES * sizeof(type)), aligned(sizeof(type)), may_alias))
#define UNROLL(n) _Pragma(STRING(GCC unroll n))
#define STRING(words) #words

typedef float floats VECTOR(float);
typedef int32_t ints VECTOR(int32_t);
typedef int16_t shorts VECTOR(int16_t);
typedef float floats_in_memory IN_MEMORY(float);  // at any address
typedef int32_t ints_in_memory IN_MEMORY(int32_t);
typedef int8_t bytes IN_MEMORY(int8_t);
typedef uint16_t halves IN_MEMORY(uint16_t);

// How w is stored:
//   F32, BF16   w[o][i]
//   I8          signed bytes, times scales[o]
//   I4          groups of 32 inputs in 16 bytes, each times its own scale: byte b of a group holds input b in its low
//               and input 16 + b in its high half, both plus 8. A last group that is not full is filled up with zeros.
enum { F32, BF16, I8, I4 };

static void (*parallel)(void (*)(void *), void *, unsigned, unsigned);  // GOMP_parallel: run a function on all threads
static int (*thread_number)(void), (*thread_count)(void);
static void (*barrier)(void);  // GOMP_barrier: wait for all threads

void setup(void *run, void *number, void *count, void *wait) {
    parallel = (void (*)(void (*)(void *), void *, unsigned, unsigned))run;
    thread_number = (int (*)(void))number;
    thread_count = (int (*)(void))count;
    barrier = (void (*)(void))wait;
}

INLINE floats load(const float *p) { return *(const floats_in_memory *)p; }
INLINE void store(float *p, floats v) { *(floats_in_memory *)p = v; }
INLINE floats broadcast(float v) { return (floats){0} + v; }
INLINE floats pick(ints where, floats yes, floats no) { return (floats)(((ints)yes & where) | ((ints)no & ~where)); }
INLINE floats to_floats(ints v) { return __builtin_convertvector(v, floats); }
INLINE floats from_bf16(const char *p) { return (floats)(__builtin_convertvector(*(const halves *)p, ints) << 16); }

INLINE ints from_bytes(const char *p) {
#ifdef AVX512
    return (ints)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
#elif defined(AVX2)
    return (ints)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
#else
    return __builtin_convertvector(__builtin_convertvector(*(const bytes *)p, shorts), ints);
#endif
}

// LANES numbers of four bits, from the lowest bits of v -> (number - 8) * scale
INLINE floats from_nibbles(ints v, float scale) {
#ifdef AVX512
    const floats known = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    return (floats)_mm512_permutexvar_ps((__m512i)v, (__m512)(known * scale));  // a table look-up
#else
    return to_floats((v & 15) - 8) * scale;
#endif
}

INLINE float sum(floats v) {
#ifdef AVX512
    return _mm512_reduce_add_ps((__m512)v);
#else
    float total = 0;
    for (int k = 0; k < LANES; k++) total += v[k];
    return total;
#endif
}

INLINE long row_bytes(int kind, long in) {
    return kind == F32 ? 4 * in : kind == BF16 ? 2 * in : kind == I8 ? in : (in + GROUP - 1) / GROUP * (GROUP / 2);
}

// 32 weights of a row, from input i on. `kind` is a constant wherever this is inlined. I8 is scaled at the end.
INLINE void weights(int kind, const char *row, const float *scales, long i, floats *w) {
    UNROLL(8) for (int n = 0; n < PARTS; n++, i += LANES) {
        if (kind == F32) w[n] = load((const float *)row + i);
        if (kind == BF16) w[n] = from_bf16(row + 2 * i);
        if (kind == I8) w[n] = to_floats(from_bytes(row + i));
    }
    if (kind == I4) UNROLL(4) for (int n = 0; n < PARTS / 2; n++) {
        const long group = i / GROUP - 1;  // i has moved on
        ints pairs = from_bytes(row + group * (GROUP / 2) + n * LANES);
        w[n] = from_nibbles(pairs, scales[group]);
        w[n + PARTS / 2] = from_nibbles(pairs >> 4, scales[group]);
    }
}

typedef struct {
    int kind;
    const float *x;
    const char *w;
    const float *scales, *bias;
    float *y;
    long rows, in, out;
} Job;

// O outputs of R rows, from output o and row r on.
INLINE void tile(int kind, int O, int R, const Job *job, long o, long r) {
    const long in = job->in, out = job->out, bytes_per_row = row_bytes(kind, in), whole = in / GROUP * GROUP;
    const long groups = kind == I4 ? (in + GROUP - 1) / GROUP : 0;
    const float *x = job->x + r * in, *scales = job->scales + o * groups;
    const char *w = job->w + o * bytes_per_row;
    const char *ahead = w + (O == 1 ? 2048 : O * bytes_per_row);  // what will be needed soon, in the order of memory
    const long step = row_bytes(kind, GROUP);
    const int two = R <= 2;  // few sums: keep two of each, so that additions need not wait for one another
    floats sums[OUTS][ROWS][2] = {0}, w_part[PARTS];
    UNROLL(2) for (long i = 0; i < whole; i += GROUP) {
        UNROLL(4) for (long line = 0; line < O * step; line += 64) __builtin_prefetch(ahead + O * step * (i / GROUP) + line);
        UNROLL(4) for (int a = 0; a < O; a++) {
            const char *row = w + a * bytes_per_row;
            weights(kind, row, scales + a * groups, i, w_part);
            UNROLL(4) for (int b = 0; b < R; b++)
                UNROLL(8) for (int n = 0; n < PARTS; n++)
                    sums[a][b][n & two] += load(x + b * in + i + n * LANES) * w_part[n];
        }
    }
    if (whole < in) {  // the last inputs, filled up with zeros
        float inputs[ROWS][GROUP] = {0};
        char rest[GROUP * sizeof(float)];
        for (int b = 0; b < R; b++) memcpy(inputs[b], x + b * in + whole, (in - whole) * sizeof(float));
        for (int a = 0; a < O; a++) {
            memset(rest, 0, sizeof rest);
            memcpy(rest, w + a * bytes_per_row + row_bytes(kind, whole), bytes_per_row - row_bytes(kind, whole));
            weights(kind, rest, scales + a * groups + (kind == I4 ? groups - 1 : 0), 0, w_part);
            for (int b = 0; b < R; b++)
                for (int n = 0; n < PARTS; n++) sums[a][b][0] += load(inputs[b] + n * LANES) * w_part[n];
        }
    }
    for (int a = 0; a < O; a++)
        for (int b = 0; b < R; b++) {
            float total = sum(two ? sums[a][b][0] + sums[a][b][1] : sums[a][b][0]);
            if (kind == I8) total *= job->scales[o + a];
            job->y[(r + b) * out + o + a] = total + (job->bias ? job->bias[o + a] : 0);
        }
}

INLINE void outputs(int kind, int O, const Job *job, long o) {
    long r = 0;
    for (; r + 4 <= job->rows; r += 4) tile(kind, O, 4, job, o, r);
    for (; r + 2 <= job->rows; r += 2) tile(kind, O, 2, job, o, r);
    for (; r < job->rows; r++) tile(kind, O, 1, job, o, r);
}

// One row: one output after the other, memory in order. More rows: several outputs, so that x is loaded less often.
INLINE void range(int kind, const Job *job, long from, long to) {
    const int together = kind == F32 ? 1 : OUTS;
    for (; job->rows > 1 && from + together <= to; from += together) outputs(kind, together, job, from);
    for (; from < to; from++) outputs(kind, 1, job, from);
}

typedef struct {
    long from, to;
} Range;

// Piece n of so many: the outputs are cut into as many pieces as there are threads.
static Range piece(const Job *job, long n, long of) {
    const long units = (job->out + OUTS - 1) / OUTS, from = units * n / of * OUTS;
    const long end = units * (n + 1) / of * OUTS, to = end < job->out ? end : job->out;
    switch (job->kind) {  // one copy of the code for each kind
        case F32: range(F32, job, from, to); break;
        case BF16: range(BF16, job, from, to); break;
        case I8: range(I8, job, from, to); break;
        default: range(I4, job, from, to);
    }
    return (Range){from, to};
}

static void linear_on_thread(void *job) { piece(job, thread_number(), thread_count()); }

// ---------------------------------------------------------------------------------------------------------------------
// Many rows (a prompt) with int8 and int4 weights: there arithmetic is what takes time, and whole numbers of 16 bits
// multiply twice as fast as fp32. Each row is cut into groups of 32 inputs; a group becomes whole numbers up to 32,767
// times its own scale, which is right to 1/65,534 of the largest in it. Codes are whole numbers already, and the sums of a
// group are exact. A group whose largest is below 1e-34 counts as zeros.
//
// Numbers n and 16 + n of a group lie side by side as a pair in 32 bits: one instruction multiplies both and adds. It is
// x86's; elsewhere there is nothing to gain.

#if defined(AVX2) || (defined(AVX512) && defined(__AVX512BW__))
#define PAIRS (GROUP / 2)
#define WIDE 2  // vectors of outputs
#ifdef AVX512
#define TALL 6  // and rows that are computed together
#else
#define TALL 3
#endif
#define PANEL (WIDE * LANES)  // outputs that are computed together

INLINE ints paired(ints low, ints high) { return (low & 0xffff) | (high << 16); }

INLINE ints multiply_pairs(ints total, ints w, int32_t x) {
    const ints both = (ints){0} + x;
#if defined(__AVX512VNNI__) && defined(AVX512)
    return (ints)_mm512_dpwssd_epi32((__m512i)total, (__m512i)w, (__m512i)both);
#elif defined(AVX512)
    return total + (ints)_mm512_madd_epi16((__m512i)w, (__m512i)both);
#else
    return total + (ints)_mm256_madd_epi16((__m256i)w, (__m256i)both);
#endif
}

// A group of 32 inputs, `count` of which are there, as pairs; returns their scale (NaN if one is not a number).
static float round_group(const float *x, long count, int32_t *pairs) {
    float padded[GROUP] = {0};
    memcpy(padded, x, count * sizeof(float));
    floats most = {0}, wrong = {0};
    for (int n = 0; n < GROUP; n += LANES) {
        const floats v = load(padded + n), size = pick(v < 0.0f, -v, v);
        most = pick(size > most, size, most);
        wrong += v * 0.0f;
    }
    float top = 0;
    for (int k = 0; k < LANES; k++) top = most[k] > top ? most[k] : top;
    const float scale = top / 32767, up = scale > 0 ? 32767 / top : 0;
    for (int n = 0; n < PAIRS; n += LANES) {
        const floats low = load(padded + n) * up + 12582912.0f - 12582912.0f;  // rounded, as in `exponential`
        const floats high = load(padded + PAIRS + n) * up + 12582912.0f - 12582912.0f;
        *(ints_in_memory *)(pairs + n) = paired(__builtin_convertvector(low, ints), __builtin_convertvector(high, ints));
    }
    return scale + sum(wrong);
}

// Group g of output o as pairs.
INLINE void weight_pairs(int kind, const Job *job, long o, long g, int32_t *pairs) {
    const long there = job->in - g * GROUP;
    const char *row = job->w + o * row_bytes(kind, job->in) + g * row_bytes(kind, GROUP);
    char rest[GROUP] = {0};
    if (kind == I8 && there < GROUP) row = memcpy(rest, row, there);
    for (int n = 0; n < PAIRS; n += LANES) {
        const ints first = from_bytes(row + n);
        const ints pair = kind == I8 ? paired(first, from_bytes(row + PAIRS + n))
                                     : paired((first & 15) - 8, ((first >> 4) & 15) - 8);
        *(ints_in_memory *)(pairs + n) = pair;
    }
}

typedef struct {
    Job job;
    long groups, tiles;  // of inputs; of TALL rows
    int32_t *pairs;      // (tiles, groups, TALL, PAIRS)
    float *scales;       // (tiles, groups, TALL)
    int32_t *panels;     // what each thread has for itself: (groups, PAIRS, PANEL) and (groups, PANEL) scales
    long panel_size;
    long next;  // the panel that the next free thread takes
} Many;

// TALL rows by PANEL outputs.
INLINE void many_tile(int kind, const Many *many, const int32_t *w, const float *w_scales, long t, long o) {
    const Job *job = &many->job;
    const int32_t *x = many->pairs + t * many->groups * TALL * PAIRS;
    const float *x_scales = many->scales + t * many->groups * TALL;
    floats sums[TALL][WIDE] = {0};
    for (long g = 0; g < many->groups; g++, x += TALL * PAIRS, x_scales += TALL, w += PAIRS * PANEL, w_scales += PANEL) {
        ints totals[TALL][WIDE] = {0};
        UNROLL(16) for (int p = 0; p < PAIRS; p++) {
            ints w_part[WIDE];
            UNROLL(2) for (int n = 0; n < WIDE; n++) w_part[n] = *(const ints_in_memory *)(w + p * PANEL + n * LANES);
            UNROLL(6) for (int b = 0; b < TALL; b++)
                UNROLL(2) for (int n = 0; n < WIDE; n++)
                    totals[b][n] = multiply_pairs(totals[b][n], w_part[n], x[b * PAIRS + p]);
        }
        UNROLL(2) for (int n = 0; n < WIDE; n++) {
            const floats scale = kind == I4 ? load(w_scales + n * LANES) : broadcast(1);
            UNROLL(6) for (int b = 0; b < TALL; b++) sums[b][n] += to_floats(totals[b][n]) * (scale * x_scales[b]);
        }
    }
    const long count = job->out - o < PANEL ? job->out - o : PANEL;
    for (int b = 0; b < TALL && t * TALL + b < job->rows; b++) {
        float results[PANEL], *y = job->y + (t * TALL + b) * job->out + o;
        for (int n = 0; n < WIDE; n++) store(results + n * LANES, sums[b][n]);
        for (long k = 0; k < count; k++)
            y[k] = results[k] * (kind == I8 ? job->scales[o + k] : 1) + (job->bias ? job->bias[o + k] : 0);
    }
}

INLINE void many_panels(int kind, Many *many, long n) {
    const Job *job = &many->job;
    const long count = (job->out + PANEL - 1) / PANEL;
    int32_t *w = many->panels + n * many->panel_size, pairs[PAIRS];
    float *scales = (float *)(w + many->groups * PAIRS * PANEL);
    for (long panel; (panel = __atomic_fetch_add(&many->next, 1, __ATOMIC_RELAXED)) < count;) {
        const long o = panel * PANEL;
        for (long from = 0; from < many->groups; from += 8)  // as much as the nearest cache holds
            for (long k = 0; k < PANEL; k++)
                for (long g = from; g < from + 8 && g < many->groups; g++) {
                    const int there = o + k < job->out;
                    if (there)
                        weight_pairs(kind, job, o + k, g, pairs);
                    else
                        memset(pairs, 0, sizeof pairs);
                    for (int p = 0; p < PAIRS; p++) w[(g * PAIRS + p) * PANEL + k] = pairs[p];  // transposed
                    if (kind == I4) scales[g * PANEL + k] = there ? job->scales[(o + k) * many->groups + g] : 0;
                }
        for (long t = 0; t < many->tiles; t++) many_tile(kind, many, w, scales, t, o);
    }
}

static void many_part(Many *many, long n, long of) {
    const Job *job = &many->job;
    for (long t = many->tiles * n / of; t < many->tiles * (n + 1) / of; t++)
        for (long g = 0; g < many->groups; g++)
            for (long b = 0; b < TALL; b++) {
                const long at = (t * many->groups + g) * TALL + b, row = t * TALL + b, left = job->in - g * GROUP;
                const long there = row < job->rows ? (left < GROUP ? left : GROUP) : 0;
                many->scales[at] = round_group(job->x + row * job->in + g * GROUP, there, many->pairs + at * PAIRS);
            }
    if (of > 1) barrier();
    if (job->kind == I8) many_panels(I8, many, n);
    if (job->kind == I4) many_panels(I4, many, n);
}

static void many_on_thread(void *many) { many_part(many, thread_number(), thread_count()); }

// Whether it was done: without memory for what lies between, nothing is.
static int many_rows(const Job *job, long threads) {
    Many many = {.job = *job, .groups = (job->in + GROUP - 1) / GROUP, .tiles = (job->rows + TALL - 1) / TALL};
    const long pairs = many.tiles * many.groups * TALL * PAIRS, scales = many.tiles * many.groups * TALL;
    many.panel_size = many.groups * (PAIRS + 1) * PANEL;
    many.pairs = malloc((pairs + scales + threads * many.panel_size) * sizeof(int32_t));
    if (!many.pairs) return 0;
    many.scales = (float *)(many.pairs + pairs);
    many.panels = many.pairs + pairs + scales;
    if (threads > 1)
        parallel(many_on_thread, &many, threads, 0);
    else
        many_part(&many, 0, 1);
    free(many.pairs);
    return 1;
}

int has_many(void) { return 1; }
#else
static int many_rows(const Job *job, long threads) { return 0; }

int has_many(void) { return 0; }
#endif

void linear(int kind, const float *x, const char *w, const float *scales, const float *bias, float *y, long rows,
            long in, long out, int threads) {
    Job job = {kind, x, w, scales, bias, y, rows, in, out};
    if (!parallel) threads = 1;
    if ((kind == I8 || kind == I4) && rows > FEW && many_rows(&job, threads)) return;
    if (threads > 1)
        parallel(linear_on_thread, &job, threads, 0);
    else
        piece(&job, 0, 1);
}

// ---------------------------------------------------------------------------------------------------------------------
// Whole layers for one new position of each row: norm, attention to what the cache holds, norm, feed-forward. The
// structs are filled in by cpu_layer.py and cpu_decode.py, field by field, each of eight bytes where pointers are.

typedef struct {
    const char *w;
    const float *scales, *bias;
    int64_t kind, in, out;
} Matrix;

typedef struct {
    const float *weight, *bias;  // either may be missing
    double eps;
} Norm;

typedef struct {
    Matrix query, key, value, output, up, down;  // fused: query holds all three, and key and value are empty
    Norm attention_norm, feedforward_norm;
    int64_t width, heads, kv_heads, head_dim;
    int64_t post;  // norms after the sums (GPT), not before the sublayers (GPT-2)
    int64_t activation;
    double scale;
} Layer;

typedef struct {
    float *keys, *values;  // (rows, kv_heads, capacity, head_dim), `past` positions of which are in use
    int64_t capacity, past;
} Cache;

enum { GELU_TANH, GELU_ERF, RELU, SILU };

typedef struct {
    const Layer *layers;
    const Cache *caches;
    long count, rows;
    const float *x;  // (rows, width)
    float *y;        // (rows, width)
    float *qkv, *heads, *middle, *hidden, *total;  // what all threads share
    float *own;                                    // what each has for itself: normed rows, then scores
    long own_size;
} Work;

// e^x = 2^n * e^r with |r| <= ln(2) / 2, where eight terms of the series are enough. Below -87 and above 88: as there.
INLINE floats exponential(floats x) {
    x = pick(x < -87.0f, broadcast(-87), pick(x > 88.0f, broadcast(88), x));
    const floats n = x * 1.44269504f + 12582912.0f - 12582912.0f;  // 1.5 * 2^23: what is added rounds to a whole number
    const floats r = x - n * 0.693359375f + n * 2.12194440e-4f;    // ln(2) in two parts
    floats p = broadcast(1.0f / 5040);
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * (floats)((__builtin_convertvector(n, ints) + 127) << 23);
}

// Abramowitz and Stegun 7.1.26: off by 1.5e-7 at most.
INLINE floats error_function(floats x) {
    const ints below = x < 0.0f;
    const floats size = pick(below, -x, x), t = 1.0f / (1.0f + 0.3275911f * size);
    const floats p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    const floats positive = 1.0f - p * exponential(-size * size);
    return pick(below, -positive, positive);
}

INLINE floats activated(int activation, floats x) {
    switch (activation) {
        case GELU_TANH: return x / (1.0f + exponential(-1.5957691216f * (x + 0.044715f * x * x * x)));  // 2 sqrt(2 / pi)
        case GELU_ERF: return 0.5f * x * (1.0f + error_function(x * 0.70710678f));
        case RELU: return pick(x < 0.0f, broadcast(0), x);
        default: return x / (1.0f + exponential(-x));
    }
}

static void activate(int activation, float *x, long count) {
    long i = 0;
    for (; i + LANES <= count; i += LANES) store(x + i, activated(activation, load(x + i)));
    if (i < count) {
        float rest[LANES] = {0};
        memcpy(rest, x + i, (count - i) * sizeof(float));
        store(rest, activated(activation, load(rest)));
        memcpy(x + i, rest, (count - i) * sizeof(float));
    }
}

static void normalise(const Norm *norm, const float *x, float *y, long rows, long width) {
    const long whole = width / LANES * LANES;
    for (; rows--; x += width, y += width) {
        floats sums = {0}, squares = {0};
        for (long i = 0; i < whole; i += LANES) sums += load(x + i);
        float mean = sum(sums);
        for (long i = whole; i < width; i++) mean += x[i];
        mean /= width;
        for (long i = 0; i < whole; i += LANES) squares += (load(x + i) - mean) * (load(x + i) - mean);
        float variance = sum(squares);
        for (long i = whole; i < width; i++) variance += (x[i] - mean) * (x[i] - mean);
        const float scale = 1 / sqrtf(variance / width + (float)norm->eps);
        const float *weight = norm->weight, *bias = norm->bias;
        for (long i = 0; i < whole; i += LANES) {
            floats v = (load(x + i) - mean) * scale;
            if (weight) v *= load(weight + i);
            store(y + i, bias ? v + load(bias + i) : v);
        }
        for (long i = whole; i < width; i++)
            y[i] = (x[i] - mean) * scale * (weight ? weight[i] : 1) + (bias ? bias[i] : 0);
    }
}

// This thread's part of a product, to which `residual` is added where there is one, or an activation applied.
static void multiply(const Matrix *m, const float *x, float *y, long rows, const float *residual, int activation,
                     long n, long of) {
    const Job job = {m->kind, x, m->w, m->scales, m->bias, y, rows, m->in, m->out};
    const Range part = piece(&job, n, of);
    for (long r = 0; r < rows; r++) {
        if (residual)
            for (long o = part.from; o < part.to; o++) y[r * m->out + o] += residual[r * m->out + o];
        if (activation >= 0) activate(activation, y + r * m->out + part.from, part.to - part.from);
    }
}

// K keys against one query.
INLINE void score(int K, const float *q, const float *keys, long size, float scale, float *scores) {
    floats sums[4] = {0};
    long i = 0;
    for (; i + LANES <= size; i += LANES)
        UNROLL(4) for (int k = 0; k < K; k++) sums[k] += load(q + i) * load(keys + k * size + i);
    UNROLL(4) for (int k = 0; k < K; k++) {
        float total = sum(sums[k]);
        for (long rest = i; rest < size; rest++) total += q[rest] * keys[k * size + rest];
        scores[k] = total * scale;
    }
}

// V vectors of the weighted sum of values.
INLINE void weighted_sum(int V, const float *weights, const float *values, long count, long size, float scale,
                         float *y) {
    floats sums[4] = {0};
    for (long j = 0; j < count; j++)
        UNROLL(4) for (int n = 0; n < V; n++) sums[n] += weights[j] * load(values + j * size + n * LANES);
    UNROLL(4) for (int n = 0; n < V; n++) store(y + n * LANES, sums[n] * scale);
}

// One query: y = softmax(q * keys * scale) * values. `scores` has room for count, rounded up to whole vectors.
static void attend(const float *q, const float *keys, const float *values, long count, long size, float scale,
                   float *scores, float *y) {
    long j = 0, i = 0;
    for (; j + 4 <= count; j += 4) score(4, q, keys + j * size, size, scale, scores + j);
    for (; j < count; j++) score(1, q, keys + j * size, size, scale, scores + j);
    for (; j % LANES; j++) scores[j] = -INFINITY;
    floats highest = broadcast(-INFINITY), sums = {0};
    for (j = 0; j < count; j += LANES) highest = pick(load(scores + j) > highest, load(scores + j), highest);
    float top = highest[0];
    for (int k = 1; k < LANES; k++) top = highest[k] > top ? highest[k] : top;
    for (j = 0; j < count; j += LANES) {
        const floats weights = exponential(load(scores + j) - top);
        store(scores + j, weights);
        sums += weights;
    }
    const float normaliser = 1 / sum(sums);
    for (; i + 4 * LANES <= size; i += 4 * LANES) weighted_sum(4, scores, values + i, count, size, normaliser, y + i);
    for (; i + LANES <= size; i += LANES) weighted_sum(1, scores, values + i, count, size, normaliser, y + i);
    for (; i < size; i++) {
        float total = 0;
        for (j = 0; j < count; j++) total += scores[j] * values[j * size + i];
        y[i] = total * normaliser;
    }
}

// One row's key/value head: write what is new into the cache, then the queries that share it attend to everything.
static void attend_head(const Work *work, const Layer *l, const Cache *cache, long r, long g, float *scores) {
    const long size = l->head_dim, q_size = l->heads * size, kv_size = l->kv_heads * size, shared = l->heads / l->kv_heads;
    const int fused = l->key.w == NULL;
    const long stride = q_size + 2 * kv_size;
    const float *q = work->qkv + r * (fused ? stride : q_size);
    const float *k = fused ? q + q_size : work->qkv + work->rows * q_size + r * kv_size;
    const float *v = k + (fused ? kv_size : work->rows * kv_size);
    float *keys = cache->keys + (r * l->kv_heads + g) * cache->capacity * size;
    float *values = cache->values + (r * l->kv_heads + g) * cache->capacity * size;
    memcpy(keys + cache->past * size, k + g * size, size * sizeof(float));
    memcpy(values + cache->past * size, v + g * size, size * sizeof(float));
    for (long h = g * shared; h < (g + 1) * shared; h++)
        attend(q + h * size, keys, values, cache->past + 1, size, l->scale, scores, work->heads + r * q_size + h * size);
}

// What thread n of so many does for one layer. Norms are cheap, so each thread makes those it needs: fewer times to wait.
// y may be x: once it is written, nobody needs x any more.
static void layer_part(const Work *work, const Layer *l, const Cache *cache, const float *x, long n, long of) {
    const long rows = work->rows, width = l->width, items = rows * l->kv_heads;
    float *normed = work->own + n * work->own_size, *scores = normed + rows * width;

    if (!l->post) normalise(&l->attention_norm, x, normed, rows, width);
    const float *seen = l->post ? x : normed;
    multiply(&l->query, seen, work->qkv, rows, NULL, -1, n, of);
    if (l->key.w) {
        float *k = work->qkv + rows * l->query.out;
        multiply(&l->key, seen, k, rows, NULL, -1, n, of);
        multiply(&l->value, seen, k + rows * l->key.out, rows, NULL, -1, n, of);
    }
    if (of > 1) barrier();
    for (long item = items * n / of; item < items * (n + 1) / of; item++)
        attend_head(work, l, cache, item / l->kv_heads, item % l->kv_heads, scores);
    if (of > 1) barrier();
    multiply(&l->output, work->heads, work->middle, rows, x, -1, n, of);
    if (of > 1) barrier();
    normalise(l->post ? &l->attention_norm : &l->feedforward_norm, work->middle, normed, rows, width);
    multiply(&l->up, normed, work->hidden, rows, NULL, l->activation, n, of);
    if (of > 1) barrier();
    if (!l->post) {
        multiply(&l->down, work->hidden, work->y, rows, work->middle, -1, n, of);
        return;
    }
    multiply(&l->down, work->hidden, work->total, rows, normed, -1, n, of);
    if (of > 1) barrier();
    for (long r = n; r < rows; r += of)
        normalise(&l->feedforward_norm, work->total + r * width, work->y + r * width, 1, width);
}

static void layers_part(const Work *work, long n, long of) {
    for (long k = 0; k < work->count; k++) {
        if (k && of > 1) barrier();
        layer_part(work, work->layers + k, work->caches + k, k ? work->y : work->x, n, of);
    }
}

static void layers_on_thread(void *work) { layers_part(work, thread_number(), thread_count()); }

static void at_least(long *size, long needed) { *size = needed > *size ? needed : *size; }

// Whether it was done: without memory for what lies between, nothing is.
int layers(const Layer *l, const Cache *caches, long count, const float *x, float *y, long rows, long threads) {
    enum { QKV, HEADS, MIDDLE, HIDDEN, TOTAL, OWN, BUFFERS };
    const long line = 16;  // floats: what threads write apart must lie in different lines of the cache
    long sizes[BUFFERS] = {0};
    if (!parallel || threads < 1) threads = 1;
    for (long k = 0; k < count; k++) {
        const long q_size = l[k].heads * l[k].head_dim, kv_size = l[k].kv_heads * l[k].head_dim;
        at_least(sizes + QKV, rows * (q_size + 2 * kv_size));
        at_least(sizes + HEADS, rows * q_size);
        at_least(sizes + MIDDLE, rows * l[k].width);
        at_least(sizes + HIDDEN, rows * l[k].up.out);
        at_least(sizes + TOTAL, rows * l[k].width);
        at_least(sizes + OWN, rows * l[k].width + caches[k].past + 1 + LANES);
    }
    long total = 0;
    for (int n = 0; n < BUFFERS; n++) {
        sizes[n] = (sizes[n] + line - 1) / line * line;
        total += sizes[n] * (n == OWN ? threads : 1);
    }
    float *memory = malloc(total * sizeof(float) + 64), *next = (float *)(((uintptr_t)memory + 63) / 64 * 64);
    if (!memory) return 0;
    float *parts[BUFFERS];
    for (int n = 0; n < BUFFERS; next += sizes[n++]) parts[n] = next;
    Work work = {l, caches, count, rows, x, y, parts[QKV], parts[HEADS], parts[MIDDLE], parts[HIDDEN], parts[TOTAL],
                 parts[OWN], sizes[OWN]};
    if (threads > 1)
        parallel(layers_on_thread, &work, threads, 0);
    else
        layers_part(&work, 0, 1);
    free(memory);
    return 1;
}
