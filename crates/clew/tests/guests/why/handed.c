/* A call hands over a long number and says that it is a short one. */
#include <stdarg.h>
#include <stdio.h>

static void put_number(long n)
{
    printf("%ld", n);
}

static void say(const char *what, ...)
{
    va_list rest;
    va_start(rest, what);
    for (; *what; what++) {
        if (*what == 'd') {
            long n = va_arg(rest, int);
            put_number(n);
        } else if (*what == 'l') {
            long n = va_arg(rest, long);
            put_number(n);
        } else {
            putchar(*what);
        }
    }
    va_end(rest);
}

int main(void)
{
    long far = 1;
    for (int i = 0; i < 25; i++)
        far *= 3;
    say("[d]\n", 7);
    say("[d]\n", far); /* cause 1 proved */
    return 0;
}
