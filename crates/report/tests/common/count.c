/* Counts lines, words and bytes of its input, and the words of each length. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define LENGTHS 16

struct totals {
	long lines;
	long words;
	long bytes;
	long by_length[LENGTHS];
};

static void clear(struct totals *t)
{
	memset(t, 0, sizeof *t);
}

/* Adds a word; words longer than the table are counted at its end. */
static void add_word(struct totals *t, int length)
{
	int slot = length;

	if (slot >= LENGTHS)
		slot = LENGTHS - 1;
	t->words++;
	t->by_length[slot]++;
}

static int is_blank(int c)
{
	return c == ' ' || c == '\t' || c == '\n';
}

/* Reads one stream to its end. */
static void read_all(FILE *in, struct totals *t)
{
	int c, length = 0;

	while ((c = getc(in)) != EOF) {
		t->bytes++;
		if (c == '\n')
			t->lines++;
		if (!is_blank(c)) {
			length++;
			continue;
		}
		if (length >= 0)
			add_word(t, length);
		length = 0;
	}
	if (length > 0)
		add_word(t, length);
}

static void print_lengths(const struct totals *t)
{
	for (int n = 1; n < LENGTHS; n++) {
		if (t->by_length[n] == 0)
			continue;
		printf("%2d %ld\n", n, t->by_length[n]);
	}
}

int main(int argc, char **argv)
{
	struct totals t;

	clear(&t);
	if (argc > 1) {
		for (int n = 1; n < argc; n++) {
			FILE *in = fopen(argv[n], "r");
			if (in == NULL) {
				perror(argv[n]);
				return 1;
			}
			read_all(in, &t);
			fclose(in);
		}
	} else {
		read_all(stdin, &t);
	}
	printf("%ld lines\n%ld words\n%ld bytes\n", t.lines, t.words, t.bytes);
	print_lengths(&t);
	return 0;
}
