/* Grades points one too high, so that a test goes the wrong way. What else is read and summed has nothing to do with it.
 * With 40 7: expected "7\nlow\n10\n". */
#include <stdio.h>
#include <stdlib.h>

static int sizes[4] = {1, 2, 3, 4};

static int grade(int points) {
    return points / 10 + 1; /* fault: without + 1 */
}

int main(int argc, char **argv) {
    int sum = 0;
    for (int i = 0; i < 4; i++)
        sum += sizes[i]; /* constant */
    int points = atoi(argv[1]); /* input */
    int bonus = atoi(argv[2]); /* elsewhere */
    printf("%d\n", bonus);
    if (grade(points) > 4) /* critical */
        puts("high"); /* symptom */
    else
        puts("low");
    printf("%d\n", sum);
    return argc != 3;
}
