//! Call frame information: rules for computing a caller's registers from those of the called function.
//!
//! Compilers generate it for exceptions (`.eh_frame`, System V ABI for x86-64, section 4.2.4; DWARF 5,
//! section 6.4), so code without frame pointers has it, too. Sections are never copied: that of libtorch has
//! tens of megabytes. The function is found by a binary search in the loaded table. Its entry, some hundred
//! bytes, is read alone and passed to `gimli` as if it were the entire section. `framehop`, which is made for
//! profilers, requires entire sections and does not distinguish an unknown register from one that contains 0.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameOffset, Encoding, EndianSlice, Evaluation, EvaluationResult, Expression,
    LittleEndian, Location, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection as _, Value,
};

use super::elf::UnwindTable;
use crate::memory::{Memory, u32_at};

/// Number of registers, indexed by DWARF number: 7 is `rsp`, 16 the return address.
pub const REGISTERS: usize = 17;
/// DWARF number of the stack pointer.
pub const SP: usize = 7;
/// DWARF number of the return address: the program counter of the caller.
pub const RA: usize = 16;
/// Callee-saved registers, which are unchanged unless the rules of a function change them: `rbx`, `rbp`,
/// `r12` to `r15`.
const KEPT: [usize; 6] = [3, 6, 12, 13, 14, 15];

/// Maximum bytes of a function's entry. Generated functions of megabytes exceed it and cannot be unwound.
const MAX_ENTRY: usize = 64 << 10;
/// Maximum bytes of a common information entry (CIE).
const MAX_COMMON: usize = 1024;
/// Number of table entries that are read at once at the end of the search.
const LAST_READ: u32 = 64;
/// Maximum number of steps of an expression.
const MAX_STEPS: u32 = 100;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Values of the registers that are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers([Option<u64>; REGISTERS]);

impl Registers {
    /// Registers of a thread with only the stack pointer and the program counter known.
    pub fn of_waiting(sp: u64, pc: u64) -> Self {
        let mut registers = Self::default();
        registers.set(SP, Some(sp));
        registers.set(RA, Some(pc));
        registers
    }

    /// Value of a register by its DWARF number.
    pub fn get(&self, number: usize) -> Option<u64> {
        self.0.get(number).copied().flatten()
    }

    /// Sets a register by its DWARF number.
    pub fn set(&mut self, number: usize, value: Option<u64>) {
        if let Some(register) = self.0.get_mut(number) {
            *register = value;
        }
    }

    /// Known values of callee-saved registers.
    pub fn kept(&self) -> impl Iterator<Item = u64> {
        KEPT.into_iter().filter_map(|number| self.get(number))
    }
}

/// Reason why a frame has no caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It is the outermost frame.
    Outermost,
    /// The rules need an unknown register.
    UnknownRegister,
    /// The rules need memory that is unreadable or was not copied.
    Unreadable,
    /// This code has no rules, or invalid ones.
    NoRules,
}

/// The rules at one instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The canonical frame address: the stack pointer before the call.
    frame: Frame,
    registers: Vec<(u8, Rule)>,
    /// True if the kernel made the call, to a signal handler: the caller then continues at an arbitrary
    /// instruction.
    pub is_signal: bool,
    encoding: Encoding,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Frame {
    Offset(u8, i64),
    Expression(Box<[u8]>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Unknown,
    Same,
    At(i64),
    Is(i64),
    Register(u8),
    AtExpression(Box<[u8]>),
    IsExpression(Box<[u8]>),
}

/// Finds and decodes rules.
#[derive(Debug)]
pub struct Decoder {
    context: Box<UnwindContext<usize>>,
    section: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { context: Box::new(UnwindContext::new()), section: Vec::new() }
    }
}

impl Decoder {
    /// The rules at `address`, from the module's table. `None` if the table has none or is damaged.
    pub fn rules(&mut self, memory: &Memory, table: UnwindTable, address: u64) -> Option<Rules> {
        let entry = find(memory, table, address)?;
        let function = self.load(memory, entry)?;
        let section = EhFrame::new(&self.section, LittleEndian);
        let offset = EhFrameOffset(function);
        let bases = BaseAddresses::default().set_eh_frame(entry.wrapping_sub(function as u64));
        let function = section.fde_from_offset(&bases, offset, EhFrame::cie_from_offset).ok()?;
        if !function.contains(address) {
            return None;
        }
        let (is_signal, encoding) = (function.is_signal_trampoline(), function.cie().encoding());
        let row = function.unwind_info_for_address(&section, &bases, &mut self.context, address).ok()?;
        let bytes = |expression: &UnwindExpression<usize>| -> Option<Box<[u8]>> {
            Some(expression.get(&section).ok()?.0.slice().into())
        };
        let frame = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Frame::Offset(number(*register)?, *offset),
            CfaRule::Expression(expression) => Frame::Expression(bytes(expression)?),
        };
        let mut registers = Vec::new();
        for (register, rule) in row.registers() {
            let Some(register) = number(*register) else { continue };
            let rule = match rule {
                RegisterRule::SameValue => Rule::Same,
                RegisterRule::Offset(offset) => Rule::At(*offset),
                RegisterRule::ValOffset(offset) => Rule::Is(*offset),
                RegisterRule::Register(other) => Rule::Register(number(*other)?),
                RegisterRule::Expression(expression) => Rule::AtExpression(bytes(expression)?),
                RegisterRule::ValExpression(expression) => Rule::IsExpression(bytes(expression)?),
                _ => Rule::Unknown,
            };
            registers.push((register, rule));
        }
        Some(Rules { frame, registers, is_signal, encoding })
    }

    /// Copies the entry at `entry` into a separate section, after its common information entry. Returns its
    /// offset there.
    fn load(&mut self, memory: &Memory, entry: u64) -> Option<usize> {
        let head = memory.array::<8>(entry).ok()?;
        let (length, distance) = (u32_at(&head, 0)? as usize, u32_at(&head, 4)?);
        let common = entry.checked_add(4)?.checked_sub(distance.into())?;
        let common_length = memory.u32(common).ok()? as usize;
        if length > MAX_ENTRY || common_length > MAX_COMMON || length < 4 {
            return None;
        }
        let function = 4 + common_length;
        self.section.clear();
        self.section.resize(function + 4 + length + 4, 0);
        memory.read(common, self.section.get_mut(..function)?).ok()?;
        memory.read(entry, self.section.get_mut(function..function + 4 + length)?).ok()?;
        // Distance from this field back to the common information entry.
        let distance = u32::try_from(function + 4).ok()?;
        self.section.get_mut(function + 4..function + 8)?.copy_from_slice(&distance.to_le_bytes());
        Some(function)
    }
}

/// Address of the entry of the last function that starts at or before `address`.
fn find(memory: &Memory, table: UnwindTable, address: u64) -> Option<u64> {
    let pairs = table.address.checked_add(UnwindTable::HEADER)?;
    let begin = |bytes: &[u8]| Some(table.address.wrapping_add_signed(u32_at(bytes, 0)?.cast_signed().into()));
    let (mut low, mut high) = (0, table.count);
    while high - low > LAST_READ {
        let middle = low + (high - low) / 2;
        let pair = memory.array::<8>(pairs.checked_add(u64::from(middle) * 8)?).ok()?;
        if begin(&pair)? <= address { low = middle } else { high = middle }
    }
    let mut bytes = [0; LAST_READ as usize * 8];
    let bytes = bytes.get_mut(..(high - low) as usize * 8)?;
    memory.read(pairs.checked_add(u64::from(low) * 8)?, bytes).ok()?;
    let found =
        bytes.as_chunks::<8>().0.iter().take_while(|pair| begin(*pair).is_some_and(|at| at <= address)).last()?;
    Some(table.address.wrapping_add_signed(u32_at(found, 4)?.cast_signed().into()))
}

fn number(register: Register) -> Option<u8> {
    u8::try_from(register.0).ok().filter(|&number| usize::from(number) < REGISTERS)
}

impl Rules {
    /// The registers of the caller; `read` returns words of the stack.
    ///
    /// # Errors
    /// If there is no caller, or it cannot be determined.
    pub fn caller(&self, registers: &Registers, mut read: impl FnMut(u64) -> Option<u64>) -> Result<Registers, Stop> {
        let sp = registers.get(SP).ok_or(Stop::UnknownRegister)?;
        let frame = match &self.frame {
            Frame::Offset(register, offset) => {
                let value = registers.get((*register).into()).ok_or(Stop::UnknownRegister)?;
                value.wrapping_add_signed(*offset)
            }
            Frame::Expression(bytes) => self.evaluate(bytes, None, registers, &mut read)?,
        };
        // A call uses at least the space of its return address. A signal handler may have another stack.
        if !self.is_signal && frame < sp.saturating_add(8) {
            return Err(Stop::NoRules);
        }
        let mut caller = Registers::default();
        caller.set(SP, Some(frame));
        for kept in KEPT {
            caller.set(kept, registers.get(kept));
        }
        let mut known_return = false;
        for (register, rule) in &self.registers {
            let register = usize::from(*register);
            let value = match rule {
                Rule::Unknown => Ok(None),
                Rule::Same => Ok(registers.get(register)),
                Rule::At(offset) => read(frame.wrapping_add_signed(*offset)).map(Some).ok_or(Stop::Unreadable),
                Rule::Is(offset) => Ok(Some(frame.wrapping_add_signed(*offset))),
                Rule::Register(other) => Ok(registers.get((*other).into())),
                Rule::AtExpression(bytes) => self
                    .evaluate(bytes, Some(frame), registers, &mut read)
                    .and_then(|address| read(address).map(Some).ok_or(Stop::Unreadable)),
                Rule::IsExpression(bytes) => self.evaluate(bytes, Some(frame), registers, &mut read).map(Some),
            };
            match value {
                // No rule for the return address means that there is no caller; it marks the first function
                // of a thread.
                Ok(None) if register == RA => return Err(Stop::Outermost),
                Err(stop) if register == RA => return Err(stop),
                Ok(value) => caller.set(register, value),
                Err(_) => caller.set(register, None),
            }
            known_return |= register == RA;
        }
        if known_return && caller.get(RA) != Some(0) { Ok(caller) } else { Err(Stop::Outermost) }
    }

    fn evaluate(
        &self,
        bytes: &[u8],
        initial: Option<u64>,
        registers: &Registers,
        read: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, Stop> {
        let expression: Expression<Bytes<'_>> = Expression(EndianSlice::new(bytes, LittleEndian));
        let mut evaluation = expression.evaluation(self.encoding);
        evaluation.set_max_iterations(MAX_STEPS);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut result = evaluation.evaluate();
        for _ in 0..MAX_STEPS {
            result = match result.map_err(|_| Stop::NoRules)? {
                EvaluationResult::Complete => return value(evaluation),
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = registers.get(register.0.into()).ok_or(Stop::UnknownRegister)?;
                    evaluation.resume_with_register(Value::Generic(value))
                }
                EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                    let value = read(address).ok_or(Stop::Unreadable)?;
                    evaluation.resume_with_memory(Value::Generic(value))
                }
                _ => return Err(Stop::NoRules),
            };
        }
        Err(Stop::NoRules)
    }
}

fn value(evaluation: Evaluation<Bytes<'_>>) -> Result<u64, Stop> {
    match evaluation.result().last().map(|piece| piece.location) {
        Some(Location::Address { address }) => Ok(address),
        _ => Err(Stop::NoRules),
    }
}
