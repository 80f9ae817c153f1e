//! A window of a recording, traced: what the trace says is what single steps meet.

mod common;

use common::{CLEW, compile, folder};
use model::serve::Moment;
use recording::Recording;
use session::{EngineProgram, Replayer, Session};
use std::process::Command;
use std::sync::{Arc, Mutex};
use trace::event::Event;

#[test]
fn a_traced_window_has_the_instructions_that_steps_meet() {
    let place = folder("window");
    let program = compile("calls", &place);
    let path = place.join("recording");
    let status = Command::new(CLEW).args(["record", "-q", "-o"]).arg(&path).arg("--").arg(&program).status();
    assert!(status.is_ok());
    let recording = Recording::open(&path).expect("the recording can be read");
    let engine = EngineProgram::in_memory(clew::ENGINE).expect("the engine can be started");
    let replayer = Replayer { engine: &engine, recording: &recording };
    let unit = replayer.images()[0];
    let mut session = Session::open(&replayer, &unit).expect("the session opens");
    let mut never = || false;
    session.seek_tick(500, &mut never).expect("the recording is that long");
    let from = session.moment();
    // Stepped.
    let mut stepped = Vec::new();
    while stepped.len() < 2000 {
        stepped.push(session.moment().pc);
        session.step(0, &mut never).expect("a step can be made");
    }
    let to: Moment = session.moment();
    // Traced.
    let traced = Arc::new(Mutex::new(Vec::new()));
    let kept = traced.clone();
    let make = Box::new(move |_pid: u32| {
        let kept = kept.clone();
        Box::new(move |event: &Event| {
            if let Event::Insn(i) = event {
                kept.lock().expect("nobody panics with it").push(i.pc);
            }
        }) as Box<dyn trace::event::Sink + Send>
    });
    let window = session.window(from, to, session::Traces::Events(make), &mut never).expect("the window can be traced");
    assert_eq!(window.end.moment, to);
    assert!(window.totals.iter().all(|t| t.damage.is_none()), "{:?}", window.totals);
    let traced = traced.lock().expect("nobody panics with it");
    assert_eq!(traced.len(), stepped.len());
    assert_eq!(*traced, stepped);
    assert_eq!(session.moment(), to, "the session does not move");
    std::fs::remove_dir_all(place).expect("the folder goes");
}
