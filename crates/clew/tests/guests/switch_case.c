/* Prints "+*-" for "+/-": one operator is read as another one, by no branch but through a table. */
#include <stdio.h>

enum { ADD, SUBTRACT, MULTIPLY, DIVIDE, SHIFT, MASK };
static volatile int operators[3] = {ADD, MULTIPLY, SUBTRACT};

__attribute__((noinline)) static void show(const char *text) {
    fputs(text, stdout);
}

__attribute__((noinline)) static void print_operator(int operator) {
    switch (operator) { /* critical */
    case ADD:
        show("+");
        break;
    case SUBTRACT:
        show("-");
        break;
    case MULTIPLY:
        show("*");
        break;
    case DIVIDE:
        show("/"); /* right */
        break;
    case SHIFT:
        show("<");
        break;
    case MASK:
        show("&");
        break;
    }
}

int main(void) {
    for (int i = 0; i < 3; i++)
        print_operator(operators[i]);
    show("\n");
    return 0;
}
