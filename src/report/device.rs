//! The devices of timers and plugins.

use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;
use serde_json::json;

use crate::device::DeviceFingerprint;
use crate::timer::pjrt::ProbedPlugin;

use super::Document;
use super::lines::line;

/// A timer's devices.
pub struct DevicesOf {
    /// As `--timer` names it.
    pub timer: String,
    /// The plugin, if it uses one.
    pub plugin: Option<PathBuf>,
    /// The name of the plugin, or of the timer.
    pub name: String,
    /// What it was found by.
    pub origin: String,
    /// Its devices.
    pub probed: ProbedPlugin,
}

/// Timers and their devices.
pub struct ShownDevices(pub Vec<DevicesOf>);

impl Document for ShownDevices {
    fn into_json(self) -> impl Serialize {
        let of_timer = |DevicesOf { timer, plugin, name, origin, probed }: &DevicesOf| {
            let device = |device: &DeviceFingerprint| {
                json!({"identity": device.identity, "environment": device.environment,
                           "portable": device.to_portable(), "digest": device.identity.to_digest()})
            };
            let devices: Vec<_> = probed.devices.iter().map(device).collect();
            let mut shown = json!({"timer": timer, "name": name, "origin": origin, "devices": devices});
            if let Some(plugin) = plugin {
                shown["plugin"] = json!(plugin);
            }
            if let Some(clocks) = probed.clocks {
                shown["clocks"] = json!(clocks);
            }
            if !probed.notes.is_empty() {
                shown["notes"] = json!(probed.notes);
            }
            shown
        };
        json!({"schema": 1, "plugins": self.0.iter().map(of_timer).collect::<Vec<_>>()})
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        for DevicesOf { plugin, name, origin, probed, .. } in &self.0 {
            match plugin {
                Some(plugin) => line!(out, "{name} ({}, from {origin})", plugin.display())?,
                None => line!(out, "{name} (from {origin})")?,
            }
            for (index, device) in probed.devices.iter().enumerate() {
                describe(index, device, out)?;
            }
            if let Some(clocks) = probed.clocks {
                line!(out, "  clocks: {clocks}")?;
            }
            for note in &probed.notes {
                line!(out, "  {note}")?;
            }
        }
        Ok(())
    }
}

fn describe(index: usize, device: &DeviceFingerprint, out: &mut dyn Write) -> io::Result<()> {
    let environment = &device.environment;
    line!(out, "  device {index}: {}", device.identity)?;
    writeln!(out, "    identity   {}", device.identity.to_digest().to_short())?;
    line!(out, "    portable   {}", device.to_portable().replace('\n', "\\n"))?;
    match environment.plugin_digest {
        Some(digest) => {
            let api = environment.plugin_api.as_deref().unwrap_or("unknown");
            line!(out, "    plugin     {}, PJRT C API {api}", digest.to_short())?;
        }
        None => line!(out, "    version    {}", environment.platform_version.replace('\n', "\\n"))?,
    }
    if let Some(driver) = &environment.driver {
        line!(out, "    driver     {driver}")?;
    }
    if !environment.xla_flags.is_empty() {
        line!(out, "    XLA flags  {}", environment.xla_flags.join(" "))?;
    }
    if let Some(autotuning) = &environment.xla_autotuning {
        line!(out, "    autotuning {autotuning} (XLA's own, as it compiles)")?;
    }
    Ok(())
}
