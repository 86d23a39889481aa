//! Outputs that other outputs are compared with. If the device can copy parts of its arrays, both stay there and are
//! compared block by block, so that the host holds at most two blocks.

use std::borrow::Cow;
use std::ops::Range;

use super::buffer::Buffer;
use crate::array::{ArraySpec, Counting, Finiteness, Tolerance};
use crate::digest::{Digest, DigestWriter};
use crate::timer::compared_blocks::ComparedBlocks;
use crate::timer::pjrt::plugin::PjrtError;
use crate::timer::protocol::{ComparedOutput, KeptOutput};

/// Maximum bytes of an array that are compared at a time.
pub(crate) const BLOCK_BYTES: u64 = 64 << 20;

/// A whole array from a run.
pub(crate) struct RunOutput {
    spec: ArraySpec,
    place: OutputPlace,
}

/// Where the array is.
enum OutputPlace {
    Device(Buffer),
    Host(Vec<u8>),
}

impl RunOutput {
    /// An array that stays on the device.
    pub(crate) fn on_device(buffer: Buffer) -> Result<Self, PjrtError> {
        Ok(Self { spec: buffer.spec()?, place: OutputPlace::Device(buffer) })
    }

    /// An array that is on the host.
    pub(crate) fn here(spec: ArraySpec, bytes: Vec<u8>) -> Self {
        Self { spec, place: OutputPlace::Host(bytes) }
    }

    pub(crate) fn spec(&self) -> &ArraySpec {
        &self.spec
    }

    /// All of its bytes.
    pub(crate) fn into_bytes(self) -> Result<Vec<u8>, PjrtError> {
        match self.place {
            OutputPlace::Device(buffer) => buffer.to_host(&self.spec),
            OutputPlace::Host(bytes) => Ok(bytes),
        }
    }

    fn fetched(self) -> Result<Self, PjrtError> {
        let spec = self.spec.clone();
        self.into_bytes().map(|bytes| Self::here(spec, bytes))
    }

    /// The same array, moved to the host if its device cannot copy parts of it.
    fn in_parts(self) -> Result<Self, PjrtError> {
        let gives_none = matches!(&self.place, OutputPlace::Device(buffer) if !buffer.gives_parts(&self.spec));
        if gives_none { self.fetched() } else { Ok(self) }
    }

    /// The byte ranges of its blocks, each of whole elements and about `bytes` long.
    fn blocks(&self, bytes: u64) -> impl Iterator<Item = Range<usize>> + use<> {
        let width = self.spec.dtype.host_bytes();
        let block = usize::try_from(bytes).unwrap_or(usize::MAX / 2).max(1).div_ceil(width).saturating_mul(width);
        let all = self.spec.host_bytes().and_then(|all| usize::try_from(all).ok()).unwrap_or(0);
        (0..all).step_by(block).map(move |start| start..start.saturating_add(block).min(all))
    }

    fn block(&self, range: &Range<usize>) -> Result<Cow<'_, [u8]>, PjrtError> {
        match &self.place {
            OutputPlace::Device(buffer) => buffer.part(range.start, range.len()).map(Cow::Owned),
            OutputPlace::Host(bytes) => {
                let block = bytes.get(range.clone());
                block.map(Cow::Borrowed).ok_or_else(|| PjrtError::local("an array of fewer bytes than its type says"))
            }
        }
    }
}

/// An output of the baseline.
pub(crate) struct BaselineOutput {
    array: RunOutput,
    block_bytes: u64,
    digest: Digest,
    /// One for each block if blocks have to be fetched, because equal digests spare a comparison.
    digests: Vec<Digest>,
    finiteness: Finiteness,
}

impl BaselineOutput {
    /// Reads the array once. It stays on the device if it may and the device can copy parts of it.
    pub(crate) fn new(array: RunOutput, may_stay: bool, block_bytes: u64) -> Result<Self, PjrtError> {
        let array = if may_stay { array.in_parts() } else { array.fetched() }?;
        let is_on_device = matches!(array.place, OutputPlace::Device(_));
        let (mut whole, mut counting) = (DigestWriter::default(), Counting::new(array.spec.dtype));
        let mut digests = Vec::new();
        for range in array.blocks(block_bytes) {
            let block = array.block(&range)?;
            whole.add(&block);
            counting.block(&block);
            digests.extend(is_on_device.then(|| Digest::of(&block)));
        }
        Ok(Self { array, block_bytes, digest: whole.finish(), digests, finiteness: counting.finish() })
    }

    pub(crate) fn to_message(&self) -> KeptOutput {
        KeptOutput::looked_at(self.array.spec.clone(), self.digest, self.finiteness)
    }

    /// Compares an output with this one.
    pub(crate) fn compare(&self, own: RunOutput, tolerance: Tolerance) -> Result<ComparedOutput, PjrtError> {
        if own.spec != self.array.spec {
            return Ok(ComparedOutput::spec_only(own.spec));
        }
        let own = own.in_parts()?;
        let mut compared = ComparedBlocks::new(own.spec.clone(), tolerance, self.finiteness.rms);
        for (number, range) in own.blocks(self.block_bytes).enumerate() {
            let block = own.block(&range)?;
            if self.digests.get(number).is_some_and(|digest| Digest::of(&block) == *digest) {
                compared.pass(block.len());
            } else {
                compared.block(&block, &self.array.block(&range)?);
            }
        }
        Ok(compared.finish())
    }
}
