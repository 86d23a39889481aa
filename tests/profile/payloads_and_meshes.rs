//! Labels beside the scopes, and groups along the axes of a mesh, in profiles: the files were written by hand after
//! those of jaxlib 0.12, and their numbers are in `tests/data/xplane/README.md`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use autotune_lowered::analysis::collectives::{Clocks, CollectiveKind, Role, collective_metrics, collectives};
use autotune_lowered::analysis::{Capture, HloFiles, SummaryOptions, summarize};
use autotune_lowered::hlo::HloModule;
use autotune_lowered::profile::captures;

use crate::support::xspace::Message;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn opened(capture: &str, hlo: &str) -> (Vec<Capture>, HloFiles) {
    let read = captures(&data(capture)).unwrap();
    (read.into_iter().map(Capture::from).collect(), HloFiles::open(&[data(hlo)]).unwrap())
}

#[test]
fn a_payload_is_the_label_of_its_operations() {
    let (captures, files) = opened("xplane/payload/gate.xplane.pb", "hlo/payload/gate.hlo.pb");
    let summary = summarize(&captures, &files, SummaryOptions::default().counting(true.into()));
    let [label] = &summary.labels[..] else { panic!("{:?}", summary.labels) };
    assert_eq!(label.label.op_name(), "demo.ops.gate.Gate");
    assert_eq!(label.label.call_key.as_deref(), Some("20aca138f7d758aa"));
    // 600 us of the product and 200 us of tanh, of 1000 us
    assert!((label.share - 0.8).abs() < 1e-9, "{}", label.share);
}

#[test]
fn groups_along_an_axis_have_their_size_and_bandwidth() {
    let (captures, files) = opened("xplane/mesh/m.xplane.pb", "xplane/mesh/m.hlo.pb");
    let found = collectives(&captures, &files, true);
    let rows = collective_metrics(&found, Clocks::Recorded).operations;
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.name.as_str(), row.kind, row.group_size), ("psum.1", CollectiveKind::AllReduce, Some(2)));
    // 1024 f32 in 100 us; of an all-reduce of two, 2 (n - 1) / n is 1
    assert_eq!(row.message_bytes, Some(4096));
    let [algorithm, bus] = [row.figures.algorithm_gb_per_s, row.figures.bus_gb_per_s].map(|one| one.unwrap().mean);
    assert!((algorithm - 0.04096).abs() < 1e-9 && (bus - 0.04096).abs() < 1e-9, "{algorithm} {bus}");
}

/// An all-reduce whose groups are these fields, in a program of four devices.
fn group_size(groups: impl FnOnce(Message) -> Message) -> Option<u64> {
    let shape = Message::default().number(2, 11).bytes(3, [4]);
    let instruction = Message::default().bytes(1, "r").bytes(2, "all-reduce").message(3, &shape).number(35, 1);
    let main = Message::default().bytes(1, "main").message(2, &groups(instruction)).number(5, 1);
    let device = |id: i64| Message::default().bytes(1, [id as u8]);
    let devices = (0..4).fold(Message::default(), |devices, id| devices.message(3, &device(id)));
    let module = Message::default().bytes(1, "m").bytes(2, "main").message(3, &main).message(15, &devices);
    let module = HloModule::read(&module.0, "m").unwrap();
    match Role::of(&module, &module.instructions[0]) {
        Role::Communication(communication) => communication.group_size,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_form_of_groups_has_its_size() {
    let group = |ids: &[u8]| Message::default().bytes(1, ids);
    let grid = Message::default().number(1, 2).number(2, 2).bytes(3, [2, 2]).bytes(4, [1, 0]);
    let axis = |name: &str, size| Message::default().bytes(1, name).number(2, size);
    let mesh = Message::default().message(1, &axis("x", 4));
    let whole = Message::default().message(1, &mesh).message(2, &Message::default());
    let part = Message::default().number(1, 2).number(2, 2);
    let of_part = Message::default().message(1, &mesh).message(2, &Message::default().message(2, &part));
    assert_eq!(group_size(|one| one.message(49, &group(&[0, 1])).message(49, &group(&[2, 3]))), Some(2));
    assert_eq!(group_size(|one| one.message(87, &Message::default().message(1, &group(&[0, 1, 2, 3])))), Some(4));
    assert_eq!(group_size(|one| one.message(87, &Message::default().message(2, &grid))), Some(2));
    assert_eq!(group_size(|one| one.message(92, &grid)), Some(2));
    assert_eq!(group_size(|one| one.message(93, &whole)), Some(4));
    assert_eq!(group_size(|one| one.message(93, &of_part)), Some(2));
    // no group is named: all devices
    assert_eq!(group_size(|one| one), Some(4));
    // a later form, and a mesh without its axis
    assert_eq!(group_size(|one| one.message(94, &mesh)), None);
    assert_eq!(group_size(|one| one.message(93, &Message::default().message(2, &Message::default()))), None);
}
