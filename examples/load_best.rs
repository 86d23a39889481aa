//! Loads the best config of a call at run time, the way a kernel library would before it launches.
//!
//! `cargo run --example load_best -- CACHE_FOLDER PLATFORM DEVICE_KIND OP KEY [NAME=VALUE…]`, where the last words are
//! the device's hardware part as `autotune-lowered device` prints it.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use autotune_lowered_lookup::cache::{Lookup, Mapping, ShippedConfigs, TieredCache};
use autotune_lowered_lookup::device::{DeviceFingerprint, DeviceIdentity, Environment, MatchMode};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder, platform, device_kind, op, key, hardware @ ..] = words.as_slice() else {
        return Err("five arguments are needed: CACHE_FOLDER PLATFORM DEVICE_KIND OP KEY".into());
    };
    let hardware: BTreeMap<String, String> = hardware
        .iter()
        .filter_map(|part| part.split_once('='))
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    let identity = DeviceIdentity { platform: platform.clone(), device_kind: device_kind.clone(), hardware };
    // a library that knows its driver and plugin fills the environment in; a difference is flagged, not hidden
    let device = DeviceFingerprint { identity, environment: Environment::default() };

    // opened once; `refresh` takes what a tuner published since
    let cache =
        TieredCache::published(Path::new(folder), Mapping::WhereLocal, vec![Box::new(ShippedConfigs::built_in())])?;
    match cache.lookup(&device, op, key, None, MatchMode::Exact)? {
        Lookup::Hit(hit) => {
            println!("{} (from the {} tier)", hit.entry.config, hit.tier);
            hit.flags.iter().for_each(|flag| println!("{:?}: {}", flag.kind, flag.detail));
        }
        Lookup::Miss(miss) => println!("the kernel's default config is used: {}", miss.reason()?),
    }
    Ok(())
}
