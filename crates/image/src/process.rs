//! A stopped process as questions about its stack and its variables see it: memory, registers, loaded images.
//!
//! Whoever has such a process (live, replayed or a core file) implements [`Stopped`]; this crate never touches one
//! itself. Registers have the numbers that DWARF gives them.
//! Source: System V ABI, AMD64 supplement, figure 3.36.

use crate::address::{Bias, FileOffset, ImageOffset};
use crate::image::Image;
use crate::images::Images;
use model::GuestAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One thread of a process that does not run.
pub trait Stopped {
    /// Copies memory at `at` into `to` and gives how many bytes from the start of `to` are good.
    fn read(&self, at: GuestAddr, to: &mut [u8]) -> usize;

    /// A general register, the instruction pointer or the base of `fs`, as the thread has it.
    fn register(&self, register: Register) -> Option<u64>;

    /// `xmm0` to `xmm15`; variables in floating point live there.
    fn vector(&self, number: u16) -> Option<[u8; 16]> {
        let _ = number;
        None
    }

    fn images(&self) -> &LoadedImages;
}

/// A register by its DWARF number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Register(pub u16);

/// The names of the registers 0 to 16.
const NAMES: [&str; 17] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip",
];

impl Register {
    pub const RBP: Register = Register(6);
    pub const RSP: Register = Register(7);
    /// The return address, which is where the instruction pointer of the caller is found.
    pub const RIP: Register = Register(16);
    pub const FS_BASE: Register = Register(58);
    const FIRST_VECTOR: u16 = 17;
    const LAST_VECTOR: u16 = 32;

    /// The register called `name`, without `$` or `%`; `pc`, `sp` and `fp` are known too.
    pub fn named(name: &str) -> Option<Register> {
        match name {
            "pc" => Some(Register::RIP),
            "sp" => Some(Register::RSP),
            "fp" => Some(Register::RBP),
            "fs_base" => Some(Register::FS_BASE),
            name => NAMES.iter().position(|n| *n == name).map(|i| Register(i as u16)),
        }
    }

    /// Which of `xmm0` to `xmm15` this is.
    pub fn vector(self) -> Option<u16> {
        (Register::FIRST_VECTOR..=Register::LAST_VECTOR).contains(&self.0).then(|| self.0 - Register::FIRST_VECTOR)
    }

    /// Must a function give it back as it got it?
    pub fn is_preserved(self) -> bool {
        matches!(self.0, 3 | 6 | 12..=15)
    }
}

/// The general registers and the instruction pointer of one frame, as far as they are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Registers {
    values: [Option<u64>; NAMES.len()],
    /// One bit for each register that the functions called from here were free to overwrite.
    doubtful: u32,
}

impl Registers {
    /// What the thread has.
    pub fn of(process: &dyn Stopped) -> Registers {
        Registers { values: std::array::from_fn(|i| process.register(Register(i as u16))), doubtful: 0 }
    }

    pub fn get(&self, register: Register) -> Option<u64> {
        self.unchanged(register).filter(|_| self.doubtful & 1 << register.0 == 0)
    }

    /// Also a value that is right only if no function called from here overwrote the register. The compiler knows that
    /// of some calls, and then keeps variables there.
    pub fn unchanged(&self, register: Register) -> Option<u64> {
        self.values.get(usize::from(register.0)).copied().flatten()
    }

    pub fn set(&mut self, register: Register, value: Option<u64>) {
        if let Some(slot) = self.values.get_mut(usize::from(register.0)) {
            *slot = value;
            self.doubtful &= !(1 << register.0);
        }
    }

    /// What a caller has before its call frame information is applied.
    pub(crate) fn for_caller(&self) -> Registers {
        let mut caller = *self;
        Registers::numbers().filter(|r| !r.is_preserved()).for_each(|r| caller.doubtful |= 1 << r.0);
        caller.set(Register::RIP, None);
        caller
    }

    pub fn pc(&self) -> Option<GuestAddr> {
        self.get(Register::RIP).map(GuestAddr)
    }

    /// All of them, known or not.
    pub fn numbers() -> impl Iterator<Item = Register> {
        (0..NAMES.len() as u16).map(Register)
    }
}

/// An image and where it is loaded.
#[derive(Clone, Debug)]
pub struct LoadedImage {
    pub image: Arc<Image>,
    pub bias: Bias,
}

/// The images of a process; the program itself comes first.
#[derive(Clone, Debug, Default)]
pub struct LoadedImages {
    list: Vec<LoadedImage>,
}

/// A mapped piece of a file, as the kernel lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappedFile {
    pub path: PathBuf,
    pub start: GuestAddr,
    pub offset: FileOffset,
}

impl LoadedImages {
    pub fn new() -> LoadedImages {
        LoadedImages::default()
    }

    pub fn add(&mut self, image: Arc<Image>, bias: Bias) {
        self.list.push(LoadedImage { image, bias });
    }

    /// The images among mapped files. What is no ELF file is left out. `program` becomes the first.
    pub fn from_mappings(images: &Images, program: &Path, mapped: &[MappedFile]) -> LoadedImages {
        let mut loaded = LoadedImages::new();
        let mut seen: Vec<&Path> = Vec::new();
        let is_program = |m: &&MappedFile| m.path == program;
        for file in mapped.iter().filter(is_program).chain(mapped.iter().filter(|m| !is_program(m))) {
            if seen.contains(&file.path.as_path()) {
                continue;
            }
            let Ok(image) = images.get(&file.path) else { continue };
            // The linker orders segments by address, so the first piece is one whose start is exact.
            let Some(bias) = image.bias(file.offset, file.start) else { continue };
            seen.push(&file.path);
            loaded.add(image, bias);
        }
        loaded
    }

    pub fn iter(&self) -> impl Iterator<Item = &LoadedImage> {
        self.list.iter()
    }

    pub fn get(&self, index: usize) -> Option<&LoadedImage> {
        self.list.get(index)
    }

    /// The image whose segments hold `addr`, its number, and the address inside it.
    pub fn at(&self, addr: GuestAddr) -> Option<(usize, &LoadedImage, ImageOffset)> {
        let inside = |(i, l): (usize, &'_ LoadedImage)| l.image.contains(l.bias.to_image(addr)).then_some(i);
        let index = self.list.iter().enumerate().find_map(inside)?;
        let loaded = &self.list[index];
        Some((index, loaded, loaded.bias.to_image(addr)))
    }

    /// `<name+12>`: the symbol that covers `addr`, and the distance from its start.
    pub fn symbol(&self, addr: GuestAddr) -> Option<(String, u64)> {
        let (_, loaded, at) = self.at(addr)?;
        let (symbol, offset) = loaded.image.symbols().covering(at)?;
        let name = crate::demangle(&symbol.name);
        // The demangler writes tables of the compiler as `{vtable(T)}`, people know them as gdb writes them.
        let table = name.strip_prefix("{vtable(").and_then(|n| n.strip_suffix(")}"));
        Some((table.map(|of| format!("vtable for {of}")).unwrap_or(name), offset))
    }
}

/// Reads a whole object of `N` bytes.
pub(crate) fn read_array<const N: usize>(process: &dyn Stopped, at: GuestAddr) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (process.read(at, &mut bytes) == N).then_some(bytes)
}

pub(crate) fn read_word(process: &dyn Stopped, at: GuestAddr) -> Option<u64> {
    read_array(process, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_have_the_numbers_of_the_abi() {
        for (name, number) in [("rax", 0), ("rdx", 1), ("rdi", 5), ("rbp", 6), ("rsp", 7), ("r8", 8), ("rip", 16)] {
            assert_eq!(Register::named(name), Some(Register(number)), "{name}");
        }
        assert_eq!(Register::named("pc"), Some(Register::RIP));
        assert_eq!(Register::named("zmm0"), None);
        assert_eq!(Register(17).vector(), Some(0));
        assert_eq!(Register(33).vector(), None);
    }
}
