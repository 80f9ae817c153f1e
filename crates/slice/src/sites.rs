//! From a place in a window to the code around it: which instruction ends a segment, and who called.

use trace::event::Event;
use trace::format::Special;

use crate::insn::Control;
use crate::window::{BEFORE, EVENTS, Window};

/// Answers where segments of a window are.
pub struct Sites<'w> {
    window: &'w Window,
    /// For each execution its first segment.
    first: Vec<u32>,
    /// For each run of events its execution.
    runs: Vec<u32>,
}

impl<'w> Sites<'w> {
    pub fn new(window: &'w Window) -> Sites<'w> {
        let mut first = Vec::with_capacity(window.blocks.len());
        let (mut next, mut start, mut runs) = (0, 0, Vec::new());
        for (execution, number) in window.blocks.iter().enumerate() {
            first.push(next);
            if number == EVENTS {
                let end = window.runs[runs.len()] as usize;
                runs.push(execution as u32);
                next += window.events[start..end].iter().filter(|e| has_segment(e)).count() as u32;
                start = end;
            } else {
                next += window.codes[number as usize].segments.len() as u32;
            }
        }
        Sites { window, first, runs }
    }

    /// The last instruction of a segment as nodes name it: execution, and number of the instruction in it.
    pub fn place(&self, segment: u32) -> Option<(u32, u16)> {
        let execution = self.first.partition_point(|f| *f <= segment).checked_sub(1)?;
        let number = self.window.blocks.at(execution);
        let in_it = (segment - self.first[execution]) as usize;
        if number != EVENTS {
            let code = &self.window.codes[number as usize];
            let end = code.segments.get(in_it + 1).map_or(code.insns.len(), |s| usize::from(*s));
            return Some((execution as u32, end.checked_sub(1)? as u16));
        }
        let run = self.runs.binary_search(&(execution as u32)).ok()?;
        let start = if run == 0 { 0 } else { self.window.runs[run - 1] as usize };
        let events = &self.window.events[start..self.window.runs[run] as usize];
        let event = events.iter().enumerate().filter(|(_, e)| has_segment(e)).nth(in_it)?.0;
        Some((execution as u32, event as u16))
    }

    /// The address of the last instruction of a segment.
    pub fn pc(&self, segment: u32) -> Option<u64> {
        let execution = self.first.partition_point(|f| *f <= segment).checked_sub(1)?;
        let number = self.window.blocks.at(execution);
        let in_it = (segment - self.first[execution]) as usize;
        if number != EVENTS {
            let code = &self.window.codes[number as usize];
            let end = code.segments.get(in_it + 1).map_or(code.insns.len(), |s| usize::from(*s));
            return code.insns.get(end.checked_sub(1)?).map(|i| i.pc);
        }
        let run = self.runs.binary_search(&(execution as u32)).ok()?;
        let start = if run == 0 { 0 } else { self.window.runs[run - 1] as usize };
        let events = &self.window.events[start..self.window.runs[run] as usize];
        match events.iter().filter(|e| has_segment(e)).nth(in_it)? {
            Event::Insn(i) | Event::RepPart(i) => Some(i.pc),
            Event::Special(Special::Syscall { pc, .. }) => Some(*pc),
            _ => None,
        }
    }

    /// The segment of an instruction, given as nodes name it; nothing for what is not in a plain block.
    pub fn segment(&self, execution: u32, insn: u16) -> Option<u32> {
        let first = *self.first.get(execution as usize)?;
        let code = self.window.codes.get(self.window.blocks.at(execution as usize) as usize)?;
        Some(first + code.segment_of(insn) as u32)
    }

    /// The call at whose end a segment stands, if it is one.
    pub fn call(&self, segment: u32) -> Option<u64> {
        let (execution, insn) = self.place(segment)?;
        let code = self.window.codes.get(self.window.blocks.at(execution as usize) as usize)?;
        code.insns.get(usize::from(insn)).filter(|i| i.control == Control::Call).map(|i| i.pc)
    }

    /// The segment whose end decided that this one ran, if any did.
    pub fn parent(&self, segment: u32) -> Option<u32> {
        self.window.parents.get(segment).filter(|p| *p < BEFORE)
    }
}

fn has_segment(event: &Event) -> bool {
    matches!(event, Event::Insn(_) | Event::RepPart(_) | Event::Special(Special::Syscall { .. }))
}
