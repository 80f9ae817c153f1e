//! A verified replay notices when the guest's state is not what it was: one bit of a register or of memory is changed at a
//! random moment, and the replay must say so within a stated distance, unless the bit did not matter any more.
//!
//! Each change ends in one of these ways:
//!
//! ```text
//! reported     the replay says that it differs, so many records and ticks behind the change
//! overwritten  the guest ends with all registers and all its writable memory as they were
//! unread       it ends so but for the changed bit itself, which is still there
//! inert        copies of the bit lie elsewhere too, in memory that nothing read but to copy it
//! ```
//! That the last three hold is shown without the replay's own comparison: by the complete state at the end and by what
//! was written to the standard streams. An inert change has changed neither the number of branches, nor any register at
//! any system call, nor anything that a call read: those the replay has compared.

use model::GuestAddr;
use model::log::{CallRecord, Kind};
use model::serve::{Answer, MapInfo, Request, Until, Why};
use model::wire::{Disturb, Replayed, Report};
use recording::{Recording, UnitName};
use session::{Live, ReplayOptions, Replayer, Session, read_from, registers_of, threads_of};
use std::collections::BTreeMap;
use testkit::compile::guest;
use testkit::random::Random;
use testkit::recorded::record;
use testkit::sample;
use testkit::under_clew::engine;

/// One thread and several, calls, recursion, heap, string instructions, exceptions.
const GUESTS: [&str; 5] = ["recursion.c", "strings.c", "threads.c", "exceptions.cpp", "varargs.c"];
const CHANGES_PER_GUEST: usize = 20;
const SAMPLE_PER_GUEST: usize = 5;
const SEED: u64 = 0x7e51;
/// A change that matters is reported within so many records and so many ticks of these guests: docs/agreement.md.
const RECORDS: u64 = 400;
const TICKS: u64 = 200_000;
/// Bytes around the stack pointer of which one is changed.
const NEAR_STACK: u64 = 512;
/// Of each mapping only so much is looked at.
const PART: u64 = 8 << 20;

struct Subject {
    name: &'static str,
    recording: Recording,
    unit: UnitName,
    last_tick: u64,
    /// What an undisturbed replay ends with, and what it writes.
    end: State,
    output: Vec<(u8, Vec<u8>)>,
}

/// Registers by thread and memory by address, at the end.
#[derive(PartialEq, Eq, Default)]
struct State {
    registers: BTreeMap<u32, ([u64; 16], Vec<u8>)>,
    memory: BTreeMap<u64, Vec<u8>>,
}

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Reported { records: u64, ticks: u64 },
    Overwritten,
    Unread,
    Inert,
}

impl Subject {
    fn new(name: &'static str) -> Subject {
        let program = guest(&format!("oracle/{name}")).expect("these guests run on any CPU").program;
        let recording = record(&program, Some(1));
        let unit = recording.units()[0].name;
        let last_tick = recording.units()[0].end.expect("it ended").tick;
        let mut subject = Subject { name, recording, unit, last_tick, end: State::default(), output: Vec::new() };
        let (replayed, end) = subject.end_of(None);
        assert_eq!(replayed.difference, None, "{name} replays");
        subject.end = end;
        subject.output = subject.output_of(None);
        subject
    }

    fn replayer(&self) -> Replayer<'_> {
        Replayer { engine: engine(), recording: &self.recording }
    }

    /// Replays with comparison; how that ended, and the state then.
    fn end_of(&self, disturb: Option<Disturb>) -> (Replayed, State) {
        let options = ReplayOptions { serve: true, verify: true, disturb, ..ReplayOptions::default() };
        let launch = self.replayer().launch(&self.unit, &options).expect("the recording is whole");
        let live = Live::start(launch).expect("the engine starts");
        match live.ask_long(&Request::Run(Until::default()), &mut || false).expect("it answers") {
            Answer::Stopped { why: Why::End(replayed), .. } => (replayed, State::of(&live)),
            other => panic!("{}: {other:?}", self.name),
        }
    }

    fn output_of(&self, disturb: Option<Disturb>) -> Vec<(u8, Vec<u8>)> {
        let options = ReplayOptions { emit: true, disturb, ..ReplayOptions::default() };
        let mut output = Vec::new();
        let results = self.replayer().run(&self.unit, &options, |packet| {
            if let Report::Output { stream, bytes, .. } = &packet.report {
                output.push((*stream, bytes.clone()));
            }
        });
        results.expect("the engine is not at fault");
        output
    }

    /// Draws a moment and a bit that the guest has then; also the number of the next record there.
    fn draw(&self, random: &mut Random, session: &mut Session) -> (Disturb, u64) {
        let tick = random.below(self.last_tick);
        session.seek_tick(tick, &mut || false).expect("the tick exists");
        let place = session.place().clone();
        let (tick, bit) = (place.moment.tick, random.below(64) as u8);
        let disturb = match random.below(4) {
            0 | 1 => Disturb { tick, register: random.below(16) as u8, addr: 0, bit },
            2 => {
                let sp = session.registers(place.thread).expect("the thread is there").gpr[4];
                Disturb { tick, register: 16, addr: sp - 128 + random.below(NEAR_STACK), bit: bit & 7 }
            }
            _ => Disturb { tick, register: 16, addr: self.used_byte(random, session), bit: bit & 7 },
        };
        (disturb, place.record)
    }

    /// The address of a byte that is not zero, in memory that the guest may write.
    fn used_byte(&self, random: &mut Random, session: &Session) -> u64 {
        let maps: Vec<MapInfo> = session.maps().expect("it answers").into_iter().filter(is_own).collect();
        loop {
            let map = random.pick(&maps);
            let len = (map.end - map.start).min(PART);
            let addr = map.start + random.below(len);
            let mut byte = [0];
            if session.read(GuestAddr(addr), &mut byte).expect("it answers") == 1 && byte[0] != 0 {
                return addr;
            }
        }
    }

    fn fate(&self, disturb: Disturb, record: u64) -> Result<Fate, String> {
        let (replayed, end) = self.end_of(Some(disturb));
        if replayed.difference.is_some() {
            let (records, ticks) = (replayed.records.saturating_sub(record), replayed.tick - disturb.tick);
            return Ok(Fate::Reported { records, ticks });
        }
        if self.output_of(Some(disturb)) != self.output {
            return Err("other output, and nothing is reported".into());
        }
        Ok(match self.end.differences(&end).as_slice() {
            [] => Fate::Overwritten,
            [one] if *one == Where::of(&disturb) => Fate::Unread,
            [Where::Register(r)] if *r == disturb.register => Fate::Unread,
            _ => Fate::Inert,
        })
    }
}

fn is_own(map: &MapInfo) -> bool {
    map.prot & 3 == 3
}

/// Where two states differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Where {
    /// A register by hardware number; 17 is one of the others.
    Register(u8),
    Byte(u64),
    /// Something is mapped in one of them only.
    Mapping,
}

impl Where {
    fn of(disturb: &Disturb) -> Where {
        match disturb.register {
            16 => Where::Byte(disturb.addr),
            n => Where::Register(n),
        }
    }
}

impl State {
    fn of(live: &Live) -> State {
        let mut state = State::default();
        for thread in threads_of(live).expect("it answers") {
            let registers = registers_of(live, thread.number).expect("the thread is there");
            state.registers.insert(thread.number, (registers.gpr, registers.extended));
        }
        let maps = match live.ask(&Request::Maps).expect("it answers") {
            Answer::Maps(maps) => maps,
            other => panic!("{other:?}"),
        };
        for map in maps.into_iter().filter(is_own) {
            let mut bytes = vec![0; (map.end - map.start).min(PART) as usize];
            let n = read_from(live, GuestAddr(map.start), &mut bytes).expect("it answers");
            bytes.truncate(n);
            state.memory.insert(map.start, bytes);
        }
        state
    }

    fn differences(&self, other: &State) -> Vec<Where> {
        let mut all = Vec::new();
        for (thread, (gpr, extended)) in &self.registers {
            match other.registers.get(thread) {
                Some((gpr2, extended2)) => {
                    all.extend((0..16).filter(|n| gpr[*n] != gpr2[*n]).map(|n| Where::Register(n as u8)));
                    all.extend((extended != extended2).then_some(Where::Register(17)));
                }
                None => all.push(Where::Mapping),
            }
        }
        for (start, bytes) in &self.memory {
            match other.memory.get(start) {
                Some(others) if others.len() == bytes.len() => {
                    let differ = bytes.iter().zip(others).enumerate().filter(|(_, (a, b))| a != b);
                    all.extend(differ.map(|(n, _)| Where::Byte(start + n as u64)));
                }
                _ => all.push(Where::Mapping),
            }
        }
        all
    }
}

#[test]
fn every_change_is_reported_or_did_not_matter() {
    let (mut wrong, mut done) = (Vec::new(), 0);
    let mut fates = BTreeMap::<&str, usize>::new();
    let mut farthest = (0, 0);
    for (g, name) in GUESTS.into_iter().enumerate() {
        let subject = Subject::new(name);
        let mut session = Session::open(&subject.replayer(), &subject.unit).expect("the session opens");
        for case in sample::indices(CHANGES_PER_GUEST, SAMPLE_PER_GUEST) {
            let mut random = Random::new(SEED ^ (g as u64) << 32 ^ (case as u64) << 16);
            let (disturb, record) = subject.draw(&mut random, &mut session);
            done += 1;
            let fate = subject.fate(disturb, record);
            println!("{name} {case}: {disturb:x?} at record {record}: {fate:?}");
            match fate {
                Ok(fate) => {
                    let word = match fate {
                        Fate::Reported { records, ticks } => {
                            farthest = (farthest.0.max(records), farthest.1.max(ticks));
                            if records > RECORDS || ticks > TICKS {
                                wrong.push(format!("{name} {case}: {disturb:x?} is reported late: {fate:?}"));
                            }
                            "reported"
                        }
                        Fate::Overwritten => "overwritten",
                        Fate::Unread => "never read",
                        Fate::Inert => "copied only",
                    };
                    *fates.entry(word).or_default() += 1;
                }
                Err(why) => wrong.push(format!("{name} {case}: {disturb:x?}: {why}")),
            }
        }
    }
    let all = GUESTS.len() * CHANGES_PER_GUEST;
    let told: Vec<String> = fates.iter().map(|(word, n)| format!("{n} {word}")).collect();
    let (records, ticks) = farthest;
    sample::say(&format!(
        "verify: {done} of {all} changes of one bit: {}; reported within {records} records and {ticks} ticks; {} wrong",
        told.join(", "),
        wrong.len()
    ));
    assert!(wrong.is_empty(), "{} of {done}:\n{}", wrong.len(), wrong.join("\n"));
}

/// The control: an undisturbed replay of the same recordings reports nothing, and its end is always the same.
#[test]
fn nothing_is_reported_when_nothing_was_changed() {
    for name in GUESTS {
        let subject = Subject::new(name);
        let (replayed, end) = subject.end_of(None);
        assert_eq!(replayed.difference, None, "{name}");
        assert_eq!(subject.end.differences(&end), [], "{name}");
        assert_eq!(subject.output_of(None), subject.output, "{name}");
        let log = subject.recording.log(&subject.unit).expect("the log is whole");
        let calls = log.records().filter(|(_, r)| r.kind == Kind::Call && CallRecord::decode(r.payload).is_some());
        assert!(calls.count() > 5, "{name} makes calls");
    }
}
