/* A calculator: tokens, recursive descent, variables, a heap of nodes, errors told by line; then text made and counted.
 * flags: -O0 -static -nostdlib -ffreestanding -fno-stack-protector -fno-pie -no-pie */
#include "bare.h"

static const char *const program =
    "a = 12\nb = a * (3 + 4) - 5\nb\nc = (b % 10 + 1) * (a - b / 7)\nc\nd = ((((a))))\nd - 20\n"
    "e = 1 2\n7 / (a - 12)\nf = 2 * * 3\nz = q\n100 - 10 - 1\n2 * 3 + 4 * 5 % 7\nx = y = 9\nx * y + (x\n";
typedef struct Node Node;
struct Node {
    char kind;
    long value;
    Node *left, *right;
};
static Node nodes[64];
static int used, line = 1;
static long variables[26];
static const char *at, *problem;

static Node *node(char kind, long value, Node *left, Node *right) {
    if (used == 64) leave(71);
    Node *n = &nodes[used++];
    n->kind = kind, n->value = value, n->left = left, n->right = right;
    return n;
}
static char peek(void) {
    while (*at == ' ') at++;
    return *at;
}
static Node *sum(void);
static Node *atom(void) {
    char c = peek();
    if (c >= '0' && c <= '9') {
        long v = 0;
        while (*at >= '0' && *at <= '9') v = v * 10 + (*at++ - '0');
        return node('n', v, 0, 0);
    }
    if (c >= 'a' && c <= 'z') return at++, node('v', c - 'a', 0, 0);
    if (c == '(') {
        at++;
        Node *n = sum();
        if (peek() != ')') problem = "missing )";
        else at++;
        return n;
    }
    problem = "value expected";
    return node('n', 0, 0, 0);
}
static Node *product(void) {
    Node *n = atom();
    for (char c; !problem && ((c = peek()) == '*' || c == '/' || c == '%');) at++, n = node(c, 0, n, atom());
    return n;
}
static Node *sum(void) {
    Node *n = product();
    for (char c; !problem && ((c = peek()) == '+' || c == '-');) at++, n = node(c, 0, n, product());
    return n;
}
static Node *assignment(void) {
    const char *start = at;
    if (peek() >= 'a' && *at <= 'z') {
        char name = *at++;
        if (peek() == '=') return at++, node('=', name - 'a', assignment(), 0);
    }
    at = start;
    return sum();
}
static long value(const Node *n) {
    long a, b;
    switch (n->kind) {
    case 'n': return n->value;
    case 'v': return variables[n->value];
    case '=': return variables[n->value] = value(n->left);
    }
    a = value(n->left), b = value(n->right);
    switch (n->kind) {
    case '+': return a + b;
    case '-': return a - b;
    case '*': return a * b;
    }
    if (b == 0) {
        problem = "division by zero";
        return 0;
    }
    return n->kind == '/' ? a / b : a % b;
}
static void one_line(void) {
    used = 0, problem = 0;
    Node *n = assignment();
    if (!problem && peek() != '\n') problem = "end of line expected";
    long v = problem ? 0 : value(n);
    put_number((unsigned long)line, 10);
    put_text(": ");
    if (problem) put_text(problem);
    else if (v < 0) put_char('-'), put_number((unsigned long)-v, 10);
    else put_number((unsigned long)v, 10);
    put_char('\n');
    while (*at && *at != '\n') at++;
    if (*at) at++;
    line++;
}

int run(void) {
    int problems = 0;
    for (int round = 0; round < 3; round++) {
        at = program;
        while (*at) one_line(), problems += problem != 0;
    }
    return problems;
}
