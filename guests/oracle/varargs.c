/* Variable arguments: integers, doubles, long doubles and structures, few and many, passed on.
 * flags: -O0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct { long a, b, c; } Big;
typedef struct { int x; float y; } Small;

static double total(const char *kinds, ...) {
    va_list ap, again;
    double sum = 0;
    va_start(ap, kinds);
    va_copy(again, ap);
    for (const char *k = kinds; *k; k++) {
        switch (*k) {
        case 'i': sum += va_arg(ap, int); break;
        case 'l': sum += (double)va_arg(ap, long); break;
        case 'd': sum += va_arg(ap, double); break;
        case 'D': sum += (double)va_arg(ap, long double); break;
        case 'B': { Big b = va_arg(ap, Big); sum += (double)(b.a + b.b * b.c); break; }
        case 'S': { Small s = va_arg(ap, Small); sum += s.x * (double)s.y; break; }
        case 's': sum += (double)strlen(va_arg(ap, char *)); break;
        }
    }
    if (kinds[0] == 'i') sum += va_arg(again, int) * 1000;
    va_end(again);
    va_end(ap);
    return sum;
}

static int format(char *to, size_t n, const char *f, ...) {
    va_list ap;
    va_start(ap, f);
    int r = vsnprintf(to, n, f, ap);
    va_end(ap);
    return r;
}

int main(void) {
    double s = 0;
    Big b = {3, 4, 5};
    Small m = {6, 1.5f};
    for (int i = 0; i < 25; i++) {
        s += total("iiiiiiiiii", i, 2, 3, 4, 5, 6, 7, 8, 9, i);
        s += total("dddddddddd", 1.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0);
        s += total("idDlBSsid", i, 2.0, 3.0L, 4l, b, m, "hello", 8, 9.0);
        s += total("SSSSBBii", m, m, m, m, b, b, 1, 2);
        s += total("");
    }
    printf("%.3f\n", s);
    char line[80];
    for (int i = 0; i < 10; i++) {
        int n = format(line, sizeof line, "%d %s %.2f %c %lx", i, "text", i / 4.0, 'a' + i, (long)i << 33);
        printf("%d %s\n", n, line);
    }
    return (int)s & 0x7f;
}
