//! The inputs of a job: checked, read, and moved to the devices in the parts that a program takes.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use super::buffer::Buffer;
use super::restore::Restorer;
use super::sharding::Sharding;
use crate::array::ArraySpec;
use crate::failure::{Failure, FailureKind};
use crate::outside_file;
use crate::timer::job::InputArray;
use crate::timer::pjrt::plugin::{Client, PjrtError, one_line, read_bounded};

/// An input as a program takes it: one part on each of its devices.
pub(super) enum ProgramArgument {
    /// On the devices for the whole job.
    Kept(Vec<Buffer>),
    /// Restored before every run.
    Donated(DonatedInput),
}

/// An input that a run destroys.
pub(super) struct DonatedInput {
    input: InputArray,
    sharding: Sharding,
    part: ArraySpec,
    devices: usize,
    /// Its parts on the host, as long as runs are restored from there.
    parts: RefCell<Option<Rc<Vec<Vec<u8>>>>>,
}

impl DonatedInput {
    /// Its parts on the host, read again if they were freed.
    fn parts(&self) -> Result<Rc<Vec<Vec<u8>>>, PjrtError> {
        if let Some(parts) = self.parts.borrow().as_ref() {
            return Ok(Rc::clone(parts));
        }
        let parts = read_parts(&self.input, &self.sharding, self.devices);
        let parts = Rc::new(parts.map_err(|failure| PjrtError::local(failure.message))?);
        *self.parts.borrow_mut() = Some(Rc::clone(&parts));
        Ok(parts)
    }

    /// Bytes of all parts; an empty part is restored like any other.
    pub(super) fn bytes(&self) -> u64 {
        self.part.host_bytes().unwrap_or(u64::MAX).max(1).saturating_mul(self.devices as u64)
    }

    /// Its parts from the host, on consecutive devices from `first` on.
    pub(super) fn brought(&self, client: &Rc<Client>, first: usize) -> Result<Vec<Buffer>, PjrtError> {
        on_devices(client, first, &self.part, &self.parts()?)
    }
}

/// The donated arguments, in order.
pub(super) fn donated(arguments: &[Rc<ProgramArgument>]) -> impl Iterator<Item = &DonatedInput> {
    arguments.iter().filter_map(|argument| match &**argument {
        ProgramArgument::Kept(_) => None,
        ProgramArgument::Donated(donated) => Some(donated),
    })
}

/// Keeps donated inputs on the devices and frees them on the host.
pub(super) fn restorer_of(
    client: &Rc<Client>,
    first: usize,
    devices: usize,
    donated: &[&DonatedInput],
) -> Result<Restorer, PjrtError> {
    let parts = donated.iter().map(|donated| donated.parts()).collect::<Result<Vec<_>, _>>()?;
    let arguments: Vec<_> = donated.iter().zip(&parts).map(|(donated, parts)| (&donated.part, &parts[..])).collect();
    let restorer = Restorer::new(client, first, devices, &arguments)?;
    donated.iter().for_each(|donated| *donated.parts.borrow_mut() = None);
    Ok(restorer)
}

fn wrong_input(input: &InputArray, message: &str) -> Failure {
    Failure::new(FailureKind::Signature, format!("input `{}`: {message}", one_line(&input.name)))
}

/// Checks that an input's file is readable and as long as its array.
pub(super) fn check_input(input: &InputArray) -> Result<(), Failure> {
    let InputArray { spec, path, .. } = input;
    let expected = spec.host_bytes();
    let expected = expected.ok_or_else(|| wrong_input(input, &format!("{spec} is larger than any memory")))?;
    let length = outside_file::open(path, expected).and_then(|file| file.metadata()).map(|metadata| metadata.len());
    match length {
        Ok(length) if length == expected => Ok(()),
        Ok(length) => Err(wrong_input(input, &format!("{length} bytes are not an array {spec}"))),
        Err(error) => Err(wrong_input(input, &format!("{}: cannot be read: {error}", path.display()))),
    }
}

/// Reads an input and loads its parts: onto the devices, or to the host if it is donated.
pub(super) fn load(
    client: &Rc<Client>,
    devices: Range<usize>,
    input: &InputArray,
    sharding: &Sharding,
) -> Result<ProgramArgument, Failure> {
    let wrong = |message: String| wrong_input(input, &message);
    let part = sharding.part_of(&input.spec).map_err(wrong)?;
    if input.donated {
        let parts = read_parts(input, sharding, devices.len())?;
        let (input, sharding, devices) = (input.clone(), sharding.clone(), devices.len());
        let parts = RefCell::new(Some(Rc::new(parts)));
        return Ok(ProgramArgument::Donated(DonatedInput { input, sharding, part, devices, parts }));
    }
    let bytes = read(input)?;
    let parts = (0..devices.len()).map(|device| sharding.slice(&input.spec, &bytes, device));
    let parts = parts.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let kept = on_devices(client, devices.start, &part, &parts);
    kept.map(ProgramArgument::Kept).map_err(|error| wrong(one_line(&error.message)))
}

/// The bytes of an input.
fn read(input: &InputArray) -> Result<Vec<u8>, Failure> {
    let InputArray { spec, path, .. } = input;
    let wrong = |message: String| wrong_input(input, &message);
    let bytes = read_bounded(path, spec.host_bytes().unwrap_or(u64::MAX)).map_err(|error| wrong(error.message))?;
    match spec.host_bytes() == u64::try_from(bytes.len()).ok() {
        true => Ok(bytes),
        false => Err(wrong(format!("{} bytes are not an array {spec}", bytes.len()))),
    }
}

/// The parts of an input on `devices` devices, owned.
fn read_parts(input: &InputArray, sharding: &Sharding, devices: usize) -> Result<Vec<Vec<u8>>, Failure> {
    let bytes = read(input)?;
    if devices == 1 && sharding.is_whole() {
        return Ok(vec![bytes]);
    }
    let parts = (0..devices).map(|device| sharding.slice(&input.spec, &bytes, device).map(Cow::into_owned));
    parts.collect::<Result<_, _>>().map_err(|message| wrong_input(input, &message))
}

/// Transfers parts to consecutive devices from the first on.
fn on_devices(
    client: &Rc<Client>,
    first: usize,
    part: &ArraySpec,
    parts: &[impl AsRef<[u8]>],
) -> Result<Vec<Buffer>, PjrtError> {
    let devices = first..first.saturating_add(parts.len());
    devices.zip(parts).map(|(device, bytes)| Buffer::from_host(client, device, part, bytes.as_ref())).collect()
}
