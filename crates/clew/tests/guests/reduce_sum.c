/* Prints the sum of the numbers of a file; a number with three digits counts wrong, unless it is the repaired version. */
#include <ctype.h>
#include <stdio.h>

int main(int argc, char **argv) {
    FILE *in = argc > 1 ? fopen(argv[1], "r") : stdin;
    long sum = 0, number = 0;
    if (!in) return 2;
    for (int c; (c = getc(in)) != EOF;) {
        if (isdigit(c)) {
            number = number * 10 + (c - '0');
#ifndef FIXED
            if (number > 99) number = 99;
#endif
        } else {
            sum += number;
            number = 0;
        }
    }
    printf("%ld\n", sum + number);
    return 0;
}
