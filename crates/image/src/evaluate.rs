//! DWARF expressions, run by gimli against a stopped process.
//!
//! The same for the expressions of call frames and of variables; what each may ask for is its [`Machine`].
//! Guarantees: at most `MAX_OPERATIONS` steps, so at most as many values on its stack.
//! May miss: parameter references and calls to other expressions are not resolved; a variable that needs them counts as
//! optimized out.
//! Source: DWARF 5, section 2.5.

use crate::dwarf::Metered;
use crate::process::Register;
use gimli::{Encoding, EvaluationResult, Expression, Piece, UnitOffset, Value, ValueType};
use model::GuestAddr;

/// Real expressions have a handful of operations; those of the C library's trampolines about ten.
const MAX_OPERATIONS: u32 = 10_000;

/// What an expression can ask for.
pub(crate) trait Machine {
    fn read(&self, at: GuestAddr, to: &mut [u8]) -> usize;
    fn register(&self, register: Register) -> Option<u64>;
    fn vector(&self, number: u16) -> Option<[u8; 16]>;
    /// Where an address of the image lies in the process.
    fn relocate(&self, at: u64) -> GuestAddr;

    fn cfa(&self) -> Option<GuestAddr> {
        None
    }

    fn frame_base(&self) -> Option<GuestAddr> {
        None
    }

    fn thread_local(&self, offset: u64) -> Option<GuestAddr> {
        let _ = offset;
        None
    }

    /// What a register was when the function was entered.
    fn entry_value(&self, register: Register) -> Option<u64> {
        let _ = register;
        None
    }

    /// An entry of `.debug_addr`, as the image states it.
    fn indexed(&self, index: gimli::DebugAddrIndex<usize>) -> Option<u64> {
        let _ = index;
        None
    }

    fn value_type(&self, entry: UnitOffset<usize>) -> Option<ValueType> {
        let _ = entry;
        None
    }
}

/// Why an expression has no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Missing {
    /// The program does not keep the value here.
    OptimizedOut,
    /// A pointer to something that has a value but no place.
    Synthetic,
    /// The memory at this address cannot be read.
    Memory(GuestAddr),
    /// The expression uses what is not supported; says what.
    Unsupported(&'static str),
    /// The expression makes no sense.
    Damaged,
}

impl From<gimli::Error> for Missing {
    fn from(_: gimli::Error) -> Missing {
        Missing::Damaged
    }
}

/// Runs `expression` with `initial` on its stack.
pub(crate) fn evaluate<'a>(
    expression: Expression<Metered<'a>>,
    encoding: Encoding,
    initial: Option<GuestAddr>,
    machine: &dyn Machine,
) -> Result<Vec<Piece<Metered<'a>>>, Missing> {
    if expression.0.rest().is_empty() {
        return Err(Missing::OptimizedOut);
    }
    let mut evaluation = expression.evaluation(encoding);
    evaluation.set_max_iterations(MAX_OPERATIONS);
    if let Some(initial) = initial {
        evaluation.set_initial_value(initial.0);
    }
    let mut state = evaluation.evaluate()?;
    // Each question is asked by one operation, so there are no more of them.
    for _ in 0..MAX_OPERATIONS {
        state = match state {
            EvaluationResult::Complete => return Ok(evaluation.result()),
            EvaluationResult::RequiresMemory { address, size, space: None, base_type } => {
                let value = read_value(machine, GuestAddr(address), size, base_type)?;
                evaluation.resume_with_memory(value)?
            }
            EvaluationResult::RequiresRegister { register, base_type } => {
                let value = register_value(machine, Register(register.0), base_type)?;
                evaluation.resume_with_register(value)?
            }
            EvaluationResult::RequiresFrameBase => {
                let base = machine.frame_base().ok_or(Missing::OptimizedOut)?;
                evaluation.resume_with_frame_base(base.0)?
            }
            EvaluationResult::RequiresCallFrameCfa => {
                let cfa = machine.cfa().ok_or(Missing::OptimizedOut)?;
                evaluation.resume_with_call_frame_cfa(cfa.0)?
            }
            EvaluationResult::RequiresTls(offset) => {
                let unsupported = Missing::Unsupported("thread-local variables of libraries are not supported");
                evaluation.resume_with_tls(machine.thread_local(offset).ok_or(unsupported)?.0)?
            }
            EvaluationResult::RequiresRelocatedAddress(at) => {
                evaluation.resume_with_relocated_address(machine.relocate(at).0)?
            }
            EvaluationResult::RequiresIndexedAddress { index, relocate } => {
                let at = machine.indexed(index).ok_or(Missing::Damaged)?;
                evaluation.resume_with_indexed_address(if relocate { machine.relocate(at).0 } else { at })?
            }
            EvaluationResult::RequiresBaseType(entry) => {
                let value_type = machine.value_type(entry).ok_or(Missing::Damaged)?;
                evaluation.resume_with_base_type(value_type)?
            }
            EvaluationResult::RequiresMemory { .. } => {
                return Err(Missing::Unsupported("address spaces are not supported"));
            }
            EvaluationResult::RequiresEntryValue(of) => {
                let mut operations = of.operations(encoding);
                let (Some(gimli::Operation::Register { register }), None) = (operations.next()?, operations.next()?)
                else {
                    return Err(Missing::OptimizedOut);
                };
                let value = machine.entry_value(Register(register.0)).ok_or(Missing::OptimizedOut)?;
                evaluation.resume_with_entry_value(Value::Generic(value))?
            }
            EvaluationResult::RequiresParameterRef(_) => return Err(Missing::OptimizedOut),
            EvaluationResult::RequiresAtLocation(_) => {
                return Err(Missing::Unsupported("calls between location expressions are not supported"));
            }
        };
    }
    Err(Missing::Damaged)
}

/// The one address that `expression` computes.
pub(crate) fn evaluate_address(
    expression: Expression<Metered<'_>>,
    encoding: Encoding,
    initial: Option<GuestAddr>,
    machine: &dyn Machine,
) -> Result<GuestAddr, Missing> {
    let pieces = evaluate(expression, encoding, initial, machine)?;
    match pieces.as_slice() {
        [Piece { location: gimli::Location::Address { address }, .. }] => Ok(GuestAddr(*address)),
        [Piece { location: gimli::Location::Value { value }, .. }] => Ok(GuestAddr(value.to_u64(u64::MAX)?)),
        // A frame base that is a register means its contents.
        [Piece { location: gimli::Location::Register { register }, .. }] => {
            machine.register(Register(register.0)).map(GuestAddr).ok_or(Missing::OptimizedOut)
        }
        _ => Err(Missing::Damaged),
    }
}

fn read_value(machine: &dyn Machine, at: GuestAddr, size: u8, base: UnitOffset<usize>) -> Result<Value, Missing> {
    let mut bytes = [0; 8];
    let wanted = bytes.get_mut(..usize::from(size)).ok_or(Missing::Damaged)?;
    if machine.read(at, wanted) < wanted.len() {
        return Err(Missing::Memory(at));
    }
    typed(machine, bytes, base)
}

fn register_value(machine: &dyn Machine, register: Register, base: UnitOffset<usize>) -> Result<Value, Missing> {
    let bytes = match register.vector() {
        Some(number) => machine.vector(number).and_then(|v| v.first_chunk().copied()),
        None => machine.register(register).map(u64::to_le_bytes),
    };
    typed(machine, bytes.ok_or(Missing::OptimizedOut)?, base)
}

fn typed(machine: &dyn Machine, bytes: [u8; 8], base: UnitOffset<usize>) -> Result<Value, Missing> {
    let value_type = match base.0 {
        0 => ValueType::Generic,
        _ => machine.value_type(base).ok_or(Missing::Damaged)?,
    };
    if value_type == ValueType::Generic {
        return Ok(Value::Generic(u64::from_le_bytes(bytes)));
    }
    Ok(Value::parse(value_type, gimli::EndianSlice::new(&bytes, gimli::LittleEndian))?)
}
