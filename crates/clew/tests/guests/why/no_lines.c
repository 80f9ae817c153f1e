/* A call in one of two arms asks for what is not there; leaving it out is enough. */
#include <stdio.h>

struct chunk {
    int takes_more;
    int count;
    const int *lines;
};

static int next_line(const struct chunk *c, int line)
{
    return line + c->lines[0];
}

static int sum_of(const struct chunk *c)
{
    int i, line = 10, sum = 0;
    if (!c->takes_more) {
        i = 0;
    } else {
        line = next_line(c, line); /* cause 1 proved */
        i = 1;
    }
    for (; i < c->count; i++) {
        line += c->lines[i];
        sum += line;
    }
    return sum;
}

int main(void)
{
    static const int lines[] = {1, 2, 3};
    struct chunk whole = {1, 3, lines}, stripped = {1, 0, NULL};
    printf("%d\n", sum_of(&whole));
    printf("%d\n", sum_of(&stripped));
    return 0;
}
