//! Reading the statistics that `clew run --stats --json` prints.

use serde_json::Value;

/// The figures of a run that the suites compare.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunStats {
    pub instructions: u64,
    pub ticks: u64,
    pub switches: u64,
    pub schedule: String,
    pub trace_instructions: u64,
    pub trace_accesses: u64,
}

/// Finds the line of JSON among what else was written to standard error.
pub fn read(stderr: &[u8]) -> Option<RunStats> {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().rev().find(|line| line.starts_with("{\"") && line.contains("\"clew\""))?;
    let all: Value = serde_json::from_str(line).ok()?;
    let total = &all["total"];
    Some(RunStats {
        instructions: total["instructions"].as_u64()?,
        ticks: total["ticks"].as_u64().unwrap_or(0),
        switches: total["switches"].as_u64()?,
        schedule: total["schedule"].as_str()?.to_owned(),
        trace_instructions: all["trace"]["instructions"].as_u64().unwrap_or(0),
        trace_accesses: all["trace"]["accesses"].as_u64().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistics_are_found_behind_other_output() {
        let text =
            b"warning\n{\"clew\":1,\"total\":{\"instructions\":5,\"ticks\":2,\"switches\":1,\"schedule\":\"ab\"}}\n";
        let s = read(text).expect("statistics");
        assert_eq!((s.instructions, s.ticks, s.switches, s.schedule.as_str()), (5, 2, 1, "ab"));
        assert_eq!(read(b"nothing"), None);
    }
}
