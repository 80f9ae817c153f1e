//! Altered runs that a host stays with: stopping and looking must change nothing, and the same changes lead to the same run.

mod common;

use common::compile;
use common::place::Place;
use model::serve::{Alteration, Moment, Request, TrialEnd, TrialLimits, Until, Why};
use recording::Recording;
use session::{EngineProgram, Held, HeldStop, Replayer, Session};

const LIMITS: TrialLimits = TrialLimits { ticks: 50_000_000, memory: 1 << 30, output: 1 << 20, belt: true };
/// Branches of the program that are switched, spread over its run.
const TRIED: usize = 12;

/// Records a guest of `tests/guests` that ends well, and looks at the recording.
fn with_recorded(guest: &str, look: impl FnOnce(&mut Session, &str)) {
    let place = Place::new(&format!("held-{guest}"));
    let program = compile(guest, &place.folder);
    place.record(&[program], 0);
    let recording = Recording::open(&place.home.join("latest")).expect("the recording opens");
    let engine = EngineProgram::in_memory(clew::ENGINE).expect("there is an engine");
    let unit = recording.units().first().expect("a process");
    let replayer = Replayer { engine: &engine, recording: &recording };
    look(&mut Session::open(&replayer, &unit.name).expect("it opens"), &unit.start.program);
    place.done();
}

/// What a run came to: how it ended, when, and what it wrote.
type Came = (TrialEnd, Moment, Vec<(u8, Vec<u8>)>);

fn came(held: &mut Held, end: TrialEnd) -> Came {
    let mut output: Vec<(u8, Vec<u8>)> = Vec::new();
    for (stream, bytes) in held.take_output() {
        match output.last_mut() {
            Some((last, all)) if *last == stream => all.extend(bytes),
            _ => output.push((stream, bytes)),
        }
    }
    (end, held.place().moment, output)
}

/// Runs to the end, stopped every so many ticks if that is said.
fn run(held: &mut Held, every: Option<u64>) -> Came {
    loop {
        let moment = every.map(|ticks| Moment { tick: held.place().moment.tick + ticks, pc: 0 });
        match held.run(Until { moment, ..Until::default() }, &mut || false).expect("it runs") {
            HeldStop::Ended(end) => return came(held, end),
            HeldStop::Stopped { why: Why::Reached | Why::Passed, .. } if every.is_some() => {}
            other => panic!("stopped by {other:?} at {}", held.place().moment),
        }
    }
}

/// Executions of branches in the program's own code, spread over its run.
fn branches(session: &mut Session, program: &str) -> Vec<Moment> {
    let maps = session.maps().expect("there are mappings");
    let code: Vec<(u64, u64)> =
        maps.iter().filter(|m| m.key == program && m.prot & 4 != 0).map(|m| (m.start, m.end)).collect();
    let (list, _) = session.predicates(&code, 100_000, &mut || false).expect("it runs");
    assert!(!list.is_empty(), "branches were executed");
    list.iter().step_by(list.len().div_ceil(TRIED)).map(|p| p.moment).collect()
}

/// Looking changes nothing, with threads and without.
#[test]
fn an_altered_run_is_the_same_however_often_it_is_stopped() {
    for guest in ["switches", "jump", "handler"] {
        with_recorded(guest, |session, program| {
            for moment in branches(session, program) {
                let mut altered = || {
                    let mut held = session.hold(moment, LIMITS).expect("it begins");
                    held.change(&Request::Alter(Alteration::Flip)).expect("there is a branch");
                    held
                };
                let straight = run(&mut altered(), None);
                for ticks in [1, 13, 1000] {
                    assert_eq!(run(&mut altered(), Some(ticks)), straight, "{guest} at {moment}, every {ticks} ticks");
                }
            }
        });
    }
}

#[test]
fn a_run_with_nothing_altered_ends_as_recorded_and_can_be_asked_then() {
    with_recorded("switches", |session, _| {
        session.seek_end(&mut || false).expect("there is an end");
        let end = session.moment();
        let start = session.start_moment();
        for from in [start, Moment { tick: end.tick / 2, pc: 0 }] {
            if from != start {
                session.seek_tick(from.tick, &mut || false).expect("the tick exists");
            }
            let from = if from == start { start } else { session.moment() };
            let mut held = session.hold(from, LIMITS).expect("it begins");
            let (ended, at, _) = run(&mut held, None);
            assert_eq!((ended, at.tick), (TrialEnd::Exited(0), end.tick));
            assert!(!held.maps().expect("it answers").is_empty());
            assert!(held.change(&Request::Alter(Alteration::Flip)).is_err(), "it is over");
            assert_eq!(run(&mut held, None).0, TrialEnd::Exited(0), "it says so again");
        }
    });
}
