//! Where in a window certain instructions ran, in order: to relate executions in the window to those that others count.

use std::collections::HashMap;
use trace::event::Event;

use crate::window::{EVENTS, Window};

/// One execution of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instance {
    /// As in [`crate::Node`].
    pub execution: u32,
    pub insn: u16,
    /// The memory it wrote, if it wrote any: address and length.
    pub wrote: Option<(u64, u64)>,
}

impl Window {
    /// Executions of the instructions at these addresses, in order.
    pub fn instances(&self, pcs: &[u64]) -> HashMap<u64, Vec<Instance>> {
        let mut found: HashMap<u64, Vec<Instance>> = pcs.iter().map(|pc| (*pc, Vec::new())).collect();
        let per_code: Vec<Vec<u16>> = self
            .codes
            .iter()
            .map(|c| (0..c.insns.len()).filter(|n| found.contains_key(&c.insns[*n].pc)).map(|n| n as u16).collect())
            .collect();
        let (mut address, mut run, mut start) = (0, 0, 0);
        for (execution, number) in self.blocks.iter().enumerate() {
            let execution = execution as u32;
            if number == EVENTS {
                let end = self.runs[run] as usize;
                run += 1;
                self.among_events(execution, &self.events[start..end], &mut found);
                address += self.events[start..end].iter().filter(|e| matches!(e, Event::Mem(_))).count();
                start = end;
                continue;
            }
            let code = &self.codes[number as usize];
            for &insn in &per_code[number as usize] {
                let made = &code.insns[usize::from(insn)];
                let first = address + code.accesses_of(usize::from(insn)).start;
                let written = made.mem.iter().enumerate().find(|(_, m)| m.write && m.size != 0);
                let wrote = written.map(|(k, m)| (self.addresses.at(first + k), u64::from(m.size)));
                if let Some(list) = found.get_mut(&made.pc) {
                    list.push(Instance { execution, insn, wrote });
                }
            }
            address += code.accesses();
        }
        found
    }

    fn among_events(&self, execution: u32, events: &[Event], found: &mut HashMap<u64, Vec<Instance>>) {
        for (n, event) in events.iter().enumerate() {
            let Event::Insn(i) = event else { continue };
            let Some(made) = self.codes[i.block as usize].insns.get(usize::from(i.index)) else { continue };
            if let Some(list) = found.get_mut(&made.pc) {
                let mems = events[n + 1..].iter().map_while(|e| match e {
                    Event::Mem(m) => Some(m.range()),
                    _ => None,
                });
                let wrote = made.mem.iter().zip(mems).find(|(m, _)| m.write).map(|(_, range)| range);
                list.push(Instance { execution, insn: n as u16, wrote });
            }
        }
    }
}
