// A search for whole words that gives up at the first match that is none, instead of trying the next one.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static int has_word(const char *line, const char *word) {
    size_t length = strlen(word);
    for (const char *at = line; (at = strstr(at, word)); at++) {
        if (at > line) /* cause 5 proved */
            if (isalnum((unsigned char)at[-1])) /* cause 5 proved */
                return 0; /* cause 5: continue */
        if (!isalnum((unsigned char)at[length])) return 1;
    }
    return 0;
}

int main(void) {
    const char *lines[] = {"a cat", "scatter cat", "dog"};
    for (int i = 0; i < 3; i++) {
        if (has_word(lines[i], "cat")) puts(lines[i]);
    }
    return 0;
}
