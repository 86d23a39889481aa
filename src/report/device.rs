//! The devices of plugins.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::json;

use crate::device::DeviceFingerprint;
use crate::timer::pjrt::{FoundPlugin, Probed};

use super::{Document, write_line};

/// Plugins and their devices.
pub struct Plugins(pub Vec<(FoundPlugin, Probed)>);

impl Document for Plugins {
    fn into_json(self) -> impl Serialize {
        let plugins: Vec<_> = self
            .0
            .iter()
            .map(|(plugin, probed)| {
                let devices: Vec<_> = probed
                    .devices
                    .iter()
                    .map(|device| {
                        json!({"identity": device.identity, "environment": device.environment,
                                   "portable": device.to_portable(), "digest": device.identity.to_digest()})
                    })
                    .collect();
                let mut shown =
                    json!({"plugin": plugin.path, "name": plugin.name, "origin": plugin.origin, "devices": devices});
                if let Some(clocks) = probed.clocks {
                    shown["clocks"] = json!(clocks);
                }
                if !probed.notes.is_empty() {
                    shown["notes"] = json!(probed.notes);
                }
                shown
            })
            .collect();
        json!({"schema": 1, "plugins": plugins})
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        for (plugin, probed) in &self.0 {
            write_line(out, format_args!("{} ({}, from {})", plugin.name, plugin.path.display(), plugin.origin))?;
            for (index, device) in probed.devices.iter().enumerate() {
                describe(index, device, out)?;
            }
            if let Some(clocks) = probed.clocks {
                write_line(out, format_args!("  clocks: {clocks}"))?;
            }
            for note in &probed.notes {
                write_line(out, format_args!("  {note}"))?;
            }
        }
        Ok(())
    }
}

fn describe(index: usize, device: &DeviceFingerprint, out: &mut dyn Write) -> io::Result<()> {
    let environment = &device.environment;
    write_line(out, format_args!("  device {index}: {}", device.identity))?;
    writeln!(out, "    identity   {}", device.identity.to_digest().to_short())?;
    write_line(out, format_args!("    portable   {}", device.to_portable().replace('\n', "\\n")))?;
    let plugin_digest = environment.plugin_digest.map_or_else(String::new, |digest| digest.to_short());
    let api = environment.plugin_api.as_deref().unwrap_or("unknown");
    write_line(out, format_args!("    plugin     {plugin_digest}, PJRT C API {api}"))?;
    if let Some(driver) = &environment.driver {
        write_line(out, format_args!("    driver     {driver}"))?;
    }
    if !environment.xla_flags.is_empty() {
        write_line(out, format_args!("    XLA flags  {}", environment.xla_flags.join(" ")))?;
    }
    if let Some(autotuning) = &environment.xla_autotuning {
        write_line(out, format_args!("    autotuning {autotuning} (XLA's own, as it compiles)"))?;
    }
    Ok(())
}
