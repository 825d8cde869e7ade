// Lines of a text file of word vectors, "word number number ...", as rows of floats.
//
// Plain numbers are read digit by digit and rounded once, to what strtof gives: a whole number below 2^53 and a power of
// ten up to 22 are exact as doubles, so their quotient is the nearest double; and the nearest float of that is the
// nearest float of the number, unless the double lies just between two floats. Those, and all others, go to strtof.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST 128  // characters of a number that strtof is asked for

static const double TENS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static inline int is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// One number from p on; the place behind it, or NULL where there is none that this reads.
static const char *number(const char *p, float *value) {
    const char *start = p;
    const int negative = *p == '-';
    p += *p == '-' || *p == '+';
    uint64_t digits = 0;
    long count = 0, power = 0, seen = 0;
    for (; *p >= '0' && *p <= '9'; p++, seen++)
        if (count < 19) digits = digits * 10 + (*p - '0'), count += digits != 0;
        else power++;
    if (*p == '.')
        for (p++; *p >= '0' && *p <= '9'; p++, seen++)
            if (count < 19) digits = digits * 10 + (*p - '0'), count += digits != 0, power--;
    if (!seen) return NULL;
    const int cut = count == 19;
    if (*p == 'e' || *p == 'E') {
        p++;
        const int below = *p == '-';
        p += *p == '-' || *p == '+';
        if (*p < '0' || *p > '9') return NULL;
        long exponent = 0;
        for (; *p >= '0' && *p <= '9'; p++)
            if (exponent < 100000) exponent = exponent * 10 + (*p - '0');
        power += below ? -exponent : exponent;
    }
    if (!cut && digits < (1ull << 53) && power >= -22 && power <= 22) {
        const double exact = power < 0 ? digits / TENS[-power] : digits * TENS[power];
        uint64_t bits;
        memcpy(&bits, &exact, 8);
        const int between = (bits & 0x1fffffff) == 0x10000000;
        if (digits == 0 || (!between && exact > 1e-37 && exact < 1e38)) {
            *value = negative ? -(float)exact : (float)exact;
            return p;
        }
    }
    char copy[LONGEST + 1];
    if (p - start > LONGEST) return NULL;
    memcpy(copy, start, p - start);
    copy[p - start] = 0;
    char *end;
    *value = strtof(copy, &end);
    return *end ? NULL : p;
}

// Reads whole lines of `size` bytes, the last of which is a line end, into at most `most` rows of `width` numbers.
// `words` gets two numbers for each row: where its word begins and ends. Returns how many rows were read; *used bytes
// belong to them. It stops before a line that is anything but a word and `width` plain numbers.
long read_rows(const char *text, long size, long width, long most, float *values, int64_t *words, int64_t *used) {
    long rows = 0;
    const char *line = text, *stop = text + size;
    while (line < stop && rows < most) {
        const char *p = line;
        while (!is_space(*p) && *p != '\n') p++;
        words[2 * rows] = line - text;
        words[2 * rows + 1] = p - text;
        if (p == line) break;
        float *row = values + rows * width;
        long n = 0;
        for (; n < width; n++) {
            while (is_space(*p)) p++;
            p = number(p, row + n);
            if (!p || !(is_space(*p) || *p == '\n')) break;
        }
        if (n < width) break;
        while (is_space(*p)) p++;
        if (*p != '\n') break;
        line = p + 1;
        rows++;
    }
    *used = line - text;
    return rows;
}
