//! Files that a trial leaves behind, told to a host that has asked for them by name.
//!
//! A file is told as the trial has it at its end: its contents, or that it was removed. One that it neither wrote nor removed
//! is not told. When names are asked for, files that are opened as recorded get their names in the world, too.
//!
//! May miss: what was written through a mapping, by `ftruncate`, or by the kernel from one file to another before the world
//! took over; what a child of the trial's own wrote into a file that its parent had not opened.

use super::{trial, world};
use crate::replay::replay;
use crate::replay::serve::send;
use crate::state::Engine;
use crate::sys;
use alloc::vec::Vec;
use model::serve::Answer;

const PREAD: u64 = 17;
/// Bytes that fit into a packet.
const PIECE: usize = 32 << 10;

/// Has anybody asked for files?
pub fn is_asked(e: &Engine) -> bool {
    !e.prepared.wanted.is_empty()
}

/// Tells what has become of the files that were asked for.
pub fn tell(e: &mut Engine) {
    let wanted: Vec<Vec<u8>> = core::mem::take(&mut e.prepared.wanted);
    for (n, path) in wanted.iter().enumerate() {
        let file = match e.trial.is_some() {
            true => world::overlaid(e, path),
            false => as_replayed(e, path),
        };
        match file {
            Some(Some(fd)) => contents(e, n as u32, fd),
            Some(None) => send(e, &Answer::Left { file: n as u32, bytes: None }),
            None => {}
        }
    }
}

/// A file of a trial that has never left the log: a copy of it, or that it was removed.
fn as_replayed(e: &mut Engine, path: &[u8]) -> Option<Option<i64>> {
    let left = replay(e).descriptors.take_left(path)?;
    Some(left.map(|written| world::restored(e, &written)))
}

fn contents(e: &mut Engine, file: u32, fd: i64) {
    let most = match e.in_step() {
        Some(s) => s.limits.output,
        None => trial(e).limits.output,
    };
    let mut at = 0u64;
    loop {
        let mut piece = alloc::vec![0u8; PIECE];
        // SAFETY: the kernel writes into our own buffer, from our own file.
        let n = unsafe { sys::raw(PREAD, [fd as u64, piece.as_mut_ptr() as u64, PIECE as u64, at, 0, 0]) };
        piece.truncate(n.max(0) as usize);
        let last = piece.is_empty() || at >= most;
        if !last || at == 0 {
            // One that is empty is told, too.
            at += piece.len() as u64;
            send(e, &Answer::Left { file, bytes: Some(piece) });
        }
        if last {
            return;
        }
    }
}
