/* Small decisions over numbers that come from standard input. The first number says which of them. */
#include <unistd.h>

static volatile int out;

/* Two decisions, one inside the other. */
__attribute__((noinline)) static void nested(volatile int x, volatile int y) {
    if (x > 0) { /* n1 */
        y = y + 1; /* n2 */
        if (y > 0) /* n3 */
            out = 10; /* n4 */
        else
            out = 20; /* n5 */
    } else
        out = 30; /* n6 */
} /* n7 */

/* Of three decisions only some have to do with the result. */
__attribute__((noinline)) static void partly(volatile int x, volatile int y, volatile int z) {
    volatile int a, b, told;
    b = 2; /* p4 */
    if (x - y > 0) /* p5 */
        a = x; /* p6 */
    else
        a = y; /* p8 */
    if (x + y > 10) /* p9 */
        b = a; /* p10 */
    if (z * z > 3) /* p11 */
        told = 1; /* p12 */
    else
        told = 2; /* p14 */
    out = b; /* p15 */
} /* p16 */

/* What did not happen decides: a plain slice has no way of knowing. */
__attribute__((noinline)) static void omitted(volatile int x) {
    volatile int a;
    a = 0; /* o2 */
    x = x - 1; /* o3 */
    if (x > 0) /* o4 */
        a = 1; /* o5 */
    out = a; /* o6 */
} /* o7 */

/* The index says which element is read. */
__attribute__((noinline)) static void indexed(volatile int i, volatile int y) {
    volatile int a[2];
    a[0] = 0; /* i1 */
    a[1] = 1; /* i2 */
    if (i > 0) /* i3 */
        y = y + 0; /* i4 */
    if (a[i & 1] > 0) { /* i5 */
        if (y > 0) /* i6 */
            out = 1; /* i7 */
        else
            out = -1; /* i8 */
    } else
        out = 0; /* i9 */
} /* i10 */

/* The index says which element is written: not the one that is read. */
__attribute__((noinline)) static void stored(volatile int i) {
    volatile int a[2];
    a[0] = 5; /* s1 */
    a[1] = 6; /* s2 */
    a[i & 1] = 9; /* s3 */
    out = a[0]; /* s4 */
} /* s5 */

__attribute__((noinline, noclone)) static void down(volatile int n) {
    if (n > 0) { /* r1 */
        down(n - 1); /* r2 */
        out = n; /* r3 */
    }
} /* r4 */

int main(void) {
    int given[4] = {0};
    read(0, given, sizeof given); /* read */
    switch (given[0]) { /* which */
    case 1: nested(given[1], given[2]); break; /* call nested */
    case 2: partly(given[1], given[2], given[3]); break; /* call partly */
    case 3: omitted(given[1]); break; /* call omitted */
    case 4: indexed(given[1], given[2]); break; /* call indexed */
    case 5: stored(given[1]); break; /* call stored */
    case 6: down(given[1]); break; /* call down */
    }
    return out & 0x7f; /* end */
}
