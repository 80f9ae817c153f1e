//! Answers as bytes.

use super::{Answer, Collected, MapInfo, Place, Predicate, ThreadInfo, TrialEnd, Why};
use crate::wire::{Reader, Writer};
use alloc::vec::Vec;

impl Answer {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        match self {
            Answer::Done => w.u8(0),
            Answer::Stopped { why, place, collected } => {
                w.u8(1);
                w.why(why);
                w.place(place);
                w.u64(collected.breakpoints);
                w.option(collected.last_breakpoint.as_ref(), Writer::place);
                w.option(collected.last_change, |w, (a, b)| {
                    w.moment(a);
                    w.moment(b);
                });
                w.u32(collected.steps.len() as u32);
                collected.steps.iter().for_each(|p| w.place(p));
            }
            Answer::Registers(s) => {
                w.u8(2);
                w.state(s);
            }
            Answer::Bytes(b) => {
                w.u8(3);
                w.bytes(b);
            }
            Answer::Threads(list) => {
                w.u8(4);
                w.u32(list.len() as u32);
                for t in list {
                    w.u32(t.number);
                    w.u32(t.tid);
                    w.option(t.in_call, Writer::u32);
                    w.option(t.left, Writer::moment);
                }
            }
            Answer::Maps(list) => {
                w.u8(5);
                w.u32(list.len() as u32);
                for m in list {
                    w.u64(m.start);
                    w.u64(m.end);
                    w.u8(m.prot);
                    w.u8(m.shared as u8);
                    w.u64(m.offset);
                    w.str(&m.key);
                }
            }
            Answer::Forked(pid) => {
                w.u8(6);
                w.u32(*pid);
            }
            Answer::Output { stream, bytes } => {
                w.u8(7);
                w.u8(*stream);
                w.bytes(bytes);
            }
            Answer::Ended { end, ticks } => {
                w.u8(8);
                w.trial_end(end);
                w.u64(*ticks);
            }
            Answer::Refused(why) => {
                w.u8(9);
                w.str(why);
            }
            Answer::Predicates { list, total } => {
                w.u8(10);
                w.u32(list.len() as u32);
                for p in list {
                    w.moment(p.moment);
                    w.u64(p.instance);
                    w.u8(p.taken as u8);
                    w.u64(p.to);
                }
                w.u64(*total);
            }
            Answer::Left { file, bytes } => {
                w.u8(12);
                w.u32(*file);
                w.option(bytes.as_ref(), |w, bytes| w.bytes(bytes));
            }
            Answer::Child(pid) => {
                w.u8(11);
                w.u32(*pid);
            }
            Answer::Looked(number, bytes) => {
                w.u8(13);
                w.u32(*number);
                w.bytes(bytes);
            }
        }
        w.0
    }

    pub fn decode(bytes: &[u8]) -> Option<Answer> {
        let mut r = Reader(bytes);
        Some(match r.u8()? {
            0 => Answer::Done,
            1 => Answer::Stopped {
                why: r.why()?,
                place: r.place()?,
                collected: Collected {
                    breakpoints: r.u64()?,
                    last_breakpoint: r.option(Reader::place)?,
                    last_change: r.option(|r| Some((r.moment()?, r.moment()?)))?,
                    steps: r.list(Reader::place)?,
                },
            },
            2 => Answer::Registers(r.state()?),
            3 => Answer::Bytes(r.bytes()?.to_vec()),
            4 => Answer::Threads(r.list(|r| {
                let (number, tid) = (r.u32()?, r.u32()?);
                Some(ThreadInfo { number, tid, in_call: r.option(|r| r.u32())?, left: r.option(Reader::moment)? })
            })?),
            5 => Answer::Maps(r.list(|r| {
                Some(MapInfo {
                    start: r.u64()?,
                    end: r.u64()?,
                    prot: r.u8()?,
                    shared: r.u8()? != 0,
                    offset: r.u64()?,
                    key: r.str()?,
                })
            })?),
            6 => Answer::Forked(r.u32()?),
            7 => Answer::Output { stream: r.u8()?, bytes: r.bytes()?.to_vec() },
            8 => Answer::Ended { end: r.trial_end()?, ticks: r.u64()? },
            9 => Answer::Refused(r.str()?),
            10 => Answer::Predicates {
                list: r.list(|r| {
                    let (moment, instance) = (r.moment()?, r.u64()?);
                    Some(Predicate { moment, instance, taken: r.u8()? != 0, to: r.u64()? })
                })?,
                total: r.u64()?,
            },
            11 => Answer::Child(r.u32()?),
            12 => Answer::Left { file: r.u32()?, bytes: r.option(|r| Some(r.bytes()?.to_vec()))? },
            13 => Answer::Looked(r.u32()?, r.bytes()?.to_vec()),
            _ => return None,
        })
    }
}

impl Writer {
    fn place(&mut self, p: &Place) {
        self.moment(p.moment);
        self.u64(p.record);
        self.u32(p.thread);
    }
    fn why(&mut self, why: &Why) {
        match why {
            Why::Reached => self.u8(0),
            Why::Passed => self.u8(1),
            Why::Breakpoint => self.u8(2),
            Why::Changed { since } => {
                self.u8(3);
                self.moment(*since);
            }
            Why::End(r) => {
                self.u8(4);
                self.replayed(r);
            }
            Why::Interrupted => self.u8(5),
        }
    }
    fn trial_end(&mut self, end: &TrialEnd) {
        match end {
            TrialEnd::Exited(status) => {
                self.u8(0);
                self.u32(*status);
            }
            TrialEnd::Signaled { signal, moment, addr } => {
                self.u8(1);
                self.u32(*signal);
                self.moment(*moment);
                self.u64(*addr);
            }
            TrialEnd::RanAway => self.u8(2),
            TrialEnd::Deadlocked => self.u8(3),
            TrialEnd::OutOfMemory => self.u8(4),
            TrialEnd::Lost(why) => {
                self.u8(5);
                self.str(why);
            }
            TrialEnd::Waits(why) => {
                self.u8(6);
                self.str(why);
            }
        }
    }
}

impl Reader<'_> {
    fn place(&mut self) -> Option<Place> {
        Some(Place { moment: self.moment()?, record: self.u64()?, thread: self.u32()? })
    }
    fn why(&mut self) -> Option<Why> {
        Some(match self.u8()? {
            0 => Why::Reached,
            1 => Why::Passed,
            2 => Why::Breakpoint,
            3 => Why::Changed { since: self.moment()? },
            4 => Why::End(self.replayed()?),
            5 => Why::Interrupted,
            _ => return None,
        })
    }
    fn trial_end(&mut self) -> Option<TrialEnd> {
        Some(match self.u8()? {
            0 => TrialEnd::Exited(self.u32()?),
            1 => TrialEnd::Signaled { signal: self.u32()?, moment: self.moment()?, addr: self.u64()? },
            2 => TrialEnd::RanAway,
            3 => TrialEnd::Deadlocked,
            4 => TrialEnd::OutOfMemory,
            5 => TrialEnd::Lost(self.str()?),
            6 => TrialEnd::Waits(self.str()?),
            _ => return None,
        })
    }
}
