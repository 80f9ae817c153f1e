/* The first call of a function goes through the dynamic linker, which keeps the arguments meanwhile.
   flags: -fno-builtin -Wl,-z,lazy -Wl,--no-as-needed -lm */
#include <math.h>

static volatile double base = 3;
static volatile int limit = 10, given = 20;

int main(void) {
    double side = base * 2; /* side */
    double other = base * 5; /* other */
    double square = pow(side, 2); /* square */
    if (given > limit) /* if */
        square = fmin(square, 50); /* least */
    return (int)square; /* end */
}
