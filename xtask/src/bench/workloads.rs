//! The programs that are measured, with inputs generated here.

use std::{fs, path::PathBuf, process::Command};

use crate::{agree::inputs, guests::Stage, random::Random};

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Workload {
    pub name: String,
    pub argv: Vec<String>,
    pub stdin: Option<PathBuf>,
    /// Counts in the geometric mean: spends its time computing, not starting.
    pub cpu_bound: bool,
}

const PYTHON: &str = "
import json, re
def work(n):
    total, table = 0, {}
    for i in range(n):
        key = 'k%d' % (i % 1000)
        table[key] = table.get(key, 0) + i * i % 7
        total += len(key) + (i ^ (i >> 3))
    text = json.dumps(table)
    return total + len(re.findall(r'\"k(\\d)', text)) + sum(sorted(json.loads(text).values()))
print(work(int(__import__('sys').argv[1])))
";
const LUA: &str = "
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
local n, t, s = tonumber(arg[1]), {}, {}
for i = 1, n do t[i % 1000] = (t[i % 1000] or 0) + i % 7; if i % 50 == 0 then s[#s + 1] = ('x' .. i):upper():rep(2) end end
table.sort(s)
print(fib(24), #s, s[1], t[5])
";

/// Every workload, smaller by the factor `shrink`.
pub fn all(stage: &Stage, shrink: u64) -> Result<Vec<Workload>, String> {
    let dir = stage.scratch.path().join("workloads");
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        fs::create_dir_all(&dir).and_then(|()| fs::write(&path, bytes)).map_err(|e| e.to_string())?;
        Ok::<_, String>(path.display().to_string())
    };
    let size = |n: u64| (n / shrink).max(1);
    let text = write("text", inputs::text(&mut Random::new(11), size(6_000_000) as usize).as_bytes())?;
    let binary = write("binary", &inputs::binary(&mut Random::new(12), size(5_000_000) as usize))?;
    let python = write("work.py", PYTHON.as_bytes())?;
    let lua = write("work.lua", LUA.as_bytes())?;
    let sql = PathBuf::from(write("work.sql", sql(size(150_000)).as_bytes())?);
    let bin = |name: &str| stage.bin().join(name).display().to_string();
    let row = |name: &str, argv: &[&str]| Workload {
        name: name.to_owned(),
        argv: argv.iter().map(|w| (*w).to_owned()).collect(),
        stdin: None,
        cpu_bound: true,
    };
    let (rounds, calls) = (size(20_000).to_string(), size(2000).to_string());
    let (python_n, lua_n) = (size(1_500_000).to_string(), size(2_000_000).to_string());
    let mut rows = vec![
        row("gzip", &["/usr/bin/gzip", "-9", "-n", "-c", &text]),
        row("bzip2", &["/usr/bin/bzip2", "-c", &binary]),
        row("branchy loop", &[&bin("branchy"), &rounds]),
        row("C++ calls", &[&bin("calls"), &calls]),
        row("CPython", &["/usr/bin/python3", &python, &python_n]),
        row("Lua", &["/usr/bin/lua5.4", &lua, &lua_n]),
        Workload { stdin: Some(sql), ..row("sqlite3", &["/usr/bin/sqlite3", ":memory:"]) },
    ];
    if let Some(compiler) = compiler() {
        let source = preprocessed(stage, &dir)?;
        rows.push(Workload {
            cpu_bound: false,
            ..row("cc1", &[&compiler, "-quiet", "-O2", &source, "-o", "/dev/null"])
        });
    }
    rows.push(Workload { cpu_bound: false, ..row("hello", &[&bin("hello-pie")]) });
    Ok(rows)
}

/// Threads that share memory under locks, for `bench slice`: under Clew they take turns, so it is in no other table.
pub fn threads(stage: &Stage, shrink: u64) -> Workload {
    let program = stage.bin().join("bench-workers").display().to_string();
    let rounds = (60_000 / shrink).max(1).to_string();
    Workload { name: "threads".to_owned(), argv: vec![program, rounds], stdin: None, cpu_bound: true }
}

fn sql(n: u64) -> String {
    format!(
        "create table t(id integer primary key, g text, v integer);
with recursive c(n) as (select 1 union all select n + 1 from c where n < {n}) insert into t select n, 'g' || (n % 97), n * 7919 % 10007 from c;
create index i on t(g, v);
select g, count(*), sum(v), max(v) from t group by g order by 3 desc limit 5;
select count(*) from t a join t b on b.id = a.v where a.g = 'g5' and b.g like 'g1%';
select sum(r) from (select rank() over (partition by g order by v) r from t);
"
    )
}

/// The compiler proper, which does the work of gcc.
fn compiler() -> Option<String> {
    let output = Command::new("gcc").arg("-print-prog-name=cc1").output().ok()?;
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    path.starts_with('/').then_some(path)
}

/// A preprocessed C file of moderate size.
fn preprocessed(stage: &Stage, dir: &std::path::Path) -> Result<String, String> {
    let path = dir.join("preprocessed.i");
    let output = Command::new("gcc")
        .args(["-E", "-P"])
        .arg(stage.inputs().join("program/main.c"))
        .arg(stage.inputs().join("program/list.c"))
        .output()
        .map_err(|e| format!("gcc: {e}"))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Two translation units in one file would define things twice: keep the first.
    if let Some(second) = text.match_indices("struct list { int value;").nth(1) {
        text.truncate(second.0);
        let end = text.rfind("return 0;\n}").map_or(text.len(), |i| i + "return 0;\n}".len());
        text.truncate(end);
    }
    for i in 0..40 {
        text.push_str(&format!(
            "\nstatic int helper{i}(int *a, int n) {{ int s = {i}; for (int i = 0; i < n; i++) {{ if (a[i] % 3 == {}) s += a[i] * {i}; else s ^= a[(i + {i}) % n]; }} return s; }}\nint use{i}(int *a, int n) {{ return helper{i}(a, n) + helper{i}(a, n / 2); }}\n",
            i % 3
        ));
    }
    fs::write(&path, text).map_err(|e| e.to_string())?;
    Ok(path.display().to_string())
}
