//! Everything that ran in a window, one instruction after the other, with the addresses it touched.
//!
//! For whoever wants to look at what a slice leaves out; slices themselves walk the arrays.

use trace::event::{Event, Mem};
use trace::format::Special;

use crate::insn::Insn;
use crate::window::{EVENTS, Window};

/// One execution of an instruction.
#[derive(Clone, Copy, Debug)]
pub struct Executed<'w> {
    /// Where it is in the window, as in [`crate::Node`].
    pub execution: u32,
    pub insn: u16,
    /// The segment of the window that it belongs to.
    pub segment: u32,
    pub thread: u32,
    pub code: &'w Insn,
    /// It is the dynamic linker's.
    pub given: bool,
    /// Lowest address and length of each of its accesses, in the order of [`Insn::mem`].
    pub touched: &'w [(u64, u64)],
    /// `false` for a part of a string instruction that was stopped and goes on later.
    pub complete: bool,
}

impl Window {
    /// Shows every execution to `each`, in order.
    pub fn each(&self, each: &mut dyn FnMut(&Executed<'_>)) {
        let (mut address, mut start, mut run, mut segment) = (0, 0, 0, 0);
        let mut thread = self.threads.0;
        let mut touched = Vec::new();
        for (execution, number) in self.blocks.iter().enumerate() {
            let execution = execution as u32;
            if number == EVENTS {
                let end = self.runs[run] as usize;
                run += 1;
                self.each_event(execution, &self.events[start..end], (&mut thread, &mut segment), each);
                address += self.events[start..end].iter().filter(|e| matches!(e, Event::Mem(_))).count();
                start = end;
                continue;
            }
            let code = &self.codes[number as usize];
            for (n, insn) in code.insns.iter().enumerate() {
                touched.clear();
                let at = code.accesses_of(n).map(|n| self.addresses.at(address + n));
                touched.extend(at.zip(&insn.mem).map(|(at, m)| (at, u64::from(m.size))));
                let (touched, insn) = (&touched[..], insn);
                let (given, segment) = (code.given, segment + code.segment_of(n as u16) as u32);
                each(&Executed {
                    execution,
                    insn: n as u16,
                    segment,
                    thread,
                    code: insn,
                    given,
                    touched,
                    complete: true,
                });
            }
            address += code.accesses();
            segment += code.segments.len() as u32;
        }
    }

    fn each_event(
        &self,
        execution: u32,
        events: &[Event],
        (thread, segment): (&mut u32, &mut u32),
        each: &mut dyn FnMut(&Executed<'_>),
    ) {
        for (n, event) in events.iter().enumerate() {
            match event {
                Event::Insn(i) | Event::RepPart(i) => {
                    let mems = events[n + 1..].iter().map_while(|e| match e {
                        Event::Mem(m) => Some(m),
                        _ => None,
                    });
                    let touched: Vec<_> = mems.map(Mem::range).collect();
                    let block = &self.codes[i.block as usize];
                    let own = *segment;
                    *segment += 1;
                    let Some(code) = block.insns.get(usize::from(i.index)) else { continue };
                    let complete = matches!(event, Event::Insn(_));
                    let (touched, given, thread) = (&touched[..], block.given, *thread);
                    let insn = n as u16;
                    each(&Executed { execution, insn, segment: own, thread, code, given, touched, complete });
                }
                Event::Special(Special::Syscall { .. }) => *segment += 1,
                Event::Special(Special::Thread { tid, .. }) => *thread = *tid,
                Event::Mem(_) | Event::Special(_) => {}
            }
        }
    }
}
