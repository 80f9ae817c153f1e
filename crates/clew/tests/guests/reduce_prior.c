/* Two numbers come from one file; only the second one makes the failure. */
#include <stdio.h>

int main(int argc, char **argv) {
    FILE *in = fopen(argv[1], "r");
    int first = getc(in) - '0'; /* other */
    getc(in);
    int second = getc(in) - '0'; /* difference */
    int total = first * 10; /* elsewhere */
    int limit = 5;
    int grade = 1;
    if (second > limit) /* critical */
        grade = 2; /* wrong */
    total += grade;
    printf("%d\n", total); /* symptom */
    return 0;
}
