//! What remains of a guest tree when it has gone: how it ended and everything it said.

use crate::running::{Ended, Event};
use model::GuestAddr;
use model::wire::{BlockCount, Crash, Packet, Registers, Report, Stats};

/// A finished run.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// The first process.
    pub pid: u32,
    pub outcome: Outcome,
    /// Process images in the order they started.
    pub images: Vec<Image>,
    /// Everything else the engines said, in order.
    pub reports: Vec<Packet>,
    /// Traces in the order they were read to their ends.
    pub traces: Vec<TraceTotals>,
    /// What went wrong between host and engine without ending the run.
    pub troubles: Vec<String>,
}

/// How the first process ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Exited(i32),
    /// It died of a signal; the crash is there when the engine saw it coming.
    Signaled {
        signal: i32,
        crash: Option<Box<Crash>>,
    },
    /// It could not be loaded; the status is what a shell would give.
    NotLoaded {
        status: u8,
        message: String,
    },
    /// The engine is wrong.
    EngineFault {
        message: String,
        pc: GuestAddr,
    },
    /// It did something that cannot be followed.
    Lost {
        message: String,
        pc: GuestAddr,
    },
    /// It ended, but its status was taken by something else.
    Unknown,
}

/// One process image: from a program's start to its end or to the next `execve`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    pub pid: u32,
    /// Empty for a forked child, which goes on with its parent's.
    pub exe: String,
    pub bias: u64,
    /// There when statistics were asked for and the image came to its end in an orderly way.
    pub stats: Option<Stats>,
}

/// What one ring held.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TraceTotals {
    pub pid: u32,
    /// Guest instructions executed while tracing.
    pub instructions: u64,
    /// Memory accesses of those.
    pub accesses: u64,
    pub bytes: u64,
    pub buffers: u64,
    /// Depends on every instruction and address and on their order; the same for both decoders.
    pub checksum: u64,
    /// Why reading stopped early, if it did.
    pub damage: Option<String>,
}

impl Run {
    /// Probe hits as (probe, thread, tick, registers).
    pub fn hits(&self) -> impl Iterator<Item = (u32, u32, u64, &Registers)> {
        self.reports.iter().filter_map(|p| match &p.report {
            Report::ProbeHit { probe, tid, tick, registers } => Some((*probe, *tid, *tick, registers)),
            _ => None,
        })
    }

    /// Execution counts of blocks, of all processes.
    pub fn counts(&self) -> impl Iterator<Item = &BlockCount> {
        self.reports.iter().flat_map(|p| match &p.report {
            Report::Counts(counts) => counts.as_slice(),
            _ => &[],
        })
    }

    /// Named degradations.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.reports.iter().filter_map(|p| match &p.report {
            Report::Note { message, .. } => Some(message.as_str()),
            _ => None,
        })
    }

    /// The sum over all images; `schedule` and `mode` are those of the first.
    pub fn total(&self) -> Stats {
        let mut all = self.images.iter().filter_map(|i| i.stats);
        let first = all.next().unwrap_or_default();
        all.fold(first, |sum, s| add(&sum, &s))
    }
}

fn add(a: &Stats, b: &Stats) -> Stats {
    Stats {
        mode: a.mode,
        blocks: a.blocks + b.blocks,
        translated_instructions: a.translated_instructions + b.translated_instructions,
        translation_ns: a.translation_ns + b.translation_ns,
        cache_bytes: a.cache_bytes + b.cache_bytes,
        exits: a.exits + b.exits,
        syscalls: a.syscalls + b.syscalls,
        signals: a.signals + b.signals,
        switches: a.switches + b.switches,
        flushes: a.flushes + b.flushes,
        invalidated: a.invalidated + b.invalidated,
        ticks: a.ticks + b.ticks,
        instructions: a.instructions + b.instructions,
        conditional_branches: a.conditional_branches + b.conditional_branches,
        trace_bytes: a.trace_bytes + b.trace_bytes,
        schedule: a.schedule,
        threads: a.threads + b.threads,
    }
}

/// Builds a [`Run`] from events.
#[derive(Debug)]
pub struct Gathering {
    run: Run,
    ended: Ended,
    crash: Option<Box<Crash>>,
}

impl Gathering {
    pub fn new(pid: u32) -> Gathering {
        let run = Run {
            pid,
            outcome: Outcome::Unknown,
            images: Vec::new(),
            reports: Vec::new(),
            traces: Vec::new(),
            troubles: Vec::new(),
        };
        Gathering { run, ended: Ended::Unknown, crash: None }
    }

    pub fn take(&mut self, event: Event) {
        match event {
            Event::Report(packet) => self.report(packet),
            Event::Garbled => self.run.troubles.push("the engine sent a message that does not parse".into()),
            Event::Trace(totals) => self.run.traces.push(totals),
            Event::NoTrace { pid, error } => {
                self.run.troubles.push(format!("the trace of process {pid} cannot be read: {error}"));
            }
            Event::Ended(ended) => self.ended = ended,
            Event::Stopped(_) | Event::Closed => {}
        }
    }

    fn report(&mut self, packet: Packet) {
        let first = packet.pid == self.run.pid;
        match &packet.report {
            Report::Started { exe, bias } => {
                let image = Image { pid: packet.pid, exe: exe.clone(), bias: *bias, stats: None };
                return self.run.images.push(image);
            }
            Report::Stats(stats) => return self.stats(packet.pid, *stats),
            Report::Crash(crash) if first => self.crash = Some(crash.clone()),
            // The first of these is the cause; what follows it may be its consequence.
            Report::EngineFault { message, pc } if first => {
                self.decide(Outcome::EngineFault { message: message.clone(), pc: *pc });
            }
            Report::Lost { message, pc } if first => self.decide(Outcome::Lost { message: message.clone(), pc: *pc }),
            Report::NotLoaded { status, message } if first => {
                self.decide(Outcome::NotLoaded { status: *status, message: message.clone() });
            }
            _ => {}
        }
        self.run.reports.push(packet);
    }

    fn decide(&mut self, outcome: Outcome) {
        if self.run.outcome == Outcome::Unknown {
            self.run.outcome = outcome;
        }
    }

    fn stats(&mut self, pid: u32, stats: Stats) {
        match self.run.images.iter_mut().rev().find(|i| i.pid == pid && i.stats.is_none()) {
            Some(image) => image.stats = Some(stats),
            // A forked child never started an image of its own.
            None => self.run.images.push(Image { pid, exe: String::new(), bias: 0, stats: Some(stats) }),
        }
    }

    pub fn finish(mut self) -> Run {
        let crash = self.crash.take();
        self.decide(match self.ended {
            Ended::Exited(code) => Outcome::Exited(code),
            Ended::Signaled(signal) => Outcome::Signaled { signal, crash },
            Ended::Unknown => Outcome::Unknown,
        });
        self.run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_outcome(reports: &[(u32, Report)], ended: Ended, expected: Outcome) {
        let mut gathering = Gathering::new(7);
        for (pid, report) in reports {
            gathering.take(Event::Report(Packet { pid: *pid, report: report.clone() }));
        }
        gathering.take(Event::Ended(ended));
        assert_eq!(gathering.finish().outcome, expected);
    }

    fn fault(message: &str) -> Report {
        Report::EngineFault { message: message.into(), pc: GuestAddr(1) }
    }

    #[test]
    fn the_wait_status_decides_when_the_engine_has_nothing_to_say() {
        check_outcome(&[], Ended::Exited(3), Outcome::Exited(3));
        check_outcome(&[], Ended::Signaled(9), Outcome::Signaled { signal: 9, crash: None });
        check_outcome(&[], Ended::Unknown, Outcome::Unknown);
    }

    #[test]
    fn an_engine_fault_of_the_first_process_outranks_its_status() {
        let expected = Outcome::EngineFault { message: "a".into(), pc: GuestAddr(1) };
        check_outcome(&[(7, fault("a")), (7, fault("b"))], Ended::Signaled(6), expected);
        check_outcome(&[(8, fault("a"))], Ended::Exited(0), Outcome::Exited(0));
    }

    #[test]
    fn a_program_that_was_not_loaded_keeps_its_status() {
        let report = Report::NotLoaded { status: 126, message: "no".into() };
        check_outcome(&[(7, report)], Ended::Exited(126), Outcome::NotLoaded { status: 126, message: "no".into() });
    }

    #[test]
    fn statistics_go_to_the_image_that_ended_and_add_up() {
        let mut gathering = Gathering::new(7);
        let started = |exe: &str| Report::Started { exe: exe.into(), bias: 0 };
        let stats = |ticks| Report::Stats(Stats { ticks, ..Stats::default() });
        for (pid, report) in [(7, started("a")), (7, stats(1)), (7, started("b")), (8, stats(10)), (7, stats(100))] {
            gathering.take(Event::Report(Packet { pid, report }));
        }
        let run = gathering.finish();
        let seen: Vec<_> = run.images.iter().map(|i| (i.pid, i.exe.as_str(), i.stats.map(|s| s.ticks))).collect();
        assert_eq!(seen, [(7, "a", Some(1)), (7, "b", Some(100)), (8, "", Some(10))]);
        assert_eq!(run.total().ticks, 111);
    }
}
