//! Which results apply, what a file may contain, and how large it may be.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use crate::support::folder::in_memory;
use crate::support::prerequisite::python3;
use crate::support::shared::*;
use crate::support::{program, xspace};
use autotune_lowered::cache::{
    COMPILER_OPTIONS, CacheKey, Cached, ConfigStore, Entry, FlagKind, FolderLock, Lookup, Mapping, MemoryStore,
    SNAPSHOT_FILE, ShippedConfigs, Snapshot, SnapshotStore, StoreErrorKind, TieredCache, write_shipped, write_snapshot,
};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::device::{DeviceFingerprint, DeviceIdentity, Environment, MatchMode};
use autotune_lowered::exchange::export_json;
use autotune_lowered::ledger::Ledger;
use autotune_lowered::merge::merge;
use autotune_lowered::registry::{Registry, RegistryWriter};
use autotune_lowered::remote::{Address, Remote, Trust};
use autotune_lowered::sled_store::SledStore;

fn device(kind: &str, model: &str) -> DeviceFingerprint {
    let hardware = BTreeMap::from([("cpu_model".to_owned(), model.to_owned())]);
    let identity = DeviceIdentity { platform: "cpu".into(), device_kind: kind.into(), hardware };
    DeviceFingerprint { identity, environment: Environment::default() }
}

/// A look-up's result on a device: the reason of a miss, or the flags of a hit.
fn look(cache: &TieredCache, at: &DeviceFingerprint, mode: MatchMode) -> Result<Vec<FlagKind>, String> {
    match cache.lookup(at, "flash_attention@v2", "a", None, mode).unwrap() {
        Lookup::Hit(hit) => Ok(hit.flags.iter().map(|flag| flag.kind).collect()),
        Lookup::Miss(miss) => Err(miss.reason().unwrap().to_string()),
    }
}

/// The entry belongs to a CPU of the model `simulated`.
fn applies_by_choice_alone(path: &str, cache: &TieredCache) {
    let (own, part, kind) = (device("cpu", "simulated"), device("cpu", "other"), device("other", "simulated"));
    // the wider modes first: their hits must not become this device's own entries
    for _ in 0..2 {
        for (at, mode, flagged) in [
            (&part, MatchMode::Any, true),
            (&part, MatchMode::Kind, true),
            (&kind, MatchMode::Any, true),
            (&own, MatchMode::Exact, false),
            (&own, MatchMode::Any, false),
        ] {
            let expected = if flagged { vec![FlagKind::OtherDevice] } else { Vec::new() };
            assert_eq!(look(cache, at, mode), Ok(expected), "{path}: {} {mode}", at.identity);
        }
        for (at, mode, word) in [
            (&part, MatchMode::Exact, "--match kind"),
            (&kind, MatchMode::Exact, "--match any"),
            (&kind, MatchMode::Kind, "--match any"),
        ] {
            let reason = look(cache, at, mode).unwrap_err();
            assert!(reason.contains(word), "{path}: {reason}");
        }
    }
}

#[test]
fn another_devices_entry_applies_by_choice_alone_and_is_flagged_in_every_tier() {
    let folder = in_memory();
    let path = |name: &str| folder.path().join(name);
    let pair = entry("a", 1, 10);
    let pairs = std::slice::from_ref(&pair);
    let alone = |store: Box<dyn ConfigStore>| TieredCache::new(vec![store]);

    let memory = MemoryStore::default();
    memory.put(&pair.0, &pair.1).unwrap();
    applies_by_choice_alone("memory", &alone(Box::new(memory)));

    let overlaid = TieredCache::new(Vec::new());
    let guard = overlaid.overlay(pairs.to_vec());
    applies_by_choice_alone("overlay", &overlaid);
    drop(guard);

    fs::create_dir(path("sled")).unwrap();
    let (sled, _) = SledStore::open(&path("sled"), false).unwrap();
    sled.put(&pair.0, &pair.1).unwrap();
    applies_by_choice_alone("sled", &alone(Box::new(sled)));

    snapshot(&path("a.snapshot"), pairs);
    for mapping in [Mapping::WhereLocal, Mapping::Never] {
        let store = SnapshotStore::new(Snapshot::open(&path("a.snapshot"), mapping).unwrap());
        applies_by_choice_alone("snapshot", &alone(Box::new(store)));
    }

    write_shipped(&path("shipped"), pairs).unwrap();
    applies_by_choice_alone("shipped", &alone(Box::new(ShippedConfigs::read_folder(&path("shipped")).0)));

    let ledger = Ledger::open(&path("cache"), Vec::new()).unwrap();
    ledger.commit(None, &pair.0, &pair.1).unwrap();
    applies_by_choice_alone("cache folder", ledger.cache());
    let beside = Ledger::open_for_reading(&path("cache"), Vec::new).unwrap();
    assert!(beside.notes()[0].contains("sample log"), "{:?}", beside.notes());
    applies_by_choice_alone("sample log", beside.cache());

    let machine = Machine::new();
    let url = format!("file://{}", path("store").display());
    machine.good(&["cache", "push", &url, &path("a.snapshot").display().to_string()]);
    let pulled = Remote::open(Address::parse(&url).unwrap()).unwrap().pull(&path("copy"), Trust::default()).unwrap();
    applies_by_choice_alone("remote", &alone(Box::new(SnapshotStore::new(pulled.snapshot))));

    machine.good(&["cache", "export", "--format", "json", &machine.text("x.json"), "--cache", &url]);
    machine.good(&["cache", "import", "--format", "json", &machine.text("x.json")]);
    let imported = Ledger::open(&machine.path("cache"), Vec::new()).unwrap();
    applies_by_choice_alone("import", imported.cache());
}

/// Every path of a cache folder that is opened for writing is a link to somebody's file or folder.
#[test]
fn a_cache_folder_leads_nowhere_else() {
    let clean = "clean e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n";
    for name in ["lock", "samples-v1.log", "best-v1.snapshot", "sled-v1", "sled-v1.state", "selftest-v1.json"] {
        // the link's target: nothing, a file, a folder
        for target in [None, Some(Some("")), Some(Some("mine\n")), Some(None)] {
            for state in [None, Some("open\n"), Some(clean)] {
                let (cache, outside) = (in_memory(), in_memory());
                let victim = outside.path().join("victim");
                match target {
                    None => {}
                    Some(Some(text)) => fs::write(&victim, text).unwrap(),
                    Some(None) => fs::create_dir(&victim).unwrap(),
                }
                if let Some(state) = state {
                    fs::write(cache.path().join("sled-v1.state"), state).unwrap();
                    let _ = fs::remove_file(cache.path().join(name));
                }
                symlink(&victim, cache.path().join(name)).unwrap();
                if let Ok(ledger) = Ledger::open(cache.path(), Vec::new()) {
                    let (key, value) = entry("a", 1, 10);
                    let _ = ledger.commit(None, &key, &value);
                    let _ = ledger.publish();
                }
                let what = format!("{name} {target:?} {state:?}");
                match target {
                    None => assert!(fs::symlink_metadata(&victim).is_err(), "{what}"),
                    Some(Some(text)) => assert_eq!(fs::read_to_string(&victim).unwrap(), text, "{what}"),
                    Some(None) => assert_eq!(victim.read_dir().unwrap().count(), 0, "{what}"),
                }
            }
        }
    }
}

/// A config is data: nothing in it is searched for, opened or run.
#[test]
fn a_config_is_data_wherever_it_goes() {
    let (machine, store) = (Machine::new(), in_memory());
    let (witness, url) = (machine.path("witness"), format!("file://{}", store.path().display()));
    let text = format!("$(touch {0}) `touch {0}` ; touch {0}", witness.display());
    let (key, _) = entry("a", 1, 10);
    let key = CacheKey { call: Call::new(format!("../../{text}"), &text), ..key };
    let config =
        serde_json::json!({"config": {"command": text, "timer": "command:touch", "path": "/etc/passwd", "$ref": text}});
    let value: Arc<Entry> = Arc::new(serde_json::from_value(config).unwrap());
    snapshot(&machine.path("a.snapshot"), &[(key, Arc::clone(&value))]);
    machine.good(&["cache", "push", &url, &machine.text("a.snapshot")]);
    machine.good(&["cache", "ls", "--cache", &url]);
    machine.good(&["cache", "export", "--format", "json", &machine.text("x.json"), "--cache", &url]);
    machine.good(&["cache", "import", "--format", "json", &machine.text("x.json")]);
    let written = machine.good(&["cache", "shipped", &machine.text("shipped")]).stdout;
    // the operation's name does not become a path
    let file = Path::new(written.trim_end());
    assert!(file.starts_with(machine.path("shipped")) && !written.contains("..") && file.is_file(), "{written}");
    assert_eq!(ShippedConfigs::read_folder(&machine.path("shipped")).0.entries().unwrap()[0].1, value);
    assert!(!witness.exists());
}

/// As a program of another version, or a hostile one, may have written it.
#[test]
fn compiler_options_on_no_list_are_refused_wherever_they_are() {
    let folder = in_memory();
    let at = device("cpu", "m");
    let key = CacheKey {
        call: Call::new(COMPILER_OPTIONS, "ab".repeat(32)),
        direction: Direction::Forward,
        device: at.identity.clone(),
    };
    let entry = |options: &str| Arc::new(Entry::new(serde_json::from_str(options).unwrap()));
    let write = |options: &str| {
        let file = folder.path().join(SNAPSHOT_FILE);
        write_snapshot(&file, &[(key.clone(), entry(options))]).unwrap();
        TieredCache::published(folder.path(), Mapping::Never, vec![]).unwrap()
    };
    let look = |cache: &TieredCache| {
        let found = cache.lookup(&at, COMPILER_OPTIONS, &key.call.call_key, None, MatchMode::Exact);
        found.map(|found| matches!(found, Lookup::Hit(_))).map_err(|error| (error.kind(), error.to_string()))
    };
    assert_eq!(look(&write(r#"{"xla_cpu_prefer_vector_width":512}"#)), Ok(true));
    for options in [
        r#"{"xla_dump_to":"/x"}"#,
        r#"{"xla_gpu_ptx_compiler_extra_flags":"-o,/x"}"#,
        r#"{"xla_cpu_prefer_vector_width":"/x"}"#,
        r#"{"xla_cpu_prefer_vector_width":512,"xla_of_a_later_version":1}"#,
    ] {
        let cache = write(options);
        let (kind, line) = look(&cache).unwrap_err();
        assert_eq!(kind, StoreErrorKind::Refused, "{line}");
        assert!(line.contains("which is on no list of what an entry may set") && line.lines().count() == 1, "{line}");
        let file = folder.path().join(SNAPSHOT_FILE);
        let caches = [Cached::of_snapshot(Snapshot::open(&file, Mapping::Never).unwrap())];
        assert_eq!(merge(&caches).unwrap_err().kind(), StoreErrorKind::Refused);
        let exported = export_json(&folder.path().join("x.json"), &[(key.clone(), entry(options))]);
        assert!(exported.unwrap_err().to_string().contains("which is on no list"), "{options}");
        // the user's own choice of this run
        let _guard = cache.overlay([(key.clone(), entry(options))]);
        assert_eq!(look(&cache), Ok(true));
    }
}

/// A sparse file of this length: it takes no disk space, but a reader without a limit would load all of it.
fn sparse(path: &Path, length: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    File::create(path).unwrap().set_len(length).unwrap();
}

#[test]
fn every_reader_has_its_limit() {
    let machine = Machine::new();
    let (shipped, registry) = (machine.text("shipped"), machine.text("registry"));
    fs::create_dir_all(machine.path("registry")).unwrap();
    fs::write(machine.path("registry/registry.json"), "{\"kind\":\"autotune-lowered-registry\",\"schema\":1}\n")
        .unwrap();
    let module = program::module();
    let file = machine.text("file");
    let import = |format| vec!["cache", "import", "--format", format, &file];
    let replay = format!("replay:{file}");
    let key = ["cache", "sign", &machine.text("a.snapshot"), "--key", &file];
    snapshot(&machine.path("a.snapshot"), &[entry("a", 1, 1)]);
    let record = format!("registry/invocations/x/{}-{}.json", "0".repeat(16), "0".repeat(64));
    // path, one byte more than its reader accepts, command, exit code
    let readers: Vec<(&str, u64, Vec<&str>, i32)> = vec![
        ("shipped/x.json", 64 << 20, vec!["cache", "ls", "--all", "--shipped", &shipped], 0),
        (&record, 16 << 20, vec!["registry", "verify", &registry], 4),
        ("file", 1 << 30, import("json"), 4),
        ("file", 256 << 20, import("ejkernel"), 4),
        ("file", 256 << 20, import("tokamax"), 4),
        ("file", 16 << 20, vec!["registry", "add", &registry, &file], 4),
        ("file", 1 << 30, vec![&module, "--timer", &replay], 4),
        ("file", 4 << 30, vec!["profile", "timings", &file], 4),
        ("file", 1 << 16, key.to_vec(), 4),
        ("file", 1 << 16, vec!["cache", "ls", "--cache", "file:///nowhere", "--verify-key", &file], 4),
        ("registry/registry.json", 1 << 16, vec!["registry", "ls", &registry], 4),
    ];
    for (path, limit, command, code) in readers {
        sparse(&machine.path(path), limit + 1);
        let mut command = machine.command(&command);
        // a reader without a limit would end here, before it fills the memory
        let run = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(code), "{path}: {stderr}");
        let said = format!("{}{stderr}", String::from_utf8_lossy(&run.stdout));
        let tells = ["bytes", "GiB", "larger", "MiB", "large"].iter().any(|word| said.contains(word));
        assert!(tells, "{path} of {limit}: {said}");
        fs::remove_file(machine.path(path)).unwrap();
    }
}

/// A window's title, a bell, a C1 escape that clears the screen, marks that change the direction of text, and a line
/// that imitates the program's.
const HOSTILE: &str = "x\u{1b}]0;y\u{7}\u{9b}2J\u{202e}z\u{2066}\nFORGED";

/// Checks the output for a terminal; `shown` requires that the text appears, and is not merely left out.
fn is_harmless(what: &str, output: &std::process::Output, shown: bool) {
    let text = [&output.stdout[..], &output.stderr].map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
    for text in &text {
        let raw = ['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}', '\u{2066}'];
        assert!(!text.contains(raw), "{what}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("FORGED")), "{what}: {text:?}");
    }
    assert!(!shown || text.iter().any(|text| text.contains("u{202e}") || text.contains("u202e")), "{what}: {text:?}");
}

#[test]
fn what_others_wrote_steers_no_terminal() {
    let (machine, store) = (Machine::new(), in_memory());
    let look = |what: &str, arguments: &[&str]| {
        is_harmless(what, &machine.command(arguments).output().unwrap(), true);
    };

    // an argument: a path, an option's value, an option; as text and as a log line
    let path = machine.path(HOSTILE).display().to_string();
    look("a path", &["scan", &path]);
    look("a folder", &["registry", "ls", &path]);
    look("a value", &["scan", &program::module(), "--format", HOSTILE]);
    look("a value of our own parser", &[&program::module(), "--devices", HOSTILE]);
    look("an option", &["scan", &format!("--{HOSTILE}")]);
    let lines = machine.command(&["cache", "ls", "--cache"]).arg(OsString::from(&path)).arg("--all").output().unwrap();
    is_harmless("a folder that is none", &lines, false);
    fs::create_dir(machine.path("shipped")).unwrap();
    fs::write(machine.path("shipped").join(format!("{HOSTILE}.json")), HOSTILE).unwrap();
    look("the name of a file of shipped configs", &["cache", "ls", "--all", "--shipped", &machine.text("shipped")]);

    // a lock file written by another process
    let locked = machine.path("locked");
    let held = FolderLock::acquire(&locked).unwrap();
    let line = HOSTILE.replace('\n', " ");
    fs::write(locked.join("lock"), format!("process {} (`{line}`)\n", std::process::id())).unwrap();
    look("a lock", &["cache", "rm", "x", "--cache", &locked.display().to_string()]);
    drop(held);

    // a module's label
    let module = machine.path("module.txt");
    let line = HOSTILE.replace(['\n', '\u{1b}', '\u{7}', ']'], "");
    let op_name = format!("metadata={{op_name=\"my[{line}]\"}}");
    let text = format!("HloModule m\n\nENTRY e {{\n  ROOT p = f32[2]{{0}} parameter(0), {op_name}\n}}\n");
    fs::write(&module, text).unwrap();
    let regex = r"(?P<op>my)\[(?P<key>[^\]]*)\]";
    look("a label", &["scan", &module.display().to_string(), "--label-regex", regex]);
    look("a label in JSON", &["scan", &module.display().to_string(), "--label-regex", regex, "--format", "json"]);

    // a registry's records
    let (from, registry) = (program::example().join("registry"), machine.path("registry"));
    program::copy_folder(&from, &registry);
    let writer = RegistryWriter::create_or_open(&registry).unwrap();
    let recorded = Registry::open(&registry).unwrap();
    let mut invocation = (*recorded.invocations()[0]).clone();
    (invocation.call.op_id, invocation.call.call_key) = (format!("{HOSTILE}@v1"), HOSTILE.to_owned());
    invocation.arguments[0].name = HOSTILE.to_owned();
    writer.store(&invocation).unwrap();
    let registry = registry.display().to_string();
    look("a registry", &["registry", "ls", &registry]);
    look("a registry's JSON", &["registry", "ls", &registry, "--format", "json"]);
    look("a record", &["registry", "show", &registry, &format!("{HOSTILE}@v1")]);
    is_harmless("a registry", &machine.command(&["registry", "verify", &registry]).output().unwrap(), false);

    // a cache's entries, and the manifest of a shared one
    let (key, _) = entry("a", 1, 10);
    let key = CacheKey { call: Call::new(HOSTILE, HOSTILE), ..key };
    let value: Arc<Entry> = Arc::new(serde_json::from_value(serde_json::json!({"config": {"name": HOSTILE}})).unwrap());
    snapshot(&machine.path("a.snapshot"), &[(key, value)]);
    snapshot(&machine.path("b.snapshot"), &[entry("b", 1, 10)]);
    let (a, b) = (machine.text("a.snapshot"), machine.text("b.snapshot"));
    let url = format!("file://{}", store.path().display());
    machine.good(&["cache", "push", &url, &a]);
    for format in ["table", "json"] {
        look("an entry", &["cache", "ls", "--cache", &url, "--format", format]);
        look("a difference", &["cache", "diff", &a, &b, "--format", format]);
    }
    let manifest = serde_json::json!({"schema": 1, "generation": 1, "digest": HOSTILE, "size": 1, "entries": 1});
    fs::write(store.path().join("manifest-v1.json"), manifest.to_string()).unwrap();
    look("a manifest", &["cache", "pull", &url]);

    // a profile's planes, threads and events
    let mut plane = xspace::PlaneBuilder::new(&format!("/device:GPU:0 {HOSTILE}"));
    let event = plane.event((HOSTILE, HOSTILE), 0, 1000, &[]);
    plane.line(HOSTILE, 0, &[event]);
    let ran = [(HOSTILE, HOSTILE, 3, 1, 0, 1000)];
    let profile = machine.path("a.xplane.pb");
    fs::write(&profile, xspace::space(&[plane, xspace::host(&[&ran])]).0).unwrap();
    let profile = profile.display().to_string();
    look("a profile", &["profile", "summary", &profile]);
    for command in ["timings", "collectives", "compile"] {
        let output = machine.command(&["profile", command, &profile, "-vv"]).output().unwrap();
        is_harmless(command, &output, false);
    }

    // a worker: its answer, its own error, an invalid answer, and its stderr
    let worker = machine.path("worker.py");
    let python: String = HOSTILE.chars().map(|letter| format!("\\U{:08x}", u32::from(letter))).collect();
    let script = format!(
        "import json, os, sys\nhostile = '{python}'\nmode = sys.argv[1]\nrequest = json.loads(input())\n\
         if mode == 'error':\n    print(json.dumps({{'id': request['id'], 'error': {{'kind': 'device', 'message': hostile}}}}))\n\
         if mode == 'noise':\n    print(json.dumps(hostile, ensure_ascii=False))\n\
         if mode == 'name':\n    print(json.dumps({{'id': request['id'], 'result': {{'protocol': 9, 'worker': hostile, \
         'capabilities': [], 'source': 'host-wall', 'devices': []}}}}))\n\
         if mode == 'stderr':\n    print('Fatal: ' + hostile.replace(chr(10), ' '), file=sys.stderr)\n    os.abort()\n"
    );
    fs::write(&worker, script).unwrap();
    for mode in ["error", "noise", "name", "stderr"] {
        let command = format!("PYTHONIOENCODING=utf-8 {} '{}' {mode}", python3(), worker.display());
        look(&format!("a worker's {mode}"), &["worker", "check", &command]);
        look(&format!("a worker's {mode}"), &[&program::module(), "--timer", &format!("command:{command}")]);
    }
}
