//! Inputs that the cases and benchmarks work on, generated so that nothing large is stored and every machine has the
//! same bytes.

use std::{fmt::Write as _, fs, io, path::Path};

use crate::random::Random;

const SYLLABLES: [&str; 24] = [
    "clew", "thread", "ing", "ed", "la", "by", "rin", "th", "ma", "ze", "ro", "ot", "ca", "use", "re", "play", "tra",
    "ce", "no", "on", "sta", "ck", "er", "ly",
];

/// Fills `dir` with the inputs of the agreement cases.
pub fn write_case_inputs(dir: &Path) -> io::Result<()> {
    let mut random = Random::new(0x0c1e_0001);
    fs::create_dir_all(dir.join("tree/a/deep/er"))?;
    fs::create_dir_all(dir.join("tree/b"))?;
    fs::write(dir.join("text.txt"), text(&mut random, 150_000))?;
    fs::write(dir.join("words.txt"), lines(3000, |_| word(&mut random)))?;
    fs::write(dir.join("numbers.txt"), lines(4000, |_| format!("{}", random.below(10_000_000))))?;
    // sort starts a second thread only for more than 128 Ki lines.
    fs::write(dir.join("many.txt"), lines(290_000, |_| format!("{}", random.below(1_000_000))))?;
    fs::write(dir.join("table.csv"), lines(4000, |i| format!("{i},g{},{}.5", random.below(23), random.below(900))))?;
    fs::write(dir.join("data.json"), json(&mut random))?;
    fs::write(dir.join("binary.bin"), binary(&mut random, 250_000))?;
    for (name, size) in [("a/one.txt", 100), ("a/two.txt", 5000), ("a/deep/er/three.txt", 700), ("b/four.txt", 40)] {
        fs::write(dir.join("tree").join(name), text(&mut random, size))?;
    }
    fs::write(dir.join("tree/b/five.bin"), binary(&mut random, 3000))?;
    write_program(&dir.join("program"))
}

/// About `size` bytes of words in lines.
pub fn text(random: &mut Random, size: usize) -> String {
    let mut out = String::with_capacity(size + 100);
    let mut column = 0;
    while out.len() < size {
        let w = word(random);
        column += w.len() + 1;
        out.push_str(&w);
        if column > 70 {
            out.push('\n');
            column = 0;
        } else {
            out.push(' ');
        }
    }
    out.push('\n');
    out
}

/// Bytes that compress to about a half.
pub fn binary(random: &mut Random, size: usize) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(size + 64);
    while out.len() < size {
        if out.len() > 300 && random.below(3) > 0 {
            let from = out.len() - 1 - random.below(299) as usize;
            let n = 3 + random.below(30) as usize;
            for i in 0..n {
                let byte = out[from + i];
                out.push(byte);
            }
        } else {
            for _ in 0..8 {
                out.push(random.below(256) as u8);
            }
        }
    }
    out.truncate(size);
    out
}

fn word(random: &mut Random) -> String {
    (0..1 + random.below(3)).map(|_| SYLLABLES[random.below(SYLLABLES.len() as u64) as usize]).collect()
}

fn lines(n: usize, mut line: impl FnMut(usize) -> String) -> String {
    (0..n).map(|i| line(i) + "\n").collect()
}

fn json(random: &mut Random) -> String {
    let mut out = String::from("{\"items\": [\n");
    for i in 0..800 {
        let comma = if i == 799 { "" } else { "," };
        let (a, b, c) = (word(random), word(random), word(random));
        writeln!(
            out,
            "  {{\"name\": \"{a}\", \"value\": {}, \"tags\": [\"{b}\", \"{c}\"], \"ok\": {}}}{comma}",
            i * 3,
            i % 2 == 0
        )
        .expect("writing to a string");
    }
    out + "]}\n"
}

/// A small C program of several files, with its makefile.
fn write_program(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let mut makefile = String::from("CFLAGS = -O2 -g0 -Wall\nOBJECTS = main.o list.o");
    let mut calls = String::new();
    let mut declarations = String::new();
    for i in 0..8 {
        let source = format!(
            "int stage{i}(int x) {{\n    int s = 0;\n    for (int j = 0; j < x; j++) s = s * {} + (j ^ {i});\n    return s;\n}}\n",
            31 + i
        );
        fs::write(dir.join(format!("stage{i}.c")), source)?;
        write!(makefile, " stage{i}.o").expect("writing to a string");
        writeln!(calls, "    total += stage{i}(n + {i});").expect("writing to a string");
        writeln!(declarations, "int stage{i}(int x);").expect("writing to a string");
    }
    makefile.push_str("\n\nprogram: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\n\n$(OBJECTS): list.h\n");
    fs::write(dir.join("Makefile"), makefile)?;
    fs::write(
        dir.join("list.h"),
        "struct list { int value; struct list *next; };\nstruct list *push(struct list *l, int v);\nint sum(const struct list *l);\n",
    )?;
    fs::write(
        dir.join("list.c"),
        "#include <stdlib.h>\n#include \"list.h\"\n\nstruct list *push(struct list *l, int v) {\n    struct list *n = malloc(sizeof *n);\n    n->value = v;\n    n->next = l;\n    return n;\n}\n\nint sum(const struct list *l) {\n    int s = 0;\n    for (; l; l = l->next) s += l->value;\n    return s;\n}\n",
    )?;
    fs::write(
        dir.join("main.c"),
        format!(
            "#include <stdio.h>\n#include <stdlib.h>\n#include \"list.h\"\n\n{declarations}\nint main(int argc, char **argv) {{\n    int n = argc > 1 ? atoi(argv[1]) : 5, total = 0;\n{calls}    struct list *l = NULL;\n    for (int i = 0; i < n; i++) l = push(l, i * i);\n    printf(\"%d %d\\n\", total, sum(l));\n    return 0;\n}}\n"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_inputs_do_not_change() {
        let first = |seed| (text(&mut Random::new(seed), 200), binary(&mut Random::new(seed), 400));
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
        assert_eq!(first(1).1.len(), 400);
    }
}
