/* Recursion: plain, mutual, through pointers, deep, with large frames.
 * flags: -O1 -fno-optimize-sibling-calls */
#include <stdio.h>
#include <stdlib.h>

static unsigned fib(unsigned n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

static unsigned ackermann(unsigned m, unsigned n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

static int is_odd(unsigned n);
static int is_even(unsigned n) { return n == 0 ? 1 : is_odd(n - 1); }
static int is_odd(unsigned n) { return n == 0 ? 0 : is_even(n - 1); }

static unsigned moves;
static void hanoi(int n, int a, int b, int c) {
    if (n == 0) return;
    hanoi(n - 1, a, c, b);
    moves = moves * 31 + (unsigned)(a * 3 + b);
    hanoi(n - 1, c, b, a);
}

typedef struct Tree {
    int key;
    struct Tree *left, *right;
} Tree;
static Tree pool[128];
static int used;
static Tree *insert(Tree *t, int key) {
    if (!t) {
        t = &pool[used++];
        t->key = key;
        return t;
    }
    if (key < t->key) t->left = insert(t->left, key);
    else if (key > t->key) t->right = insert(t->right, key);
    return t;
}
static long walk(const Tree *t, int depth) { return t ? walk(t->left, depth + 1) + (long)t->key * depth + walk(t->right, depth + 1) : 0; }

static int wide(int n) {
    volatile char frame[700];
    frame[n % 700] = (char)n;
    return n == 0 ? 0 : wide(n - 1) + frame[n % 700];
}

int main(void) {
    printf("fib %u\n", fib(14));
    printf("ackermann %u\n", ackermann(2, 7));
    printf("parity %d %d\n", is_even(201), is_odd(201));
    hanoi(8, 0, 1, 2);
    printf("hanoi %u\n", moves);
    Tree *root = 0;
    unsigned x = 12345;
    for (int i = 0; i < 100; i++) {
        x = x * 1103515245u + 12345u;
        root = insert(root, (int)(x >> 16 & 1023));
    }
    printf("tree %d %ld\n", used, walk(root, 1));
    printf("wide %d\n", wide(60));
    return 7;
}
