//! What a session offers beyond running: probes, alterations, coverage and traces, with the real engine.

mod common;

use common::{compile, folder};
use image::Image;
use model::wire::{Action, Config, Probe, Site, TraceSink};
use model::{GuestAddr, Mode};
use session::{EngineProgram, Launch, Outcome, Run, SignalState, Stdio, Traces};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::time::Duration;
use trace::event::Event;

/// What the guest of these tests returns when nothing is altered: 2 * (1 + 2 + 3 + 4 + 5).
const SUM: i32 = 30;

fn engine() -> &'static EngineProgram {
    static ENGINE: OnceLock<EngineProgram> = OnceLock::new();
    ENGINE.get_or_init(|| EngineProgram::in_memory(clew::ENGINE).expect("the engine fits in memory"))
}

/// The guest and the place of the function it calls five times.
fn guest(test: &str) -> (PathBuf, Site) {
    let program = compile("calls", &folder(test));
    let image = Image::open(&program).expect("it is a program");
    let twice = image.symbols().find("twice").first().expect("it has the function").start.0;
    (program, Site::Executable(twice))
}

fn run(program: &Path, config: Config, traces: Traces) -> Run {
    let launch = Launch {
        config,
        traces,
        stdio: [Stdio::Null, Stdio::Null, Stdio::Inherit],
        signals: SignalState::of_rust_main(),
        ..Launch::new(engine(), program, ["calls"])
    };
    let running = launch.start().expect("the engine starts");
    running.wait_first_within(Duration::from_secs(60)).expect("it ends in time")
}

fn with_probe(site: Site, instance: u64, action: Action) -> Config {
    Config { probes: vec![Probe { site, instance, action }], ..Config::default() }
}

#[test]
fn a_probe_reports_every_instance_or_just_one() {
    let (program, site) = guest("probe");
    let first_arguments = |instance| {
        let run = run(&program, with_probe(site, instance, Action::Report), Traces::Totals);
        assert_eq!(run.outcome, Outcome::Exited(SUM));
        run.hits().map(|(_, _, _, registers)| registers.gpr[7]).collect::<Vec<_>>()
    };
    assert_eq!(first_arguments(0), [1, 2, 3, 4, 5]);
    assert_eq!(first_arguments(3), [3]);
    assert_eq!(first_arguments(6), [0; 0]);
}

#[test]
fn a_register_can_be_set_at_one_instance() {
    let (program, site) = guest("set");
    let run = run(&program, with_probe(site, 4, Action::SetRegister(7, 104)), Traces::Totals);
    assert_eq!(run.outcome, Outcome::Exited(SUM + 200));
}

#[test]
fn coverage_accounts_for_every_instruction() {
    let (program, site) = guest("coverage");
    let config = Config { mode: Mode::Count, stats: true, coverage: true, ..Config::default() };
    let run = run(&program, config, Traces::Totals);
    let counted: u64 = run.counts().map(|c| c.executed * u64::from(c.instructions)).sum();
    assert_eq!(counted, run.total().instructions);
    let Site::Executable(offset) = site else { panic!() };
    let twice = GuestAddr(run.images[0].bias + offset);
    let executed: u64 = run.counts().filter(|c| c.pc == twice).map(|c| c.executed).sum();
    assert_eq!(executed, 5);
}

#[test]
fn both_decoders_see_the_same_trace() {
    let (program, site) = guest("trace");
    let config = Config { mode: Mode::Trace, seed: Some(1), stats: true, sink: TraceSink::Ring, ..Config::default() };
    let both = run(&program, config.clone(), Traces::Both);
    assert_eq!(both.traces[0].damage, None);
    let (sender, events) = channel();
    let traces = Traces::Events(Box::new(move |_| {
        let sender = sender.clone();
        Box::new(move |event: &Event| sender.send(*event).expect("the receiver outlives the run"))
    }));
    let exact = run(&program, config, traces);
    // The checksums of two runs differ, because thread ids are part of the stream.
    let figures = |r: &Run| (r.traces[0].instructions, r.traces[0].accesses, r.traces[0].damage.clone());
    assert_eq!(figures(&both), figures(&exact));
    let Site::Executable(offset) = site else { panic!() };
    let twice = exact.images[0].bias + offset;
    let calls = events.iter().filter(|e| matches!(e, Event::Insn(i) if i.pc == twice)).count();
    assert_eq!(calls, 5);
}

#[test]
fn tracing_can_begin_in_the_middle_of_a_run() {
    let (program, site) = guest("window");
    let mut config = with_probe(site, 2, Action::SwitchMode(Mode::Trace));
    config.sink = TraceSink::Ring;
    config.probes.push(Probe { site, instance: 4, action: Action::SwitchMode(Mode::None) });
    let run = run(&program, config, Traces::Totals);
    assert_eq!(run.outcome, Outcome::Exited(SUM));
    let window = &run.traces[0];
    assert_eq!(window.damage, None);
    assert!((10..200).contains(&window.instructions), "two calls and the loop around them: {window:?}");
}

#[test]
fn many_sessions_can_run_at_once() {
    let (program, _) = guest("parallel");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for mode in [Mode::None, Mode::Count, Mode::Trace] {
                    let config = Config { mode, sink: TraceSink::Ring, ..Config::default() };
                    assert_eq!(run(&program, config, Traces::Totals).outcome, Outcome::Exited(SUM));
                }
            });
        }
    });
}
