//! Restores donated inputs on the device, with a program that copies the kept ones.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;
use std::time::Duration;

use super::buffer::Buffer;
use super::executable::{DeviceArguments, Executable};
use crate::array::ArraySpec;
use crate::timer::pjrt::compile::compile_options;
use crate::timer::pjrt::plugin::{Client, PjrtError};

/// Smaller inputs come from the host, because compiling a program that copies them would cost more.
const LEAST_BYTES: u64 = 1 << 20;

/// The donated arguments of one run, each with its part on every device.
pub(crate) type DonatedArguments = Vec<Vec<Buffer>>;

/// Keeps the donated inputs of a program on its devices and copies them there. This takes twice their size.
pub(crate) struct Restorer {
    devices: Vec<OnDevice>,
    bytes: u64,
    is_broken: Cell<bool>,
}

/// The inputs on one device, with the program that copies them.
struct OnDevice {
    copy: Executable,
    kept: Vec<Buffer>,
}

impl Restorer {
    /// Whether inputs of this size are worth it.
    pub(crate) fn is_worth(bytes: u64) -> bool {
        bytes >= LEAST_BYTES
    }

    /// Transfers the parts to consecutive devices from the first on, each argument with its parts on all devices, and
    /// copies them once. It is an error if they do not fit twice, or if the copies differ.
    pub(crate) fn new(
        client: &Rc<Client>,
        first: usize,
        devices: usize,
        arguments: &[(&ArraySpec, &[Vec<u8>])],
    ) -> Result<Self, PjrtError> {
        let code = program(arguments.iter().map(|(spec, _)| *spec));
        let on_device = |number: usize| {
            let device = first.saturating_add(number);
            let id = if device == 0 { None } else { Some(client.describe(device)?.id) };
            let copy = Executable::compile(client, code.as_bytes(), "mlir", &compile_options(id, &BTreeMap::new()))?;
            let parts = arguments.iter().map(|(spec, parts)| {
                let part = parts.get(number).ok_or_else(|| PjrtError::local("an argument has no part on a device"))?;
                Buffer::from_host(client, device, spec, part)
            });
            Ok(OnDevice { copy, kept: parts.collect::<Result<_, PjrtError>>()? })
        };
        let on_devices = (0..devices).map(on_device).collect::<Result<Vec<_>, PjrtError>>()?;
        let lengths = arguments.iter().flat_map(|(_, parts)| parts.iter().map(|part| part.len() as u64));
        let restorer =
            Self { devices: on_devices, bytes: lengths.fold(0, u64::saturating_add), is_broken: Cell::new(false) };
        let copied = restorer.copies()?;
        for ((spec, parts), copies) in arguments.iter().zip(&copied) {
            for (part, copy) in parts.iter().zip(copies) {
                if copy.to_host(spec)? != *part {
                    return Err(PjrtError::local("a copy on the device differs from the original"));
                }
            }
        }
        Ok(restorer)
    }

    /// Bytes of one copy of everything, on all devices together.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a copy failed, for example because a program that was loaded later took the memory.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.get()
    }

    /// Copies for one run. After an error it is broken.
    pub(crate) fn copies(&self) -> Result<DonatedArguments, PjrtError> {
        let copied = self.devices.iter().map(OnDevice::copies).collect::<Result<Vec<_>, _>>();
        let copied = copied.inspect_err(|_| self.is_broken.set(true))?;
        let mut by_argument: DonatedArguments = Vec::new();
        for parts in copied {
            by_argument.resize_with(by_argument.len().max(parts.len()), Vec::new);
            for (argument, part) in by_argument.iter_mut().zip(parts) {
                argument.push(part);
            }
        }
        Ok(by_argument)
    }
}

impl OnDevice {
    fn copies(&self) -> Result<Vec<Buffer>, PjrtError> {
        // the program must not take them over; therefore each result is a new array
        let arguments: Vec<_> = self.kept.iter().map(|kept| (std::slice::from_ref(kept), false)).collect();
        let (copies, _) = self.copy.run(&DeviceArguments::new(1, &arguments)?, Duration::ZERO)?;
        match copies.len() == self.kept.len() {
            true => Ok(copies),
            false => Err(PjrtError::local(format!("{} copies of {} arrays", copies.len(), self.kept.len()))),
        }
    }
}

/// A program that returns its arguments.
fn program<'a>(specs: impl Iterator<Item = &'a ArraySpec>) -> String {
    let (mut taken, mut names, mut types) = (String::new(), String::new(), String::new());
    for (index, spec) in specs.enumerate() {
        let mut kind = "tensor<".to_owned();
        for dim in &spec.dims {
            // writing to a string never fails
            let _ = write!(kind, "{dim}x");
        }
        let _ = write!(kind, "{}>", spec.dtype.stablehlo_name());
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(taken, "{comma}%arg{index}: {kind}");
        let _ = write!(names, "{comma}%arg{index}");
        let _ = write!(types, "{comma}{kind}");
    }
    format!(
        "module @autotune_lowered_restore {{\n  func.func public @main({taken}) -> ({types}) {{\n    \
         return {names} : {types}\n  }}\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_gives_what_it_takes() {
        let specs: Vec<ArraySpec> = ["bf16[2,3]", "c64[]", "pred[4]"].map(|spec| spec.parse().unwrap()).to_vec();
        let text = program(specs.iter());
        let types = "tensor<2x3xbf16>, tensor<complex<f32>>, tensor<4xi1>";
        assert!(text.contains(&format!("-> ({types})")), "{text}");
        assert!(text.contains(&format!("return %arg0, %arg1, %arg2 : {types}")), "{text}");
        assert!(text.contains("(%arg0: tensor<2x3xbf16>, %arg1: tensor<complex<f32>>, %arg2: tensor<4xi1>)"), "{text}");
    }
}
