// A shared library for dynamic.c, built twice with different constants.
#include <stdio.h>

static __thread int calls = 100;

__attribute__((constructor)) static void loaded(void) { printf("plugin %d loaded\n", WHICH); }
__attribute__((destructor)) static void unloaded(void) { printf("plugin %d unloaded\n", WHICH); }

int compute(int x) { return x * WHICH + calls++; }

static int slow(int x) { return x - WHICH; }
static int (*resolve(void))(int) { return slow; }
// Chosen by the loader while it relocates.
int chosen(int x) __attribute__((ifunc("resolve")));
