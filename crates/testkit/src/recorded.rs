//! Recordings of guests, made as `clew record` makes them.

use crate::scratch_file;
use crate::under_clew::engine;
use model::wire::Config;
use recording::{Folder, Meta, Recording};
use session::{Event, Launch, Recorder, Stdio};
use std::path::Path;

/// Records a program without arguments, environment and input; its output is not shown. With a seed its schedule and
/// clocks are those of the seed.
pub fn record(program: &Path, seed: Option<u64>) -> Recording {
    let place = scratch_file("recording");
    let meta = Meta { command: vec![program.into()], seed, ..Meta::default() };
    let folder = Folder::create(&place, &meta).unwrap_or_else(|e| panic!("no folder for the recording: {e}"));
    let recorder = Recorder::new(folder);
    let mut launch = Launch::new(engine(), program, [program]);
    launch.config = Config { seed, ..Config::default() };
    launch.stdio = [Stdio::Null, Stdio::Null, Stdio::Inherit];
    recorder.equip(&mut launch, None).unwrap_or_else(|e| panic!("cannot record: {e}"));
    let mut running = launch.start().unwrap_or_else(|e| panic!("cannot start the engine: {e}"));
    while let Some(event) = running.next() {
        match event {
            Event::Report(packet) => recorder.hear(&packet),
            Event::Closed => break,
            _ => {}
        }
    }
    drop(running);
    recorder.finish(&meta).unwrap_or_else(|e| panic!("the recording cannot be finished: {e}"));
    Recording::open(&place).unwrap_or_else(|e| panic!("the recording cannot be read: {e}"))
}
