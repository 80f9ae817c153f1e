// A generator that emits a definition in one arm only.
#include <stdio.h>
#include <string.h>

static int compatible, interactive;

static void emit_definitions(void) {
    printf("#define BUFFER 512\n");
    if (compatible) { /* cause 2 proved: needed in both arms */
        if (interactive) printf("#define INTERACTIVE 1\n");
    } else {
        printf("int line_number = 1;\n");
    }
    printf("int main(void);\n");
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-l") == 0) compatible = 1;
        if (strcmp(argv[i], "-i") == 0) interactive = 1;
    }
    emit_definitions();
    return 0;
}
