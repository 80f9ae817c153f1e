/* Every string instruction, with and without rep, all widths, both directions, ends early, late and at once.
 * flags: -O1 */
#include <stdio.h>
#include <string.h>

typedef unsigned long u64;
static unsigned char a[4096] __attribute__((aligned(64))), b[4096] __attribute__((aligned(64)));
static u64 sum = 1469598103934665603ul;

static void note(u64 v) { sum = (sum ^ v) * 1099511628211ul; }
static void fill(void) {
    for (int i = 0; i < 4096; i++) a[i] = (unsigned char)(i * 7 + (i >> 5)), b[i] = (unsigned char)(i * 5 + 3);
}

/* DIR is "cld" or "std"; the direction is always forward again afterwards, as the ABI wants. */
#define MOVS(DIR, W, d, s, n)                                                                                        \
    do {                                                                                                             \
        void *d_ = (d);                                                                                              \
        const void *s_ = (s);                                                                                        \
        u64 n_ = (n);                                                                                                \
        __asm__ volatile(DIR "; rep movs" W "; cld" : "+D"(d_), "+S"(s_), "+c"(n_)::"memory", "cc");                 \
        note((u64)((char *)d_ - (char *)b)), note((u64)((char *)s_ - (char *)a)), note(n_);                          \
    } while (0)
#define STOS(DIR, W, d, v, n)                                                                                        \
    do {                                                                                                             \
        void *d_ = (d);                                                                                              \
        u64 n_ = (n);                                                                                                \
        __asm__ volatile(DIR "; rep stos" W "; cld" : "+D"(d_), "+c"(n_) : "a"((u64)(v)) : "memory", "cc");          \
        note((u64)((char *)d_ - (char *)b)), note(n_);                                                               \
    } while (0)
#define LODS(DIR, W, s, n)                                                                                           \
    do {                                                                                                             \
        const void *s_ = (s);                                                                                        \
        u64 n_ = (n), v_ = 0;                                                                                        \
        __asm__ volatile(DIR "; rep lods" W "; cld" : "+S"(s_), "+c"(n_), "+a"(v_)::"memory", "cc");                 \
        note((u64)((char *)s_ - (char *)a)), note(v_), note(n_);                                                     \
    } while (0)
#define CMPS(DIR, REP, W, d, s, n)                                                                                   \
    do {                                                                                                             \
        const void *d_ = (d), *s_ = (s);                                                                             \
        u64 n_ = (n);                                                                                                \
        unsigned char below_;                                                                                        \
        __asm__ volatile(DIR "; cmp %%al, %%al; " REP " cmps" W "; setb %0; cld"                                     \
                         : "=q"(below_), "+D"(d_), "+S"(s_), "+c"(n_)::"memory", "cc");                              \
        note((u64)((char *)d_ - (char *)b)), note(n_), note(below_);                                                 \
    } while (0)
#define SCAS(DIR, REP, W, d, v, n)                                                                                   \
    do {                                                                                                             \
        const void *d_ = (d);                                                                                        \
        u64 n_ = (n);                                                                                                \
        unsigned char equal_;                                                                                        \
        __asm__ volatile(DIR "; " REP " scas" W "; setz %0; cld"                                                     \
                         : "=q"(equal_), "+D"(d_), "+c"(n_) : "a"((u64)(v)) : "memory", "cc");                       \
        note((u64)((char *)d_ - (char *)b)), note(n_), note(n == 0 ? 0 : equal_);                                    \
    } while (0)

static void moves(u64 n) {
    MOVS("cld", "b", b + 64, a + 3, n);
    MOVS("cld", "w", b + 128, a + 5, n);
    MOVS("cld", "l", b + 256, a + 1, n);
    MOVS("cld", "q", b + 512, a + 2, n);
    MOVS("std", "b", b + 1024, a + 1000, n);
    MOVS("std", "w", b + 1200, a + 1100, n);
    MOVS("std", "l", b + 1800, a + 1201, n);
    MOVS("std", "q", b + 2900, a + 2303, n);
    /* Overlapping: a pattern that smears. */
    MOVS("cld", "b", b + 3001, b + 3000, n);
    MOVS("cld", "q", b + 3200, b + 3196, n / 4);
    STOS("cld", "b", b + 7, 0x5a, n);
    STOS("cld", "w", b + 100, 0x1234, n);
    STOS("std", "l", b + 900, 0xdeadbeef, n);
    STOS("cld", "q", b + 1000, 0x0123456789abcdef, n);
    LODS("cld", "b", a + 9, n);
    LODS("std", "w", a + 900, n);
    LODS("cld", "l", a + 77, n);
    LODS("std", "q", a + 2000, n);
}

static void searches(u64 n) {
    memcpy(b + 2048, a + 1024, 512);
    b[2048 + 200] ^= 1;
    CMPS("cld", "repe", "b", b + 2048, a + 1024, n);
    CMPS("cld", "repe", "w", b + 2048, a + 1024, n);
    CMPS("cld", "repe", "l", b + 2048, a + 1024, n);
    CMPS("cld", "repe", "q", b + 2048, a + 1024, n);
    CMPS("std", "repe", "b", b + 2048 + 300, a + 1024 + 300, n);
    CMPS("std", "repe", "q", b + 2048 + 400, a + 1024 + 400, n / 2);
    CMPS("cld", "repne", "b", b + 100, a + 200, n);
    CMPS("cld", "repne", "l", b + 103, a + 205, n);
    b[3500 + 61] = 0;
    SCAS("cld", "repne", "b", b + 3500, 0, n);
    SCAS("cld", "repe", "b", b + 3500, b[3500], n);
    SCAS("std", "repne", "w", b + 3700, 0x1111, n);
    SCAS("cld", "repne", "l", b + 3400, 0xdeadbeef, n);
    SCAS("std", "repe", "q", b + 3600, 1, n);
}

static void single(void) {
    void *d = b + 11;
    const void *s = a + 17;
    u64 v = 0;
    __asm__ volatile("movsb; movsw; movsl; movsq; lodsb; lodsw; lodsl; lodsq; stosb; stosw; stosl; stosq; scasb; cmpsb; scasq; cmpsl\n"
                     "std; movsq; stosb; lodsw; scasw; cmpsw; cld"
                     : "+D"(d), "+S"(s), "+a"(v)::"memory", "cc");
    note((u64)((char *)d - (char *)b)), note((u64)((char *)s - (char *)a)), note(v);
}

int main(void) {
    static const unsigned char lengths[] = {0, 1, 2, 3, 5, 17, 33};
    fill();
    for (unsigned i = 0; i < sizeof lengths; i++) {
        moves(lengths[i]);
        searches(lengths[i] * 3);
        single();
    }
    for (int i = 0; i < 4096; i += 8) note(*(u64 *)(b + i));
    printf("%016lx\n", sum);
    return 0;
}
