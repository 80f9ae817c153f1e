//! What a slice starts from: the moment, and what is wanted there.

use super::Refusal;
use super::across::{name_of, tidy};
use super::carried::{Carried, Unnamed};
use super::lines::Origins;
use super::outputs::{WrittenByte, file_byte, written_byte};
use crate::case::{At, Place, is_from_outside};
use crate::cli::Slice as Options;
use crate::written::Written;
use iced_x86::{Decoder, DecoderOptions, OpKind, Register};
use image::{Inspector, LoadedImages};
use model::GuestAddr;
use model::log::Ending;
use model::serve::{Moment, State};
use recording::{Recording, UnitName};
use session::{Counted, Session};
use slice::insn::{Control, Maker, Place as Operand};
use slice::{Criterion, RegId};
use std::borrow::Cow;
use std::path::Path;
use trace::plan::{BlockPlan, Planner};

/// Steps within one execution of a line before it is taken as endless.
const MOST_STEPS: usize = 20_000;
const EXECUTABLE: u8 = 4;
const SIGABRT: u32 = 6;
/// Frames in which the program's own code is looked for.
const MOST_FRAMES: usize = 64;
/// Hardware numbers of the registers in the order of DWARF, and DWARF's number of the first vector register.
const GENERAL: [u8; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
const FIRST_VECTOR: u16 = 17;

/// Somebody who knows what was written, if that is asked for.
pub type Outputs<'a, 'w> = &'a dyn Fn() -> Result<Cow<'w, Written>, Refusal>;

/// Where a slice begins.
pub struct Start {
    pub moment: Moment,
    pub criterion: Criterion,
    /// In words: `the crash at a.c:12`.
    pub text: String,
    /// Variables whose dependences are not followed: memory and registers.
    pub pruned: (Vec<(u64, u64)>, Vec<RegId>),
    /// The address of what did not come to an end, whose line belongs to the answer.
    pub died: Option<u64>,
    /// Something was thrown there: what the program does behind it is no part of the failure.
    pub thrown: bool,
}

impl Start {
    pub fn new(moment: Moment, criterion: Criterion, text: String) -> Start {
        Start { moment, criterion, text, pruned: Default::default(), died: None, thrown: false }
    }
}

/// Everything that is needed to find it.
pub struct Finder<'a> {
    pub options: &'a Options,
    pub recording: &'a Recording,
    pub unit: UnitName,
    pub session: &'a mut Session,
    pub images: &'a image::Images,
    pub interrupted: &'a mut dyn FnMut() -> bool,
}

impl Finder<'_> {
    /// As [`Finder::find`], with what was written at hand.
    pub fn find_in(&mut self, written: &Written) -> Result<Start, Refusal> {
        self.find(&|| Ok(Cow::Borrowed(written)))
    }

    pub fn find<'w>(&mut self, outputs: Outputs<'_, 'w>) -> Result<Start, Refusal> {
        let o = self.options;
        let mut start = if let Some(text) = &o.output {
            self.output(text, outputs)?
        } else if o.crash {
            self.crash()?
        } else if o.hang {
            self.hang()?
        } else if o.exit {
            self.exit()?
        } else if let Some(place) = &o.at {
            self.place(place)?
        } else {
            self.end()?
        };
        start.pruned = self.pruned()?;
        Ok(start)
    }

    fn seek_end(&mut self) -> Result<(), Refusal> {
        self.session.seek_end(self.interrupted).map(drop).map_err(Refusal::internal)
    }

    /// The instruction that died.
    fn crash(&mut self) -> Result<Start, Refusal> {
        let end = self.recording.unit(&self.unit).ok().and_then(|u| u.end);
        let signal = match end {
            Some(e) if is_from_outside(&e) => {
                let name = session::signal_name(e.status as i32);
                return Err(Refusal::usage(format!(
                    "process {} did not crash, {name} ended it from outside: try --hang",
                    self.unit
                )));
            }
            Some(e) if e.ending == Ending::Signaled => e.status,
            _ => {
                return Err(Refusal::usage(format!(
                    "process {} did not crash: try --output, --exit, --hang or --at",
                    self.unit
                )));
            }
        };
        self.seek_end()?;
        let moment = self.session.moment();
        let name = session::signal_name(signal as i32);
        let text = |place: String| format!("the crash ({name}) at {place}");
        if !self.is_code(moment.pc) {
            return self.wild_jump(moment, &text);
        }
        let mut criterion = Criterion { control: true, ..Criterion::default() };
        // An abort is a decision of the program: what counts is how it came there, and who made it.
        if signal == SIGABRT {
            let caller = self.own_frame();
            let place = caller.map_or_else(|| self.locate(moment.pc), |pc| self.locate(pc));
            let start = Start::new(moment, criterion, text(place));
            return Ok(Start { died: Some(caller.unwrap_or(moment.pc)), ..start });
        }
        let place = self.locate(moment.pc);
        let mut bytes = [0; 15];
        let n = self.session.read(GuestAddr(moment.pc), &mut bytes).unwrap_or(0);
        self.uses_of(moment.pc, &bytes[..n], &mut criterion)?;
        Ok(Start { died: Some(moment.pc), ..Start::new(moment, criterion, text(place)) })
    }

    /// Where a run was when it was ended from outside: why was it still there?
    fn hang(&mut self) -> Result<Start, Refusal> {
        let end = self.recording.unit(&self.unit).ok().and_then(|u| u.end);
        if let Some(e) = end.filter(|e| !is_from_outside(e)) {
            let how = match e.ending {
                Ending::Exited => "exited: try --exit",
                Ending::Signaled => "crashed: try --crash",
                _ => "has no such end: try --at",
            };
            return Err(Refusal::usage(format!("process {} was not ended from outside, it {how}", self.unit)));
        }
        self.seek_end()?;
        let moment = self.session.moment();
        let here = self.own_frame().unwrap_or(moment.pc);
        let text = format!("the run's being at {} when it was ended from outside", self.locate(here));
        let criterion = Criterion { control: true, ..Criterion::default() };
        Ok(Start { died: Some(here), ..Start::new(moment, criterion, text) })
    }

    /// An address in the innermost function of the program's own code that is being executed: that of the call in it.
    fn own_frame(&self) -> Option<u64> {
        let thread = self.session.place().thread;
        let scene = self.session.scene(self.recording, self.images, thread).ok()?;
        let loaded = self.session.loaded(self.recording, self.images).ok()?;
        let names = super::original_paths(self.recording, &self.unit, &loaded);
        let mut origins = Origins::new(&loaded, &|n| names.get(n).cloned().flatten());
        let frames = image::backtrace(&scene, MOST_FRAMES).frames;
        frames.iter().map(|f| f.at.0).find(|at| origins.is_own(*at))
    }

    /// Can instructions be at this address?
    fn is_code(&self, pc: u64) -> bool {
        let maps = self.session.maps().unwrap_or_default();
        maps.is_empty() || maps.iter().any(|m| m.prot & EXECUTABLE != 0 && (m.start..m.end).contains(&pc))
    }

    /// Control went to where no code is: what counts is the instruction before, which led there, and where it had the
    /// address from.
    fn wild_jump(&mut self, moment: Moment, text: &dyn Fn(String) -> String) -> Result<Start, Refusal> {
        let thread = self.session.place().thread;
        self.session.step_back(thread, self.interrupted).map_err(Refusal::internal)?;
        let before = self.session.moment().pc;
        let place = self.locate(before);
        self.seek_end()?;
        let criterion = Criterion { instructions: vec![before], ..Criterion::default() };
        let text = format!("{}, which led to {:#x}", text(place), moment.pc);
        Ok(Start::new(moment, criterion, text))
    }

    /// What the instruction at `pc` would use.
    fn uses_of(&mut self, pc: u64, bytes: &[u8], criterion: &mut Criterion) -> Result<(), Refusal> {
        let insn = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
        if insn.is_invalid() {
            return Ok(());
        }
        let mut plan = BlockPlan::new();
        Planner::new().plan(&[insn], &mut plan);
        let made = Maker::default().insn(&insn, plan.accesses_of(0));
        let uses = made.parts.iter().flat_map(|p| &p.uses).chain(&made.decides);
        for u in uses {
            if let Operand::Reg(reg) = u.place {
                criterion.registers.push((reg, u.mask));
            }
        }
        let state = self.session.registers(self.session.place().thread).map_err(Refusal::internal)?;
        // A return to an address that no CPU accepts dies before it jumps.
        if made.control == Control::Return {
            criterion.memory.push((state.gpr[usize::from(RegId::RSP.0)], 8));
        }
        // Where the fault is not one of the operand itself (a division by it), what it holds counts.
        let operand = (0..insn.op_count()).find(|n| insn.op_kind(*n) == OpKind::Memory);
        let read = made.mem.iter().find(|m| m.read && m.size != 0);
        if let (Some(operand), Some(read)) = (operand, read)
            && let Some(at) = insn.virtual_address(operand, 0, |reg, _, _| value_of(&state, reg))
            && self.session.read(GuestAddr(at), &mut vec![0; read.size as usize]).unwrap_or(0) == read.size as usize
        {
            criterion.memory.push((at, u64::from(read.size)));
        }
        Ok(())
    }

    /// The exit status.
    fn exit(&mut self) -> Result<Start, Refusal> {
        self.seek_end()?;
        let criterion = Criterion { control: true, registers: vec![(RegId::RDI, 0xf)], ..Criterion::default() };
        let end = self.recording.unit(&self.unit).ok().and_then(|u| u.end);
        let status = match end {
            Some(e) if e.ending == Ending::Exited => e.status,
            Some(e) if e.ending == Ending::Signaled => {
                let name = session::signal_name(e.status as i32);
                return Err(Refusal::usage(format!(
                    "process {} did not exit, it died of {name}: try --crash",
                    self.unit
                )));
            }
            _ => return Err(Refusal::usage(format!("the recording does not hold the exit of process {}", self.unit))),
        };
        let text = format!("the exit status {status}");
        Ok(Start::new(self.session.moment(), criterion, text))
    }

    /// The end of the run, and what is named there.
    fn end(&mut self) -> Result<Start, Refusal> {
        self.seek_end()?;
        let mut criterion = Criterion::default();
        let text = self.named(&mut criterion)?;
        if criterion == Criterion::default() {
            return Err(Refusal::usage(
                "say what the slice starts from: --crash, --output N, --exit, --at PLACE, --var, --addr or --reg",
            ));
        }
        let text = format!("{text} at the end");
        Ok(Start::new(self.session.moment(), criterion, text))
    }

    /// A byte of a file that the process wrote.
    fn file_byte(&mut self, file: &str, offset: u64) -> Result<WrittenByte, Refusal> {
        let path = tidy(&crate::case::left::in_full(Path::new(file)));
        let (unit, recording) = (self.unit, self.recording);
        let mut name = |open: &Unnamed| match open.unit == unit {
            true => name_of(self.session, recording, open, self.interrupted),
            false => None,
        };
        let carried = Carried::gather(recording, &mut name).map_err(Refusal::internal)?;
        file_byte(&carried, recording, unit, &path, offset).map_err(Refusal::usage)
    }

    /// A byte that was written.
    fn output(&mut self, text: &str, outputs: Outputs<'_, '_>) -> Result<Start, Refusal> {
        let wrong = || Refusal::usage(format!("`{text}` is no output: write N, stdout:N, stderr:N, FILE:N or end"));
        if text == "end" {
            self.seek_end()?;
            let criterion = Criterion { control: true, ..Criterion::default() };
            let text = "the end of the output".to_owned();
            return Ok(Start::new(self.session.moment(), criterion, text));
        }
        let (name, n) = text.rsplit_once(':').unwrap_or(("stdout", text));
        let offset: usize = n.parse().map_err(|_| wrong())?;
        let (found, name) = match name {
            "stdout" | "stderr" => {
                let (stream, name) = if name == "stdout" { (1, "standard output") } else { (2, "standard error") };
                let found = written_byte(outputs()?.as_ref(), self.recording, self.unit, stream, offset);
                (found.map_err(Refusal::usage)?, name)
            }
            file => (self.file_byte(file, offset as u64)?, file),
        };
        self.session.seek(found.moment, self.interrupted).map_err(Refusal::internal)?;
        let byte = found.byte.map(|b| format!(" ({})", shown(b))).unwrap_or_default();
        let text = format!("byte {offset} of {name}{byte}");
        let mut criterion = Criterion::default();
        match found.address(|at, to| self.session.read(GuestAddr(at), to).unwrap_or(0) == to.len()) {
            Some(at) => criterion.memory.push((at, 1)),
            // The kernel moved it: only that it was written can be asked for.
            None => criterion.control = true,
        }
        Ok(Start::new(found.moment, criterion, text))
    }

    /// A place in the program.
    fn place(&mut self, text: &str) -> Result<Start, Refusal> {
        let at: At = text.parse().map_err(Refusal::usage)?;
        self.seek_end()?;
        let loaded = self.session.loaded(self.recording, self.images).map_err(Refusal::internal)?;
        let ranges = ranges_of(&loaded, &at.place).map_err(Refusal::usage)?;
        let starts: Vec<u64> = ranges.starts.clone();
        let n = match at.instance {
            Some(n) => n,
            None => {
                let counted = self.session.count(&starts, self.interrupted);
                let (_, all) = counted.and_then(Counted::complete).map_err(Refusal::internal)?;
                if all == 0 {
                    return Err(Refusal::usage(format!("{text} was not executed")));
                }
                all
            }
        };
        let sought = self.session.seek_instance(&starts, n, self.interrupted);
        sought.map_err(|e| Refusal::usage(format!("{text}: {e}")))?;
        let mut criterion = Criterion::default();
        let what = self.named(&mut criterion)?;
        let text = format!("{text}, execution {n}");
        if criterion != Criterion::default() {
            let text = format!("{what} at {text}");
            return Ok(Start::new(self.session.moment(), criterion, text));
        }
        let first = self.session.moment().pc;
        if !self.options.forward {
            self.pass_line(&ranges)?;
        }
        criterion.instructions = vec![first];
        criterion.instructions.extend(ranges.instructions(self.session));
        Ok(Start::new(self.session.moment(), criterion, text))
    }

    /// Goes to where the line is left, calls from it included.
    fn pass_line(&mut self, ranges: &LineRanges) -> Result<(), Refusal> {
        let thread = self.session.place().thread;
        for _ in 0..MOST_STEPS {
            let pc = self.session.moment().pc;
            let mut bytes = [0; 15];
            let n = self.session.read(GuestAddr(pc), &mut bytes).unwrap_or(0);
            let insn = Decoder::with_ip(64, &bytes[..n], pc, DecoderOptions::NONE).decode();
            self.session.step(thread, self.interrupted).map_err(Refusal::internal)?;
            if self.session.ended().is_some() {
                break;
            }
            let is_call =
                matches!(insn.flow_control(), iced_x86::FlowControl::Call | iced_x86::FlowControl::IndirectCall);
            if is_call && insn.mnemonic() != iced_x86::Mnemonic::Syscall {
                self.session.set_breakpoints(&[insn.next_ip()]);
                let stopped = self.session.forward(None, self.interrupted).map_err(Refusal::internal);
                self.session.set_breakpoints(&[]);
                stopped?;
                if self.session.ended().is_some() {
                    break;
                }
            }
            if !ranges.contains(self.session.moment().pc) {
                break;
            }
        }
        Ok(())
    }

    /// What `--var`, `--addr` and `--reg` name at the present moment.
    fn named(&mut self, criterion: &mut Criterion) -> Result<String, Refusal> {
        let o = self.options;
        let mut names = Vec::new();
        if let Some(expression) = &o.var {
            let (memory, registers) = self.variable(expression)?;
            criterion.memory.extend(memory);
            criterion.registers.extend(registers.into_iter().map(|r| (r, r.all())));
            names.push(expression.clone());
        }
        if let Some(text) = &o.addr {
            let (at, len) = text.split_once(':').unwrap_or((text, "8"));
            let at = at.strip_prefix("0x").and_then(|h| u64::from_str_radix(h, 16).ok());
            let len: Option<u64> = len.parse().ok().filter(|n| (1..=1 << 20).contains(n));
            let (Some(at), Some(len)) = (at, len) else {
                return Err(Refusal::usage(format!("`{text}` is no address: write 0xADDRESS or 0xADDRESS:LENGTH")));
            };
            criterion.memory.push((at, len));
            names.push(text.clone());
        }
        if let Some(name) = &o.reg {
            let reg = RegId::named(name.trim_start_matches(['$', '%']));
            let reg = reg.ok_or_else(|| Refusal::usage(format!("there is no register `{name}`")))?;
            criterion.registers.push((reg, reg.all()));
            names.push(name.clone());
        }
        Ok(names.join(", "))
    }

    /// Where an expression lies at the present moment.
    fn variable(&mut self, expression: &str) -> Result<Lies, Refusal> {
        let thread = self.session.place().thread;
        let scene = self.session.scene(self.recording, self.images, thread).map_err(Refusal::internal)?;
        let trace = image::backtrace(&scene, 64);
        let inspector = Inspector::in_backtrace(&scene, &trace.frames, 0, 0)
            .ok_or_else(|| Refusal::usage("there is no frame whose variables could be looked at"))?;
        let answer = inspector.evaluate(expression);
        let answer = answer.map_err(|e| Refusal::usage(format!("`{expression}` cannot be found: {e}")))?;
        match (answer.address, answer.size) {
            (Some(at), Some(size)) if size > 0 => Ok((vec![(at.0, size)], Vec::new())),
            _ if let Some(reg) = self.register_of(expression, &trace.frames) => Ok((Vec::new(), vec![reg])),
            _ => Err(Refusal::usage(format!(
                "`{expression}` has no place in memory here ({}): name a register with --reg, or another moment",
                answer.text
            ))),
        }
    }

    /// The register that a variable of the innermost frame is in.
    fn register_of(&self, name: &str, frames: &[image::StackFrame]) -> Option<RegId> {
        let frame = frames.first()?;
        let loaded = self.session.loaded(self.recording, self.images).ok()?;
        let cfa = frame.cfa.unwrap_or(GuestAddr(0));
        let holds = |dwarf: u16| {
            let what = image::Storage::Register(image::Register(dwarf));
            loaded.name_in_frame(frame.pc, cfa, what).as_deref() == Some(name)
        };
        let general = GENERAL.iter().enumerate().find(|(n, _)| holds(*n as u16)).map(|(_, reg)| RegId::gpr(*reg));
        general.or_else(|| (0..16).find(|n| holds(FIRST_VECTOR + n)).map(|n| RegId(16 + n as u8)))
    }

    /// What `--prune` names.
    fn pruned(&mut self) -> Result<Lies, Refusal> {
        let (mut memory, mut registers) = (Vec::new(), Vec::new());
        for name in &self.options.prune {
            match RegId::named(name) {
                Some(reg) => registers.push(reg),
                None => {
                    let (bytes, held) = self.variable(name)?;
                    memory.extend(bytes);
                    registers.extend(held);
                }
            }
        }
        Ok((memory, registers))
    }

    fn locate(&self, pc: u64) -> String {
        let loaded = self.session.loaded(self.recording, self.images).unwrap_or_default();
        let found = loaded.at(GuestAddr(pc)).map(|(_, image, at)| image.image.locate(at));
        match found.as_ref().and_then(|l| Some((l.short_file()?, l.line?))) {
            Some((file, line)) => format!("{}:{line}", file.display()),
            None => match found.and_then(|l| l.function) {
                Some(function) => function,
                None => format!("{pc:#x}"),
            },
        }
    }
}

/// A register as addresses use it.
fn value_of(state: &State, reg: Register) -> Option<u64> {
    match reg {
        Register::FS => Some(state.fs_base),
        Register::GS => Some(state.gs_base),
        r if r.is_segment_register() => Some(0),
        r if r.is_gpr64() => state.gpr.get(r.number()).copied(),
        r if r.is_gpr32() => state.gpr.get(r.number()).map(|v| v & 0xffff_ffff),
        _ => None,
    }
}

/// Memory and registers.
type Lies = (Vec<(u64, u64)>, Vec<RegId>);

fn shown(byte: u8) -> String {
    match byte {
        b'\n' => "a newline".into(),
        b if b.is_ascii_graphic() => format!("`{}`", char::from(b)),
        b => format!("{b:#04x}"),
    }
}

/// The code of a line, or one instruction.
pub struct LineRanges {
    /// Where executions begin.
    pub starts: Vec<u64>,
    ranges: Vec<(u64, u64)>,
}

impl LineRanges {
    pub fn contains(&self, pc: u64) -> bool {
        self.ranges.iter().any(|(a, b)| (*a..*b).contains(&pc))
    }

    /// Where its code lies, in the order of addresses.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// All addresses in it, instructions or not.
    pub fn addresses(&self) -> Vec<u64> {
        self.ranges.iter().flat_map(|(a, b)| *a..*b).collect()
    }

    /// All instructions in it.
    fn instructions(&self, session: &Session) -> Vec<u64> {
        let mut all = Vec::new();
        for (start, end) in &self.ranges {
            let mut bytes = vec![0; (end - start).min(1 << 16) as usize];
            let n = session.read(GuestAddr(*start), &mut bytes).unwrap_or(0);
            let decoder = Decoder::with_ip(64, &bytes[..n], *start, DecoderOptions::NONE);
            all.extend(decoder.into_iter().map(|i| i.ip()));
        }
        all
    }
}

/// The code of a place in any image of the process, the program first.
pub fn ranges_of(loaded: &LoadedImages, place: &Place) -> Result<LineRanges, String> {
    match place {
        Place::Offset(at) => {
            let program = loaded.get(0).ok_or("the program is not mapped")?;
            let start = program.bias.to_guest(image::ImageOffset(*at)).0;
            Ok(LineRanges { starts: vec![start], ranges: vec![(start, start + 1)] })
        }
        Place::Line(file, line) => {
            let mut next = None;
            for image in loaded.iter() {
                let spans = image.image.find_line(file, *line);
                let exact: Vec<_> = spans.iter().filter(|s| s.line == *line).collect();
                next = next.or(spans.first().map(|s| s.line));
                if exact.is_empty() {
                    continue;
                }
                let guest = |s: &image::LineSpan| (image.bias.to_guest(s.start).0, image.bias.to_guest(s.end).0);
                let mut spans: Vec<(u64, u64, bool)> =
                    exact.iter().map(|s| (guest(s).0, guest(s).1, s.statement)).collect();
                spans.sort_unstable();
                let ranges = spans.iter().map(|(start, end, _)| (*start, *end)).collect();
                return Ok(LineRanges { starts: entries(&spans), ranges });
            }
            let file = file.display();
            Err(match next {
                Some(next) => format!("{file}:{line} has no code; the next line that has is {file}:{next}"),
                None => format!("no image of the process has code from {file}:{line}"),
            })
        }
    }
}

/// Where executions of a line begin: at its statements that do not go on from the line's code before. Spans are sorted:
/// start, end, and whether the compiler says that a statement begins.
fn entries(spans: &[(u64, u64, bool)]) -> Vec<u64> {
    let goes_on = |n: usize| n > 0 && spans[n - 1].1 == spans[n].0;
    let starts = spans.iter().enumerate().filter(|(n, s)| s.2 && !goes_on(*n)).map(|(_, s)| s.0);
    let starts: Vec<u64> = starts.collect();
    match starts.is_empty() {
        true => spans.first().map(|s| s.0).into_iter().collect(),
        false => starts,
    }
}

#[cfg(test)]
mod tests {
    use super::entries;

    #[test]
    fn a_line_is_entered_where_its_code_does_not_go_on() {
        // A loop's beginning, and its step with the condition behind it.
        assert_eq!(entries(&[(0x10, 0x17, true), (0x40, 0x44, true), (0x44, 0x4a, true)]), [0x10, 0x40]);
        // Code that was moved away from its statement.
        assert_eq!(entries(&[(0x10, 0x17, true), (0x30, 0x33, false)]), [0x10]);
        assert_eq!(entries(&[(0x30, 0x33, false)]), [0x30]);
    }
}
