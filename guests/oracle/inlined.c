/* String functions that the compiler writes out itself, and searching and hashing loops over text.
 * flags: -Os -minline-all-stringops -mmemcpy-strategy=rep_8byte:-1:align -mmemset-strategy=rep_8byte:-1:align */
#include <stdio.h>
#include <string.h>

static char text[2048], copy[2048];
static const char *const words[] = {"the", "ball", "of", "thread", "that", "leads", "out", "of", "the", "labyrinth"};

__attribute__((noinline)) static unsigned long hash(const char *s) {
    unsigned long h = 5381;
    while (*s) h = h * 33 ^ (unsigned char)*s++;
    return h;
}
__attribute__((noinline)) static int find(const char *in, const char *what) {
    size_t n = strlen(what);
    for (int i = 0; in[i]; i++)
        if (memcmp(in + i, what, n) == 0) return i;
    return -1;
}
__attribute__((noinline)) static void reverse(char *s) {
    size_t n = strlen(s);
    for (size_t i = 0; i < n / 2; i++) {
        char c = s[i];
        s[i] = s[n - 1 - i], s[n - 1 - i] = c;
    }
}

int main(void) {
    size_t used = 0;
    for (int round = 0; round < 6; round++)
        for (int i = 0; i < 10; i++) {
            size_t n = strlen(words[(i * (round + 1)) % 10]);
            memcpy(text + used, words[(i * (round + 1)) % 10], n);
            used += n;
            text[used++] = ' ';
        }
    text[used] = 0;
    printf("%zu %lx\n", strlen(text), hash(text));
    for (int i = 0; i < 10; i++) printf("%d ", find(text, words[i]));
    memset(copy, '.', sizeof copy);
    memcpy(copy + 3, text, used + 1);
    reverse(copy);
    printf("\n%lx %d\n", hash(copy), strcmp(copy, text) < 0);
    struct { char a[200], b[37]; } x, y;
    memset(&x, 1, sizeof x);
    y = x;
    y.b[20] = 2;
    printf("%d %d\n", memcmp(&x, &y, 100) == 0, memcmp(&x, &y, sizeof x) < 0);
    return 0;
}
