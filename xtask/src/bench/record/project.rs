//! A C project of ordinary size for `make`: twenty files of some three hundred lines that include the usual headers.
//!
//! The sources are generated, the same every time: lists, tables, text and arithmetic as programs have them, in functions
//! that differ in their shape. Natively a file takes the compiler a few tenths of a second at -O2, which is what the files
//! of common C programs take.

use std::{fmt::Write as _, fs, io, path::Path};

use crate::random::Random;

const FILES: u64 = 20;
const FUNCTIONS: u64 = 24;

/// Writes the project, smaller by the factor `shrink`.
pub fn write(dir: &Path, shrink: u64) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let files = (FILES / shrink).max(2);
    let mut random = Random::new(33);
    let (mut header, mut calls) = (String::from(HEADER), String::new());
    for file in 0..files {
        let mut source = String::from("#include \"project.h\"\n\n");
        for n in 0..FUNCTIONS {
            source += &function(&mut random, file, n);
        }
        let _ = writeln!(source, "long part{file}(long x) {{\n    long s = x;");
        for n in 0..FUNCTIONS {
            let _ = writeln!(source, "    s += f{file}_{n}(s, x + {n});");
        }
        source += "    return s;\n}\n";
        fs::write(dir.join(format!("part{file}.c")), source)?;
        let _ = writeln!(header, "long part{file}(long x);");
        let _ = writeln!(calls, "    total += part{file}(n + {file});");
    }
    fs::write(dir.join("project.h"), header + "#endif\n")?;
    let main = format!(
        "#include \"project.h\"\n\nint main(int argc, char **argv) {{\n    long n = argc > 1 ? atol(argv[1]) : 7, total = 0;\n{calls}    printf(\"%ld\\n\", total);\n    return 0;\n}}\n"
    );
    fs::write(dir.join("main.c"), main)?;
    let objects: String = (0..files).map(|n| format!(" part{n}.o")).collect();
    let makefile = format!(
        "CFLAGS = -O2 -g -Wall\nOBJECTS = main.o{objects}\n\nprogram: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\n\n$(OBJECTS): project.h\n"
    );
    fs::write(dir.join("Makefile"), makefile)
}

const HEADER: &str = "\
#ifndef PROJECT_H
#define PROJECT_H
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct item { struct item *next; char name[24]; long value; };
struct table { struct item *slots[64]; size_t used; };
";

/// One function, of one of four shapes.
fn function(random: &mut Random, file: u64, n: u64) -> String {
    let (a, b, c) = (3 + random.below(60), 2 + random.below(9), 1 + random.below(1000));
    let name = format!("f{file}_{n}");
    match n % 4 {
        0 => format!(
            "static long {name}(long a, long b) {{
    struct table t = {{{{0}}, 0}};
    for (long i = 0; i < {a}; i++) {{
        struct item *e = malloc(sizeof *e);
        if (!e) return -ENOMEM;
        snprintf(e->name, sizeof e->name, \"n%ld-%ld\", i * {b}, a ^ {c});
        e->value = i * b + {c};
        struct item **slot = &t.slots[(strlen(e->name) * {b} + (size_t)e->name[1]) % 64];
        e->next = *slot;
        *slot = e;
        t.used++;
    }}
    long sum = (long)t.used;
    for (int s = 0; s < 64; s++)
        for (struct item *e = t.slots[s], *next; e; e = next) {{
            next = e->next;
            sum += strcmp(e->name, \"n{c}\") > 0 ? e->value : -e->value;
            free(e);
        }}
    return sum;
}}

"
        ),
        1 => format!(
            "static long {name}(long a, long b) {{
    char text[256], *out = text;
    for (int i = 0; i < {a}; i++) {{
        int c = 'a' + (int)((a + i * {b}) % 26 + 26) % 26;
        if (i % {b} == 0) *out++ = ' ';
        *out++ = (char)(i & 1 ? toupper(c) : c);
    }}
    *out = 0;
    long words = 0, inside = 0;
    for (char *p = text; *p; p++) {{
        switch (*p) {{
        case ' ': inside = 0; break;
        case 'A': case 'E': case 'I': words += {c}; inside = 1; break;
        default: words += !inside; inside = 1;
        }}
    }}
    return words * b;
}}

"
        ),
        2 => format!(
            "static long {name}(long a, long b) {{
    double m[{b} + 2][{b} + 2], det = 1;
    for (int i = 0; i < {b} + 2; i++)
        for (int j = 0; j < {b} + 2; j++) m[i][j] = (double)((a + i * {c} + j * j) % 17) + (i == j ? {a} : 0);
    for (int k = 0; k < {b} + 2; k++) {{
        if (m[k][k] == 0) return b;
        det *= m[k][k];
        for (int i = k + 1; i < {b} + 2; i++) {{
            double q = m[i][k] / m[k][k];
            for (int j = k; j < {b} + 2; j++) m[i][j] -= q * m[k][j];
        }}
    }}
    return det > 1e9 ? {c} : (long)det % 1000;
}}

"
        ),
        _ => format!(
            "static int compare_{name}(const void *x, const void *y) {{
    long a = *(const long *)x, b = *(const long *)y;
    return (a % {b} > b % {b}) - (a % {b} < b % {b});
}}

static long {name}(long a, long b) {{
    long v[{a}];
    for (int i = 0; i < {a}; i++) v[i] = (a * i + {c}) % 997 - b % 31;
    qsort(v, {a}, sizeof v[0], compare_{name});
    long low = 0, high = {a} - 1;
    while (low < high) {{
        long middle = (low + high) / 2;
        if (v[middle] < {c}) low = middle + 1; else high = middle;
    }}
    return v[low] + low * {b};
}}

"
        ),
    }
}
