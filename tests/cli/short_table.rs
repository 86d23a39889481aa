//! Plugins of an older API, with a shorter function table: the real one's, truncated.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use crate::support::prerequisite::plugin;
use crate::support::program::*;

const ADD: &str = "tests/data/timer/add.mlir";

/// The table's first 40 bytes are its size, an extension and the version; a pointer per function follows.
const fn up_to_function(index: usize) -> usize {
    40 + 8 * (index + 1)
}

/// A plugin with a table of this many bytes.
fn short(place: &Place, bytes: usize) -> Option<String> {
    let real = std::path::absolute(plugin()?).unwrap();
    let out = place.text(&format!("short-{bytes}.so"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/pjrt/short_table.c");
    let done = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o", &out])
        .args([format!("-DBYTES={bytes}"), format!("-DPLUGIN=\"{}\"", real.display())])
        .arg(source)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(out)
}

fn compare(place: &Place, plugin: &str) -> Run {
    place.run(&["compare", ADD, ADD, "--timer", "pjrt", "--plugin", plugin])
}

#[test]
fn a_plugin_without_what_came_after_buffers_measures_and_compiles_for_no_absent_device() {
    let place = Place::new();
    // `PJRT_Buffer_ReadyEvent`: no topologies, no memory statistics, no raw copies
    let Some(plugin) = short(&place, up_to_function(72)) else { return };
    let done = compare(&place, &plugin);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let store = place.text("store");
    let arguments = ["compile", ADD, "--target", "cuda:h100_sxm", "--plugin", &plugin, "-o", &store];
    let done = place.run(&arguments);
    assert_eq!(done.code, 5, "{}", done.stderr);
    assert!(done.stderr.contains("this plugin cannot compile without a device"), "{}", done.stderr);
}

#[test]
fn a_plugin_that_lacks_what_is_needed_is_told_apart_from_one_that_dies() {
    let place = Place::new();
    // before `PJRT_Error_Destroy`; up to `PJRT_Plugin_Initialize`, `PJRT_Client_Create`, `PJRT_Client_Compile`
    for (bytes, missing) in [
        (40, "has no function `client_create`; give a newer plugin"),
        (up_to_function(3), "has no function `client_create`; give a newer plugin"),
        (up_to_function(10), "has no function `client_addressable_devices`"),
        (up_to_function(20), "has no function `device_get_description`"),
    ] {
        let Some(plugin) = short(&place, bytes) else { return };
        let done = compare(&place, &plugin);
        assert_eq!(done.code, 5, "{}", done.stderr);
        let last = done.stderr.lines().last().unwrap();
        assert!(last.contains("plugin of an older API") && last.contains(missing), "{bytes}: {}", done.stderr);
    }
}
