//! Could this be a return address? The instruction before one is a call.
//!
//! Words on a stack that point into code are mostly return addresses, but also function pointers and leftovers.
//! The test knows every form of `call` on x86-64: it never rejects a true return address, and accepts a false one only
//! when the bytes before it happen to read as a call. Source: Intel SDM, volume 2, `CALL`.

/// The longest call: two prefixes, REX, opcode, ModRM, SIB, four bytes of displacement.
pub(crate) const LONGEST_CALL: u64 = 10;

/// Do the bytes that end where the return address points end with a call?
pub(crate) fn ends_with_call(before: &[u8]) -> bool {
    let relative = before.len() >= 5 && before[before.len() - 5] == 0xe8;
    relative || (2..=before.len().min(LONGEST_CALL as usize)).any(|n| is_indirect_call(&before[before.len() - n..]))
}

/// Is all of `bytes` one indirect call?
fn is_indirect_call(bytes: &[u8]) -> bool {
    // Segment overrides, notrack, bnd and operand size may come first, then REX.
    let is_prefix = |b: &u8| matches!(b, 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 | 0xf2 | 0x66 | 0x67);
    let prefixes = bytes.iter().take_while(|b| is_prefix(b)).count();
    let rest = &bytes[prefixes..];
    let rest = if rest.first().is_some_and(|b| b & 0xf0 == 0x40) { &rest[1..] } else { rest };
    let [0xff, modrm, tail @ ..] = rest else { return false };
    if (modrm >> 3) & 7 != 2 {
        return false;
    }
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let has_sib = mode != 3 && rm == 4;
    let no_base = has_sib && tail.first().is_some_and(|sib| sib & 7 == 5);
    let displacement = match mode {
        0 if rm == 5 || no_base => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    tail.len() == usize::from(has_sib) + displacement
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: bool) {
        assert_eq!(ends_with_call(bytes), expected, "{bytes:02x?}");
    }

    #[test]
    fn every_form_of_call_is_known() {
        check(&[0xe8, 1, 2, 3, 4], true); // call rel32
        check(&[0x90, 0xff, 0xd0], true); // call rax
        check(&[0x41, 0xff, 0xd4], true); // call r12
        check(&[0xff, 0x10], true); // call [rax]
        check(&[0xff, 0x50, 0x18], true); // call [rax+0x18]
        check(&[0xff, 0x90, 0, 1, 0, 0], true); // call [rax+0x100]
        check(&[0xff, 0x15, 1, 2, 3, 4], true); // call [rip+x]
        check(&[0xff, 0x14, 0xc8], true); // call [rax+rcx*8]
        check(&[0xff, 0x14, 0xc5, 0, 0, 0, 0], true); // call [rax*8+0]
        check(&[0x43, 0xff, 0x54, 0xcc, 0x08], true); // call [r12+r9*8+8]
        check(&[0x64, 0xff, 0x14, 0x25, 0x10, 0, 0, 0], true); // call fs:[0x10]
        check(&[0x3e, 0xff, 0xd0], true); // notrack call rax
    }

    #[test]
    fn other_instructions_are_not_calls() {
        check(&[], false);
        check(&[0xc3], false);
        check(&[0xff, 0xe0], false); // jmp rax
        check(&[0x90; 10], false);
        check(&[0x48, 0x89, 0xe5], false); // mov rbp, rsp
    }
}
