//! Reads a kernel's figures from a cubin, an ELF file for NVIDIA's GPUs.
//!
//! NVIDIA documents only the output of `cuobjdump -elf`. The figures read here were compared with `ptxas -v`, `readelf`
//! and `cuobjdump -res-usage` (CUDA 12.9 and 13.5) for compute capabilities 8.0, 8.9, 9.0, 10.0 and 12.0.

use super::little_endian::unsigned;
use crate::timer::protocol::KernelUse;

/// Longest section name.
const MAX_NAME_BYTES: usize = 320;
/// Longest kernel name.
const MAX_KERNEL_NAME_BYTES: usize = 256;

// ELF-64
const EM_CUDA: u64 = 190;
const SECTION_HEADER_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
const SHT_PROGBITS: u64 = 1;
const SHT_SYMTAB: u64 = 2;
const SHT_NOBITS: u64 = 8;
const STT_FUNC: u64 = 2;
// CUDA's extensions
const SHT_CUDA_INFO: u64 = 0x7000_0000;
/// Flag in a symbol's `st_other`: a kernel, not a function that kernels call.
const STO_CUDA_ENTRY: u64 = 0x10;

/// Attributes of `.nv.info` whose value is a symbol's index and a number. The stack includes everything that the kernel
/// calls, except recursion, which neither XLA nor Triton generates.
const EIATTR_MIN_STACK_SIZE: u8 = 0x12;
const EIATTR_REGCOUNT: u8 = 0x2f;
/// Where attributes hold their values: within their four bytes, or after them.
const EIFMT_NVAL: u8 = 1;
const EIFMT_HVAL: u8 = 3;
const EIFMT_SVAL: u8 = 4;

/// From compute capability 9.0 on, a kernel's shared memory section begins with the driver's reserved bytes.
const RESERVED_SECTION: &[u8] = b".nv.shared.reserved.0";
const RESERVED_SHARED_BYTES: u64 = 1024;

/// Maximum registers of a thread; a larger number has another meaning.
const MAX_REGISTERS: u32 = 255;
const MAX_STACK_BYTES: u32 = 512 << 10;

/// A kernel's figures, with static shared memory only.
pub(super) fn read_kernel(cubin: &[u8], name: &[u8]) -> Option<KernelUse> {
    if name.is_empty() || name.len() > MAX_KERNEL_NAME_BYTES || !name.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let elf = Elf::read(cubin)?;
    let code = elf.section(&[b".text.", name])?.filter(|section| section.kind == SHT_PROGBITS)?;
    let shared = match elf.section(&[b".nv.shared.", name])? {
        Some(section) if section.kind != SHT_NOBITS => return None,
        Some(section) if elf.section(&[RESERVED_SECTION])?.is_some() => {
            section.size.checked_sub(RESERVED_SHARED_BYTES)?
        }
        Some(section) => section.size,
        None => 0,
    };
    let symbol = elf.kernel(name)?;
    let info = elf.section(&[b".nv.info"])?.filter(|section| section.kind == SHT_CUDA_INFO)?;
    let registers = attribute(info.data, EIATTR_REGCOUNT, symbol)?;
    let stack = attribute(info.data, EIATTR_MIN_STACK_SIZE, symbol)?;
    if registers > MAX_REGISTERS || stack > MAX_STACK_BYTES {
        return None;
    }
    let name = String::from_utf8(name.to_vec()).ok()?;
    Some(KernelUse::new(name, code.size, registers, u64::from(stack), shared))
}

/// The number that an attribute gives for a symbol; it must occur once.
fn attribute(mut info: &[u8], wanted: u8, symbol: u32) -> Option<u32> {
    let mut found = None;
    while let [format, attribute, low, high, rest @ ..] = info {
        info = rest;
        match *format {
            EIFMT_NVAL..=EIFMT_HVAL => continue,
            EIFMT_SVAL => {}
            _ => return None,
        }
        let (value, after) = rest.split_at_checked(usize::from(u16::from_le_bytes([*low, *high])))?;
        info = after;
        if *attribute != wanted {
            continue;
        }
        let (of, number) = value.split_at_checked(4).filter(|_| value.len() == 8)?;
        let number = u32::try_from(unsigned(number, 0, 4)?).ok()?;
        if unsigned(of, 0, 4)? == u64::from(symbol) && found.replace(number).is_some() {
            return None;
        }
    }
    found.filter(|_| info.is_empty())
}

struct ElfSection<'a> {
    name: &'a [u8],
    kind: u64,
    /// Bytes in memory; those of `NOBITS` sections are not in the file.
    size: u64,
    data: &'a [u8],
    link: usize,
}

struct Elf<'a>(Vec<ElfSection<'a>>);

impl<'a> Elf<'a> {
    fn read(file: &'a [u8]) -> Option<Self> {
        // 64 bits, little endian
        if !file.starts_with(b"\x7fELF\x02\x01") || unsigned(file, 18, 2)? != EM_CUDA {
            return None;
        }
        if unsigned(file, 58, 2)? != SECTION_HEADER_BYTES as u64 {
            return None;
        }
        let headers = file.get(usize::try_from(unsigned(file, 40, 8)?).ok()?..)?;
        let count = usize::try_from(unsigned(file, 60, 2)?).ok()?;
        let headers = headers.get(..count.checked_mul(SECTION_HEADER_BYTES)?)?;
        let header_at = |index: usize| headers.chunks_exact(SECTION_HEADER_BYTES).nth(index);
        let names = data_of(file, header_at(usize::try_from(unsigned(file, 62, 2)?).ok()?)?)?;
        let section = |header: &'a [u8]| {
            Some(ElfSection {
                name: text_at(names, unsigned(header, 0, 4)?)?,
                kind: unsigned(header, 4, 4)?,
                size: unsigned(header, 32, 8)?,
                data: data_of(file, header)?,
                link: usize::try_from(unsigned(header, 40, 4)?).ok()?,
            })
        };
        headers.chunks_exact(SECTION_HEADER_BYTES).map(section).collect::<Option<Vec<_>>>().map(Self)
    }

    /// The section whose name consists of these parts; `None` if there are two.
    fn section(&self, name: &[&[u8]]) -> Option<Option<&ElfSection<'a>>> {
        let name = name.concat();
        let mut found = self.0.iter().filter(|section| section.name == name);
        let section = found.next();
        found.next().is_none().then_some(section)
    }

    /// The index of a kernel's symbol.
    fn kernel(&self, name: &[u8]) -> Option<u32> {
        let table = self.section(&[b".symtab"])?.filter(|section| section.kind == SHT_SYMTAB)?;
        let names = self.0.get(table.link)?.data;
        let is_kernel = |symbol: &[u8]| {
            let (name_at, info, other) = (unsigned(symbol, 0, 4)?, unsigned(symbol, 4, 1)?, unsigned(symbol, 5, 1)?);
            let is_entry = info & 0xf == STT_FUNC && other & STO_CUDA_ENTRY != 0;
            Some(is_entry && text_at(names, name_at)? == name)
        };
        let mut found = None;
        for (index, symbol) in (0..).zip(table.data.chunks_exact(SYMBOL_BYTES)) {
            if is_kernel(symbol)? && found.replace(index).is_some() {
                return None;
            }
        }
        found
    }
}

/// A section's bytes in the file.
fn data_of<'a>(file: &'a [u8], header: &[u8]) -> Option<&'a [u8]> {
    if unsigned(header, 4, 4)? == SHT_NOBITS {
        return Some(&[]);
    }
    let (at, size) = (usize::try_from(unsigned(header, 24, 8)?).ok()?, usize::try_from(unsigned(header, 32, 8)?).ok()?);
    file.get(at..at.checked_add(size)?)
}

/// The zero-terminated text at this place of a name table.
fn text_at(names: &[u8], at: u64) -> Option<&[u8]> {
    let names = names.get(usize::try_from(at).ok()?..)?;
    let names = names.get(..MAX_NAME_BYTES).unwrap_or(names);
    names.get(..memchr::memchr(0, names)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file of these sections (name, kind, size in memory if not in the file, content) and symbols (name, info,
    /// other).
    fn cubin(sections: &[(&str, u64, u64, &[u8])], symbols: &[(&str, u8, u8)]) -> Vec<u8> {
        let (mut names, mut table) = (vec![0], Vec::new());
        let mut name_at = |name: &str| {
            let at = names.len() as u32;
            names.extend_from_slice(name.as_bytes());
            names.push(0);
            at
        };
        for (name, info, other) in symbols {
            table.extend([&name_at(name).to_le_bytes()[..], &[*info, *other], &[0; 18]].concat());
        }
        let all = [&[("", 0, 0, &[][..])], sections, &[(".symtab", SHT_SYMTAB, 0, &table)]].concat();
        let named: Vec<u32> = all.iter().map(|(name, ..)| name_at(name)).chain([0]).collect();
        let strings = all.len();
        let all = [all, vec![("", 3, 0, names.as_slice())]].concat();
        let (mut headers, mut content) = (Vec::new(), Vec::new());
        for ((_, kind, size, bytes), name) in all.iter().zip(named) {
            let mut header = [0_u8; SECTION_HEADER_BYTES];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[4..8].copy_from_slice(&(*kind as u32).to_le_bytes());
            header[24..32].copy_from_slice(&(64 + content.len() as u64).to_le_bytes());
            header[32..40].copy_from_slice(&size.max(&(bytes.len() as u64)).to_le_bytes());
            header[40] = strings as u8;
            headers.extend(header);
            content.extend_from_slice(bytes);
        }
        let mut file = vec![0_u8; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18] = EM_CUDA as u8;
        file[40..48].copy_from_slice(&(64 + content.len() as u64).to_le_bytes());
        file[58] = SECTION_HEADER_BYTES as u8;
        file[60] = all.len() as u8;
        file[62] = strings as u8;
        [file, content, headers].concat()
    }

    fn info(attributes: &[(u8, u32, u32)]) -> Vec<u8> {
        let of = |(attribute, symbol, value): &(u8, u32, u32)| {
            [&[EIFMT_SVAL, *attribute, 8, 0], &symbol.to_le_bytes()[..], &value.to_le_bytes()].concat()
        };
        attributes.iter().flat_map(of).collect()
    }

    const ENTRY: (&str, u8, u8) = ("k", 0x12, 0x10);

    fn kernel_of(sections: &[(&str, u64, u64, &[u8])], attributes: &[(u8, u32, u32)]) -> Option<KernelUse> {
        let info = info(attributes);
        let sections =
            [sections, &[(".text.k", SHT_PROGBITS, 0, &[0; 48]), (".nv.info", SHT_CUDA_INFO, 0, &info)]].concat();
        // a function of the same name that is not a kernel
        read_kernel(&cubin(&sections, &[("k", 2, 0), ENTRY]), b"k")
    }

    const USUAL: [(u8, u32, u32); 4] = [(0x2f, 0, 9), (0x2f, 1, 40), (0x11, 1, 16), (0x12, 1, 24)];

    #[test]
    fn shared_memory_is_counted_without_what_the_driver_keeps() {
        let with = |shared: u64| Some(KernelUse::new("k", 48, 40, 24, shared));
        assert_eq!(kernel_of(&[], &USUAL), with(0));
        let own = (".nv.shared.k", SHT_NOBITS, 1536, &[][..]);
        let reserved = (".nv.shared.reserved.0", SHT_NOBITS, 64, &[][..]);
        assert_eq!(kernel_of(&[own], &USUAL), with(1536));
        assert_eq!(kernel_of(&[own, reserved], &USUAL), with(512));
        assert_eq!(kernel_of(&[reserved], &USUAL), with(0));
        assert_eq!(kernel_of(&[(".nv.shared.k", SHT_NOBITS, 512, &[]), reserved], &USUAL), None);
    }

    #[test]
    fn what_is_stated_twice_or_not_at_all_is_not_known() {
        assert_eq!(kernel_of(&[], &USUAL[..3]), None);
        assert_eq!(kernel_of(&[], &USUAL[1..2]), None);
        assert_eq!(kernel_of(&[], &[&USUAL[..], &USUAL[1..2]].concat()), None);
        assert_eq!(kernel_of(&[(".text.k", SHT_PROGBITS, 0, &[0; 16])], &USUAL), None);
        assert_eq!(kernel_of(&[(".nv.shared.k", SHT_PROGBITS, 0, &[0; 16])], &USUAL), None);
        // more than a thread can have
        assert_eq!(kernel_of(&[], &[(0x2f, 1, 256), (0x12, 1, 0)]), None);
        assert_eq!(kernel_of(&[], &[(0x2f, 1, 255), (0x12, 1, u32::MAX)]), None);
        let sections = [(".text.k", SHT_PROGBITS, 0, &[0; 48][..]), (".nv.info", SHT_CUDA_INFO, 0, &info(&USUAL))];
        assert!(read_kernel(&cubin(&sections, &[("j", 0, 0), ENTRY]), b"k").is_some());
        assert_eq!(read_kernel(&cubin(&sections, &[ENTRY, ENTRY]), b"k"), None);
        assert_eq!(read_kernel(&cubin(&sections, &[("k", 2, 0)]), b"k"), None);
        for name in [&b""[..], b"j", b"k\n", &[b'k'; 300]] {
            assert_eq!(read_kernel(&cubin(&sections, &[("j", 0, 0), ENTRY]), name), None);
        }
    }

    #[test]
    fn a_cubin_that_is_cut_off_is_none() {
        let sections = [(".text.k", SHT_PROGBITS, 0, &[0; 48][..]), (".nv.info", SHT_CUDA_INFO, 0, &info(&USUAL))];
        let whole = cubin(&sections, &[("j", 0, 0), ENTRY]);
        for cut in 0..whole.len() {
            assert_eq!(read_kernel(&whole[..cut], b"k"), None, "{cut}");
        }
    }
}
