//! The device that a look-up is for.

use autotune_lowered_lookup::device::{DeviceFingerprint, DeviceIdentity, Environment};
use autotune_lowered_lookup::digest::Digest;
use serde_json::Value;

use crate::fault::{Fault, Status};

/// What `autotune-lowered device --format json` prints has some KiB.
const MOST_BYTES: usize = 16 << 20;

/// A device with its software. The content of an `atl_device`.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) fingerprint: DeviceFingerprint,
    /// Equal only for equal fingerprints: half of their SHA-256.
    pub(crate) id: u128,
}

impl Device {
    fn new(fingerprint: DeviceFingerprint) -> Result<Self, Fault> {
        let text = serde_json::to_vec(&fingerprint).map_err(not_a_device)?;
        let digest = Digest::of(&text);
        let (half, _) = digest.as_bytes().split_first_chunk().unwrap_or((&[0; 16], &[]));
        Ok(Self { fingerprint, id: u128::from_le_bytes(*half) })
    }

    /// From a fingerprint as `autotune-lowered device --format json` prints it, or the first one of all that it prints.
    pub(crate) fn from_json(json: &str) -> Result<Self, Fault> {
        if json.len() > MOST_BYTES {
            return Err(Fault::argument(
                "json",
                &format!("has {} bytes, where at most {MOST_BYTES} are allowed", json.len()),
            ));
        }
        let mut value: Value = serde_json::from_str(json).map_err(not_a_device)?;
        let first = value.pointer_mut("/plugins/0/devices/0").map(Value::take);
        Self::new(serde_json::from_value(first.unwrap_or(value)).map_err(not_a_device)?)
    }

    /// From its parts; `environment` is JSON.
    pub(crate) fn from_parts(identity: DeviceIdentity, environment: Option<&str>) -> Result<Self, Fault> {
        let environment = match environment {
            None => Environment::default(),
            Some(json) => serde_json::from_str(json).map_err(not_a_device)?,
        };
        Self::new(DeviceFingerprint { identity, environment })
    }
}

fn not_a_device(error: serde_json::Error) -> Fault {
    let text = format!("not a device fingerprint: {error}; `autotune-lowered device --format json` prints one");
    Fault::new(Status::BadArgument, text)
}
