//! What can be left out: pieces of code that are entered at one address and behind which execution goes on at another.
//!
//! ```text
//! statement   adjoining code of one source line ─▶ a jump at its end, else what stands behind it
//! its jump    all of that, with such a jump     ─▶ what stands behind it
//! call        one instruction                   ─▶ the next one              registers stay as they are
//! function    at its first instruction          ─▶ its caller                registers stay as they are
//! ```
//! The jump at the end of a statement may be its own (`return 3`, `n++; break`) or not (it leads around an `else`), and the
//! code does not tell which: the statement is left out both without it and with it.
//! Refused are pieces behind which the stack would not be as the code expects it (what opens or closes a frame), returns,
//! and lines that decide where execution goes on, which is what `clew switch` is for.
//!
//! Guarantees: the stack pointer is the same whether a piece is executed or left out.
//! May miss: a statement whose code the compiler has spread over several places is several pieces.

use crate::case::Code;
use iced_x86::{Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use image::{Bias, Image, ImageOffset, LineRow};
use model::GuestAddr;

/// Bytes of an instruction, at most.
const LONGEST: u64 = 15;

/// Code that can be left out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Piece {
    /// Where it is entered.
    pub start: u64,
    pub behind: Behind,
    pub what: What,
}

/// Where execution goes on without it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Behind {
    At(u64),
    InCaller,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum What {
    /// All code of one line that lies together, but for a jump at its end.
    Statement,
    /// With the jump at its end.
    StatementAndJump,
    /// One call; of which function, if that is known.
    Call(Option<String>),
    /// One instruction of a line that does more.
    Instruction,
    /// A whole function; its name.
    Function(String),
}

/// Finds pieces in a program's code.
pub struct Pieces<'a> {
    code: &'a Code,
    image: &'a Image,
    bias: Bias,
}

impl<'a> Pieces<'a> {
    /// Nothing where the program's file cannot be read.
    pub fn new(code: &'a Code) -> Option<Pieces<'a>> {
        code.image().map(|(image, bias)| Pieces { code, image, bias })
    }

    /// The statement that the instruction at `pc` is part of, in each way in which it can be left out, or why it cannot be.
    pub fn statement(&self, pc: u64) -> Result<Vec<Piece>, String> {
        let at = self.offset(pc);
        let rows = self.image.lines().rows();
        let row = rows.partition_point(|r| r.start <= at).checked_sub(1).filter(|n| at < rows[*n].end);
        let Some(row) = row.filter(|n| rows[*n].line != 0) else { return Err("it belongs to no line".into()) };
        let (first, last) = stretch(rows, row);
        // The line of a small function may go on in the next one.
        let function = self.image.function_at(at);
        let start = function.map_or(first, |f| first.max(f.start));
        let end = function.map_or(last, |f| last.min(f.end));
        let insns = self.decode(start, end.0 - start.0);
        let end = behind(&insns, self.guest(end))?;
        let piece = |behind, what| Piece { start: self.guest(start), behind: Behind::At(behind), what };
        let Some(jump) = last_jump(&insns, end) else { return Ok(vec![piece(end, What::Statement)]) };
        let without = piece(jump.ip(), What::Statement);
        let to = self.image.lines().at(self.offset(jump.near_branch_target()));
        // The code of a `for` begins with a jump to its own condition.
        let stays = to.is_some_and(|r| (r.file, r.line) == (rows[row].file, rows[row].line));
        Ok(if stays { vec![without] } else { vec![without, piece(end, What::StatementAndJump)] })
    }

    /// The instruction at `pc` alone, or why it cannot be left out.
    pub fn instruction(&self, pc: u64) -> Result<Piece, String> {
        let insns = self.decode(self.offset(pc), LONGEST);
        let Some(insn) = insns.first() else { return Err("there is no instruction".into()) };
        let behind = behind(&insns[..1], insn.next_ip())?;
        let what = match insn.flow_control() {
            FlowControl::Call => What::Call(self.name(insn.near_branch_target())),
            FlowControl::IndirectCall => What::Call(None),
            _ => What::Instruction,
        };
        Ok(Piece { start: pc, behind: Behind::At(behind), what })
    }

    /// The function that begins at `entry`.
    pub fn function(&self, entry: u64) -> Piece {
        let name = self.name(entry).unwrap_or_else(|| self.code.locate(entry).address);
        Piece { start: entry, behind: Behind::InCaller, what: What::Function(name) }
    }

    /// Where the direct call at `pc` leads.
    pub fn target(&self, pc: u64) -> Option<u64> {
        let insn = *self.decode(self.offset(pc), LONGEST).first()?;
        (self.code.holds(pc) && insn.flow_control() == FlowControl::Call).then(|| insn.near_branch_target())
    }

    /// Does a function begin here?
    pub fn is_entry(&self, pc: u64) -> bool {
        let at = self.offset(pc);
        self.image.function_at(at).is_some_and(|f| f.start == at)
    }

    /// The name of the function at an address, as people call it.
    fn name(&self, pc: u64) -> Option<String> {
        let name = &self.image.function_at(self.offset(pc))?.name;
        Some(name.strip_suffix("@plt").unwrap_or(name).to_owned())
    }

    fn decode(&self, start: ImageOffset, len: u64) -> Vec<Instruction> {
        let bytes = self.image.bytes(start, len).unwrap_or_default();
        let mut decoder = Decoder::with_ip(64, &bytes, self.guest(start), DecoderOptions::NONE);
        let mut all = Vec::new();
        while decoder.can_decode() {
            let insn = decoder.decode();
            if insn.is_invalid() {
                break;
            }
            all.push(insn);
        }
        all
    }

    fn offset(&self, pc: u64) -> ImageOffset {
        self.bias.to_image(GuestAddr(pc))
    }

    fn guest(&self, at: ImageOffset) -> u64 {
        self.bias.to_guest(at).0
    }
}

/// The adjoining rows of one line around a row.
fn stretch(rows: &[LineRow], row: usize) -> (ImageOffset, ImageOffset) {
    let adjoins = |a: &LineRow, b: &LineRow| a.end == b.start && (a.file, a.line) == (b.file, b.line);
    let (mut first, mut last) = (row, row);
    while first > 0 && adjoins(&rows[first - 1], &rows[first]) {
        first -= 1;
    }
    while last + 1 < rows.len() && adjoins(&rows[last], &rows[last + 1]) {
        last += 1;
    }
    (rows[first].start, rows[last].end)
}

/// The jump at the end of code that does something before it.
pub fn last_jump(insns: &[Instruction], end: u64) -> Option<&Instruction> {
    let [_, .., last] = insns else { return None };
    (last.flow_control() == FlowControl::UnconditionalBranch && last.next_ip() == end).then_some(last)
}

/// Where execution goes on when all of these instructions, which end at `end`, are left out; else why they cannot be.
fn behind(insns: &[Instruction], end: u64) -> Result<u64, String> {
    let decides = || Err("it decides where execution goes on: `clew switch` takes branches the other way".to_owned());
    if insns.is_empty() {
        return Err("there is no code".into());
    }
    if insns.iter().all(|insn| insn.mnemonic() == Mnemonic::Nop) {
        return Err(NOTHING.into());
    }
    let mut stack = 0;
    for insn in insns {
        match insn.flow_control() {
            FlowControl::Return => return Err("it returns from its function: name the function to leave it out".into()),
            // Behind a branch back is another execution of the line.
            FlowControl::ConditionalBranch if !(insn.ip() + 1..=end).contains(&insn.near_branch_target()) => {
                return decides();
            }
            FlowControl::IndirectBranch => return decides(),
            _ => {}
        }
        match stack_change(insn) {
            Some(change) => stack += change,
            None => return Err(FRAME.into()),
        }
    }
    if stack != 0 {
        return Err(FRAME.into());
    }
    Ok(end)
}

const NOTHING: &str =
    "its code does nothing: the branch before it does the jump, and `clew switch` takes that one the other way";
const FRAME: &str = "it opens or closes a frame of the stack: name the function to leave it out";

/// By how much an instruction has moved the stack pointer when the one behind it is reached; nothing if that is not known.
fn stack_change(insn: &Instruction) -> Option<i64> {
    if matches!(insn.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
        return Some(0);
    }
    let names_it = insn.op_count() > 0 && insn.op0_kind() == OpKind::Register && insn.op0_register() == Register::RSP;
    match insn.mnemonic() {
        Mnemonic::Add | Mnemonic::Sub if names_it => {
            let by = insn.try_immediate(1).ok()? as i64;
            Some(if insn.mnemonic() == Mnemonic::Add { by } else { -by })
        }
        Mnemonic::Push | Mnemonic::Cmp | Mnemonic::Test => Some(i64::from(insn.stack_pointer_increment())),
        Mnemonic::Leave | Mnemonic::Enter => None,
        _ if names_it || insn.code() == Opcode::INVALID => None,
        _ => Some(i64::from(insn.stack_pointer_increment())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where execution goes on without the statement that this code at 0x1000 is.
    #[track_caller]
    fn check(code: &[u8], expected: Result<u64, &str>) {
        let mut decoder = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE);
        let insns: Vec<_> = std::iter::from_fn(|| decoder.can_decode().then(|| decoder.decode())).collect();
        let found = behind(&insns, 0x1000 + code.len() as u64);
        let found = found.map(|end| last_jump(&insns, end).map_or(end, Instruction::ip));
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn execution_goes_on_behind_what_leaves_the_stack_as_it_was() {
        // mov dword [rbp-4], 0
        check(&[0xc7, 0x45, 0xfc, 0, 0, 0, 0], Ok(0x1007));
        // sub rsp, 8; push 1; call …; add rsp, 16
        check(&[0x48, 0x83, 0xec, 8, 0x6a, 1, 0xe8, 0, 1, 0, 0, 0x48, 0x83, 0xc4, 16], Ok(0x100f));
        // test eax, eax; je over the next one; nop
        check(&[0x85, 0xc0, 0x74, 1, 0x90], Ok(0x1005));
        // jmp far away: a break, which is left out
        check(&[0xe9, 0, 1, 0, 0], Ok(0x1005));
        // mov dword [rbp-4], 0; jmp around an else, which is still made
        check(&[0xc7, 0x45, 0xfc, 0, 0, 0, 0, 0xe9, 0xf4, 0x0f, 0, 0], Ok(0x1007));
    }

    #[test]
    fn frames_returns_and_decisions_cannot_be_left_out() {
        // push rbp; mov rbp, rsp
        check(&[0x55, 0x48, 0x89, 0xe5], Err("opens or closes a frame"));
        // leave
        check(&[0xc9], Err("opens or closes a frame"));
        // mov rsp, rbp
        check(&[0x48, 0x89, 0xec], Err("opens or closes a frame"));
        // nop; ret
        check(&[0x90, 0xc3], Err("returns from its function"));
        // test eax, eax; je behind 0x1100
        check(&[0x85, 0xc0, 0x0f, 0x84, 0, 1, 0, 0], Err("decides where execution goes on"));
        // nop; test eax, eax; je back
        check(&[0x90, 0x85, 0xc0, 0x74, 0xfb], Err("decides where execution goes on"));
        // jmp rax
        check(&[0xff, 0xe0], Err("decides where execution goes on"));
        // nop
        check(&[0x90], Err("its code does nothing"));
        check(&[], Err("no code"));
    }
}
