// Skip-gram and CBOW with negative sampling (Mikolov et al. 2013): one stretch of text, word by word.
//
// Every word has two vectors: one of `input`, which is kept in the end, and one of `output`, against which it is
// guessed. A word is to be told from `negative` others that are drawn by chance: the product of the two vectors is to be
// large for the word that stands there, and small for the others. The loss is -log sigmoid(product) for the word and
// -log sigmoid(-product) for each of the others.
//
//   skip-gram   each word around is the input once, and the word in the middle is guessed from it
//   CBOW        the words around together (their mean, or their sum) are the input, and are moved by the same error
//
// Several threads may work on one pair of tables without locks (Hogwild, Recht et al. 2011): texts rarely touch the same
// rows at the same time. With one thread the result is the same to the bit. reference.py is the same in Python.

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define END_OF_SENTENCE -1
#define STEEP 80.0f        // products beyond this are taken as this: exp must not leave a float's range
#define TINY 1e-250        // a product of probabilities below this is turned into a logarithm

typedef struct {
    int64_t words, size;             // rows and columns of both tables
    int64_t window, negative;
    int64_t cbow, cbow_mean, shrink_windows;
    const uint32_t *keep;            // (words): a word stays where a draw of 32 bits is not above this; NULL: always
    const uint32_t *cut;             // (words): of the alias table: below this the column's own word is drawn,
    const int32_t *alias;            // (words): else this one
    float *input, *output;           // (words, size)
} Task;

typedef struct {
    uint64_t random;
    double likelihood, loss;         // the product of probabilities since the last logarithm, and the sum of those
    int64_t guesses;                 // words that were guessed
    float *error, *mean;             // (size): what the input is to be moved by; CBOW's input
    int32_t *drawn;                  // (negative)
} State;

// 64 random bits (splitmix64, Steele et al. 2014).
static inline uint64_t draw(uint64_t *random) {
    uint64_t z = *random += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

// A number from 0 to below n, from the upper half of the bits.
static inline int64_t below(uint64_t bits, int64_t n) { return (int64_t)((bits >> 32) * (uint64_t)n >> 32); }

// A word, as often as the table says (the alias method, Walker 1977).
static inline int32_t draw_word(const Task *task, uint64_t *random) {
    const uint64_t bits = draw(random);
    const int64_t column = below(bits, task->words);
    return (uint32_t)bits < task->cut[column] ? (int32_t)column : task->alias[column];
}

static inline float dot(const float *a, const float *b, long size) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (long n = 0; n < size; n++) sum += a[n] * b[n];
    return sum;
}

static inline void add(float *to, const float *what, float factor, long size) {
#pragma omp simd
    for (long n = 0; n < size; n++) to[n] += factor * what[n];
}

// Tells `word` from others by the vector `in`. Their output vectors move at once; what `in` is to be moved by is left in
// state->error.
static void guess(const Task *task, State *state, const float *in, int32_t word, float lr) {
    const long size = task->size;
    float *error = state->error;
    memset(error, 0, size * sizeof(float));
    for (long n = 0; n < task->negative; n++) {  // all of them first, so that their rows are on the way
        state->drawn[n] = draw_word(task, &state->random);
        const float *row = task->output + state->drawn[n] * (int64_t)size;
        for (long at = 0; at < size; at += 16) __builtin_prefetch(row + at, 1);
    }
    for (long n = -1; n < task->negative; n++) {
        const int32_t target = n < 0 ? word : state->drawn[n];
        if (n >= 0 && target == word) continue;
        float *out = task->output + target * (int64_t)size;
        const float product = fminf(fmaxf(dot(in, out, size), -STEEP), STEEP);
        const float e = expf(-product), sigmoid = 1 / (1 + e);  // e · sigmoid is 1 - sigmoid, without rounding to 0
        const float step = ((n < 0) - sigmoid) * lr;
        state->likelihood *= n < 0 ? sigmoid : e * sigmoid;
        if (state->likelihood < TINY) {
            state->loss -= log(state->likelihood);
            state->likelihood = 1;
        }
#pragma omp simd
        for (long i = 0; i < size; i++) {
            const float before = out[i];
            error[i] += step * before;
            out[i] = before + step * in[i];
        }
    }
    state->guesses++;
}

// The word at `middle` of a sentence, with the words from `first` to before `last` around it.
static void learn_word(const Task *task, State *state, const int32_t *sentence, long middle, long first, long last,
                       float lr) {
    const long size = task->size, around = last - first - 1;
    if (!task->cbow) {
        for (long n = first; n < last; n++) {
            if (n == middle) continue;
            float *in = task->input + sentence[n] * (int64_t)size;
            guess(task, state, in, sentence[middle], lr);
            add(in, state->error, 1, size);
        }
    } else if (around > 0) {
        memset(state->mean, 0, size * sizeof(float));
        for (long n = first; n < last; n++)
            if (n != middle) add(state->mean, task->input + sentence[n] * (int64_t)size, 1, size);
        if (task->cbow_mean)
            for (long i = 0; i < size; i++) state->mean[i] *= 1.0f / around;
        guess(task, state, state->mean, sentence[middle], lr);
        // As word2vec and gensim do: the whole error for each of the words where they were averaged, and its share
        // where they were added up.
        const float share = task->cbow_mean ? 1.0f : 1.0f / around;
        for (long n = first; n < last; n++)
            if (n != middle) add(task->input + sentence[n] * (int64_t)size, state->error, share, size);
    }
}

static void learn_sentence(const Task *task, State *state, const int32_t *sentence, long length, float lr) {
    for (long middle = 0; middle < length; middle++) {
        const long less = task->shrink_windows ? below(draw(&state->random), task->window) : 0;
        const long reach = task->window - less;
        const long first = middle > reach ? middle - reach : 0;
        const long last = middle + reach + 1 < length ? middle + reach + 1 : length;
        learn_word(task, state, sentence, middle, first, last, lr);
    }
}

// Learns from `count` words, sentences closed by END_OF_SENTENCE. With a rate of 0 nothing moves, and the loss is
// measured. Returns how many words were guessed, -1 without memory; *loss is the sum over them.
int64_t learn_text(const Task *task, const int32_t *text, int64_t count, float lr, uint64_t seed, double *loss) {
    State state = {.random = seed, .likelihood = 1};
    int32_t *sentence = malloc((count + 1) * sizeof *sentence);
    state.drawn = malloc((task->negative + 1) * sizeof *state.drawn);
    state.error = malloc(2 * task->size * sizeof(float));
    if (sentence && state.drawn && state.error) {
        state.mean = state.error + task->size;
        long length = 0;
        for (int64_t n = 0; n <= count; n++) {
            const int32_t word = n < count ? text[n] : END_OF_SENTENCE;
            if (word == END_OF_SENTENCE) {
                learn_sentence(task, &state, sentence, length, lr);
                length = 0;
            } else if (!task->keep || (uint32_t)draw(&state.random) <= task->keep[word]) {
                sentence[length++] = word;
            }
        }
        *loss = state.loss - log(state.likelihood);
    } else {
        state.guesses = -1;
    }
    free(sentence);
    free(state.drawn);
    free(state.error);
    return state.guesses;
}
