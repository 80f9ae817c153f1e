// Errors for the sanitizers to find, chosen by the argument; "fine" has none.
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int counter;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static int read_at(int *p, int i) { return p[i]; }

static void *locked(void *arg) {
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&lock);
        counter++;
        pthread_mutex_unlock(&lock);
    }
    return arg;
}

static void *racing(void *arg) {
    counter++;
    return arg;
}

static void two(void *(*f)(void *)) {
    pthread_t a, b;
    pthread_create(&a, NULL, f, NULL);
    pthread_create(&b, NULL, f, NULL);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "fine";
    int *p = malloc(10 * sizeof *p), stack[4] = {1, 2, 3, 4};
    for (int i = 0; i < 10; i++) p[i] = i;
    int r = 0;
    if (!strcmp(what, "fine")) {
        two(locked);
        r = read_at(p, 9) + counter;
    }
    if (!strcmp(what, "heap")) r = read_at(p, 10);
    if (!strcmp(what, "stack")) r = read_at(stack, 4 + (argc > 5));
    if (!strcmp(what, "free")) {
        free(p);
        return read_at(p, 3);
    }
    if (!strcmp(what, "leak")) p = NULL;
    if (!strcmp(what, "overflow")) r = INT_MAX - 1 + argc;
    if (!strcmp(what, "shift")) r = 1 << (30 + argc);
    if (!strcmp(what, "null")) r = *(volatile int *)(argc > 5 ? stack : NULL);
    if (!strcmp(what, "race")) two(racing);
    printf("%s %d\n", what, r);
    free(p);
    return 0;
}
