//! Shared caches in a folder: everything but the network.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use crate::support::folder::in_memory;
use crate::support::prerequisite::plugin;
use crate::support::program::*;
use crate::support::shared::*;
use autotune_lowered::cache::FolderLock;
use autotune_lowered::digest::Digest;
use autotune_lowered::remote::{Address, Pushing, Remote};
use autotune_lowered::signature::{PrivateKey, Signature, Signatures, Statement};
use ed25519_dalek::{Signer, SigningKey};
use serde_json::{Value, json};

fn url(folder: &Path) -> String {
    format!("file://{}", folder.display())
}

fn manifest(store: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(store.join("manifest-v1.json")).unwrap()).unwrap()
}

#[test]
fn what_cannot_be_published_says_what_to_do() {
    let (machine, store) = (Machine::new(), in_memory());
    snapshot(&machine.path("a.snapshot"), &[entry("a", 1, 10)]);
    // the kernel's own file systems take no folder, from nobody
    let refused = machine.run(&["cache", "push", "file:///sys/shared", &machine.text("a.snapshot")]);
    assert_eq!(refused.code, CACHE_TROUBLE, "{}", refused.stderr);
    let fault = refused.fault();
    assert!(fault.contains("choose another folder") && !fault.contains("credentials"), "{fault}");
    // the cache is no argument
    fs::create_dir(machine.path("tuned")).unwrap();
    let folder = machine.text("tuned");
    let named = machine.run(&["cache", "push", &url(store.path()), &folder]);
    assert_eq!(named.code, USAGE, "{}", named.stderr);
    assert!(named.fault().contains(&format!("`--cache {folder}`")), "{}", named.stderr);
}

#[test]
fn the_first_run_that_publishes_is_no_trouble() {
    let (machine, store) = (Machine::new(), in_memory());
    write_replay(&example().join("registry"), &machine.path("replay.json"));
    let timer = measured_as_in(&machine.path("replay.json"));
    let words = [&*module(), "--timer", &timer, "--cache", &url(store.path()), "-v"].map(str::to_owned);
    let first = machine.good(&words.each_ref().map(String::as_str));
    let warned = first.stderr.lines().any(|line| line.contains("WARN") && line.contains("published"));
    assert!(!warned && first.stderr.contains("this run publishes"), "{}", first.stderr);
    assert_eq!(manifest(store.path())["generation"], 1);
    // a look-up in a URL with nothing is another matter
    let empty = machine.good(&["cache", "ls", "--cache", &url(machine.home.path())]);
    assert!(empty.stderr.contains("WARN nothing is published"), "{}", empty.stderr);
}

#[test]
fn what_one_machine_publishes_another_one_loads() {
    let (one, other, store) = (Machine::new(), Machine::new(), in_memory());
    let url = url(store.path());
    let nothing = other.run(&["cache", "pull", &url]);
    assert_eq!(nothing.code, 3, "{}", nothing.stderr);
    assert!(nothing.fault().contains("nothing is published"), "{}", nothing.stderr);

    let digest = snapshot(&one.path("a.snapshot"), &[entry("a", 1, 10), entry("b", 1, 10)]);
    let pushed = one.good(&["cache", "push", &url, &one.text("a.snapshot")]);
    assert_eq!(pushed.stdout, format!("{digest}  {url}\n"));
    assert_eq!(manifest(store.path())["generation"], 1);
    assert!(store.path().join(format!("snapshots/sha256-{digest}.snapshot")).is_file());

    let pulled = other.good(&["cache", "pull", &url, &other.text("x.snapshot"), "-v"]);
    assert_eq!(pulled.stdout, format!("{digest}  {}\n", other.text("x.snapshot")));
    assert!(pulled.stderr.contains("fetched"), "{}", pulled.stderr);
    assert_eq!(fs::read(other.path("x.snapshot")).unwrap(), fs::read(one.path("a.snapshot")).unwrap());
    let again = other.good(&["cache", "pull", &url, &other.text("x.snapshot"), "-v"]);
    assert!(again.stderr.contains("here already"), "{}", again.stderr);

    // a later decision replaces an earlier one in either direction, and entries of only one cache stay
    snapshot(&other.path("b.snapshot"), &[entry("b", 2, 20), entry("c", 2, 20), entry("a", 2, 5)]);
    other.good(&["cache", "push", &url, &other.text("b.snapshot")]);
    one.good(&["cache", "pull", &url, &one.text("y.snapshot")]);
    let expected = [("a", "block=1"), ("b", "block=2"), ("c", "block=2")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(blocks(&one.path("y.snapshot")), BTreeMap::from(expected));
    // without anything new, there is no new generation
    one.good(&["cache", "push", &url, &one.text("a.snapshot")]);
    assert_eq!(manifest(store.path())["generation"], 2);

    // a look-up by URL sees the published entries, and this machine's folder for it stays empty
    let listed = one.good(&["cache", "ls", "--cache", &url, "--format", "json"]).json();
    let tiers: Vec<&Value> = listed["entries"].as_array().unwrap().iter().map(|entry| &entry["tier"]).collect();
    assert_eq!(tiers, [&json!("snapshot"); 3]);

    one.good(&["cache", "push", "--replace", &url, &one.text("a.snapshot")]);
    let digest_now = manifest(store.path())["digest"].as_str().unwrap().to_owned();
    assert_eq!((digest_now, manifest(store.path())["generation"].clone()), (digest, json!(3)));
}

#[test]
fn processes_that_publish_at_once_lose_nothing() {
    let store = in_memory();
    let url = url(store.path());
    let machines: Vec<Machine> = (0..8).map(|_| Machine::new()).collect();
    let mut children = Vec::new();
    for (number, machine) in machines.iter().enumerate() {
        let entries: Vec<_> = (0..5).map(|call| entry(&format!("{number}-{call}"), number as u64, 1)).collect();
        snapshot(&machine.path("a.snapshot"), &entries);
        children.push(
            machine
                .command(&["cache", "push", &url, &machine.text("a.snapshot")])
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        );
    }
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let reader = Machine::new();
    reader.good(&["cache", "pull", &url, &reader.text("x.snapshot")]);
    assert_eq!(calls(&reader.path("x.snapshot")).len(), 40);
    assert_eq!(manifest(store.path())["generation"], 8, "each published once");
    assert_eq!(manifest(store.path())["entries"], 40);
}

/// The last step of publishing is conditional: if the manifest changed meanwhile, it is merged, not overwritten.
#[test]
fn a_stale_writer_merges_again() {
    let (folder, store) = (in_memory(), in_memory());
    let remote = || Remote::open(Address::parse(&url(store.path())).unwrap()).unwrap();
    let push = |name: &str, entries: &[_], replace| {
        let pushing = Pushing::new(entries).replace(replace);
        remote().push(&folder.path().join(name), pushing).unwrap()
    };
    push("one", &[entry("a", 1, 1)], false);
    // the other's copy is out of date, and is not used as the current one
    push("other", &[entry("b", 1, 1)], false);
    let last = push("one", &[entry("c", 1, 1)], false);
    assert_eq!((last.manifest.generation, last.manifest.entries), (3, 3));
    assert_eq!(calls(&folder.path().join("one")).len(), 3);
}

/// A publisher that is overtaken between storing its snapshot and replacing the manifest. `before` is published first,
/// each with a flag for replacing what is there, and `winning` while the publisher waits. It pushes the call `a`.
/// Returns the store's files afterwards, with the digest of its own snapshot.
fn overtaken(before: &[(&[&str], bool)], winning: &[(&[&str], bool)]) -> (Vec<String>, String, Value) {
    let (loser, store, other) = (Machine::new(), in_memory(), in_memory());
    let push = |store: &Path, calls: &[&str], replace| {
        let entries: Vec<_> = calls.iter().map(|call| entry(call, 1, 1)).collect();
        let copy = in_memory();
        let remote = Remote::open(Address::parse(&url(store)).unwrap()).unwrap();
        let pushing = Pushing::new(&entries).replace(replace);
        remote.push(&copy.path().join("copy"), pushing).unwrap().manifest.digest.to_string()
    };
    for (calls, replace) in before {
        push(store.path(), calls, *replace);
    }
    // the winners publish in another folder, which then replaces this one
    copy_folder(store.path(), other.path());
    let (tried, tried_in) = (in_memory(), |digest: &str| format!("snapshots/sha256-{digest}.snapshot"));
    copy_folder(store.path(), tried.path());
    let stored = push(tried.path(), &["a"], false);
    let inode = || fs::metadata(store.path().join(tried_in(&stored))).map(|metadata| metadata.ino()).ok();
    let inode_before = inode();

    let lock = FolderLock::acquire(store.path()).unwrap();
    snapshot(&loser.path("a.snapshot"), &[entry("a", 1, 1)]);
    let words = ["cache", "push", &url(store.path()), &loser.text("a.snapshot")];
    let mut child = loser.command(&words).stdout(Stdio::null()).spawn().unwrap();
    // it has stored its snapshot and waits for the lock
    while inode().is_none() || inode() == inode_before {
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::yield_now();
    }
    for (calls, replace) in winning {
        push(other.path(), calls, *replace);
    }
    for item in fs::read_dir(other.path().join("snapshots")).unwrap().map(Result::unwrap) {
        fs::copy(item.path(), store.path().join("snapshots").join(item.file_name())).unwrap();
    }
    fs::copy(other.path().join("manifest-v1.json"), store.path().join("new")).unwrap();
    fs::rename(store.path().join("new"), store.path().join("manifest-v1.json")).unwrap();
    drop(lock);
    assert!(child.wait().unwrap().success());
    loser.good(&["cache", "pull", &url(store.path()), &loser.text("x.snapshot")]);
    assert!(calls(&loser.path("x.snapshot")).contains("a"), "what was pushed is there");
    let mut names: Vec<String> = fs::read_dir(store.path().join("snapshots"))
        .unwrap()
        .map(|item| item.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    (names, stored, manifest(store.path()))
}

/// The snapshot of a lost race is removed; a snapshot named by any manifest, of any publisher, stays.
#[test]
fn only_snapshots_that_nobody_named_are_removed() {
    let base: (&[&str], bool) = (&["base"], false);
    let holds = |names: &[String], digest: &str| names.contains(&format!("sha256-{digest}.snapshot"));
    let in_force = |manifest: &Value| manifest["digest"].as_str().unwrap().to_owned();

    let (names, stored, manifest) = overtaken(&[base], &[(&["b"], false)]);
    assert_eq!(manifest["generation"], 3);
    assert!(!holds(&names, &stored) && holds(&names, &in_force(&manifest)), "{names:?}");
    assert_eq!(names.len(), 3, "each generation's own: {names:?}");

    // the very first publication, and a winner that replaced everything
    for (before, winning) in [(&[][..], (&["b"][..], false)), (&[base], (&["b"], true))] {
        let (names, stored, manifest) = overtaken(before, &[winning]);
        assert!(!holds(&names, &stored) && holds(&names, &in_force(&manifest)), "{names:?}");
    }

    // another publisher had the same entries and was faster
    let (names, stored, manifest) = overtaken(&[base], &[(&["a"], false)]);
    assert_eq!((in_force(&manifest), manifest["generation"].clone()), (stored.clone(), json!(2)));
    assert!(holds(&names, &stored), "{names:?}");

    // the same, and a third one followed: a reader with the second generation's manifest may be fetching that snapshot
    // now
    let (names, stored, manifest) = overtaken(&[base], &[(&["a"], false), (&["b"], false)]);
    assert_eq!(manifest["generation"], 3);
    assert!(holds(&names, &stored) && holds(&names, &in_force(&manifest)), "{names:?}");

    // it was published long before, and somebody may still fetch it
    let (names, stored, manifest) = overtaken(&[(&["a", "base"], false), (&["base"], true)], &[(&["b"], false)]);
    assert_eq!(manifest["generation"], 4);
    assert!(holds(&names, &stored) && holds(&names, &in_force(&manifest)), "{names:?}");
}

#[test]
fn tuning_reads_what_is_published_and_publishes_at_its_end() {
    let (one, other, store) = (Machine::new(), Machine::new(), in_memory());
    let (url, replay) = (url(store.path()), one.path("replay.json"));
    write_replay(&example().join("registry"), &replay);
    let (module, timer) = (module(), measured_as_in(&replay));
    let tune = [module.as_str(), "--timer", &timer, "--cache", &url, "--format", "json"];
    let first = one.good(&tune);
    assert!(first.stderr.contains("generation 1"), "{}", first.stderr);
    let best = |run: &Run| -> Vec<Value> {
        run.json()["operations"].as_array().unwrap().iter().map(|row| row["best"]["config"].clone()).collect()
    };
    let second = other.good(&tune);
    assert!(second.stderr.contains("nothing measured"), "{}", second.stderr);
    assert_eq!(best(&first), best(&second));
    assert_eq!(manifest(store.path())["generation"], 1, "what is known already is not published again");
    // loaded entries are not this machine's own
    let own = other.good(&["cache", "path", "--cache", &url]).stdout.trim_end().to_owned();
    let listed = other.good(&["cache", "ls", "--cache", &own, "--format", "json"]).json();
    assert_eq!(listed["entries"], json!([]));

    // of two decisions for one device, all use the better one, even if their own one is nearer
    let mine = one.good(&["cache", "path", "--cache", &url]).stdout.trim_end().to_owned();
    one.good(&["cache", "export", "--format", "json", &one.text("all.json"), "--cache", &mine]);
    // the same at a URL, where a program of another project reads it
    let at = |name: &str| format!("{url}/{name}");
    let export = |to: &str| one.run(&["cache", "export", "--format", "json", to, "--cache", &mine]);
    for _ in 0..2 {
        let exported = export(&at("configs.json"));
        assert_eq!((exported.code, exported.stdout.trim_end()), (0, &*at("configs.json")), "{}", exported.stderr);
    }
    assert_eq!(fs::read(store.path().join("configs.json")).unwrap(), fs::read(one.path("all.json")).unwrap());
    for wrong in [at(""), at("configs"), at(".json"), at("a b.json"), at("..%2fx.json"), "s3://".to_owned()] {
        let refused = export(&wrong);
        assert!(refused.code == 2 && refused.stderr.contains("names no file"), "{wrong}: {}", refused.stderr);
    }
    let mut all: Value = serde_json::from_str(&fs::read_to_string(one.path("all.json")).unwrap()).unwrap();
    for entry in all["entries"].as_array_mut().unwrap() {
        entry["provenance"]["decided_at"] = json!(4_000_000_000_u64);
        entry["provenance"]["tool"] = json!("another machine");
    }
    fs::write(one.path("later.json"), all.to_string()).unwrap();
    other.good(&["cache", "import", "--format", "json", &one.text("later.json")]);
    other.good(&["cache", "push", &url]);
    one.good(&tune);
    let listed = one.good(&["cache", "ls", "--cache", &mine, "--format", "json"]).json();
    for entry in listed["entries"].as_array().unwrap() {
        assert_eq!(entry["provenance"]["tool"], "another machine");
    }
    // --dry-run shows the plan, and publishes nothing
    let dry = Machine::new().run(&[&tune[..], &["--dry-run"]].concat());
    assert_eq!(dry.code, 0, "{}", dry.stderr);
    assert_eq!(manifest(store.path())["generation"], 2);
}

/// The decisions are published and drawn even if nobody reads the table.
#[test]
fn a_reader_of_stdout_that_is_gone_keeps_nothing_from_the_others() {
    let (machine, store) = (Machine::new(), in_memory());
    write_replay(&example().join("registry"), &machine.path("replay.json"));
    let timer = measured_as_in(&machine.path("replay.json"));
    let (url, page) = (url(store.path()), machine.text("page.html"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let tune = [&module(), "--timer", &timer, "--cache", &url, "--report", &page];
    let output = machine.command(&tune).stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output();
    let output = output.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("published at") && machine.path("page.html").is_file(), "{said}");
    assert_eq!(manifest(store.path())["generation"], 1);
}

#[test]
fn a_shared_cache_is_changed_by_publishing_alone() {
    let (machine, store) = (Machine::new(), in_memory());
    let url = url(store.path());
    let removed = machine.run(&["cache", "rm", "flash_attention@v2", "--cache", &url]);
    assert_eq!(removed.code, 2, "{}", removed.stderr);
    assert!(removed.fault().contains("--replace"), "{}", removed.stderr);
    let empty = machine.run(&["cache", "push", &url]);
    assert_eq!((empty.code, store.path().read_dir().unwrap().count()), (3, 0), "{}", empty.stderr);
    for (url, word) in [("ftp://x/y", "s3://"), ("file://relative/x", "absolute"), ("s3://b/../c", "prefix")] {
        let wrong = machine.run(&["cache", "pull", url]);
        assert_eq!(wrong.code, 2, "{url}: {}", wrong.stderr);
        assert!(wrong.fault().contains(word), "{}", wrong.stderr);
    }
    let folder = machine.run(&["cache", "pull", &url, &machine.text("")]);
    assert_eq!(folder.code, 2, "{}", folder.stderr);
    let plain = machine.run(&["cache", "pull", "http://192.0.2.1/x"]);
    let needs = if cfg!(feature = "remote") { "--verify-key" } else { "--features remote" };
    assert_eq!(plain.code, 2, "{}", plain.stderr);
    assert!(plain.fault().contains(needs), "{}", plain.stderr);
}

/// Data from a store is used only if it matches its digest.
#[test]
fn what_is_not_what_was_published_is_refused() {
    let (machine, store) = (Machine::new(), in_memory());
    let (url, copy) = (url(store.path()), machine.text("x.snapshot"));
    let digest = snapshot(&machine.path("a.snapshot"), &[entry("a", 1, 10)]);
    let other = snapshot(&machine.path("b.snapshot"), &[entry("a", 2, 10)]);
    machine.good(&["cache", "push", &url, &machine.text("a.snapshot")]);
    let (good, object) = (manifest(store.path()), store.path().join(format!("snapshots/sha256-{digest}.snapshot")));
    let (manifest_path, whole) = (store.path().join("manifest-v1.json"), fs::read(&object).unwrap());
    let refused = |words: &[&str]| {
        let run = machine.run(&["cache", "pull", &url, &copy]);
        assert_eq!(run.code, 6, "{words:?}: {} {}", run.stdout, run.stderr);
        assert!(words.iter().all(|word| run.fault().contains(word)), "{words:?}: {}", run.stderr);
        assert!(!machine.path("x.snapshot").exists(), "{words:?}");
        let left: Vec<_> = fs::read_dir(machine.home.path()).unwrap().map(|item| item.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_str().unwrap().starts_with(".tmp-")), "{left:?}");
    };
    let with = |name: &str, value: Value| {
        let mut changed = good.clone();
        changed[name] = value;
        fs::write(&manifest_path, changed.to_string()).unwrap();
    };
    // the manifest
    with("digest", json!("../../../../etc/passwd"));
    refused(&["manifest-v1.json", "is not a SHA-256 digest"]);
    with("digest", json!(digest.to_uppercase() + "/../x"));
    refused(&["is not a SHA-256 digest"]);
    with("size", json!(1_u64 << 40));
    refused(&["at most"]);
    with("size", json!(whole.len() + 1));
    refused(&["the manifest says"]);
    with("size", json!(10));
    refused(&["at most 10"]);
    with("schema", json!(2));
    refused(&["schema 2", "newer"]);
    with("digest", json!(other));
    refused(&[&other, "it is missing"]);
    fs::write(&manifest_path, "{\"schema\":1").unwrap();
    refused(&["manifest-v1.json"]);
    // sparse: a gigabyte that takes no disk space
    fs::File::create(&manifest_path).unwrap().set_len(1 << 30).unwrap();
    refused(&["manifest-v1.json", "1073741824 bytes"]);
    fs::remove_file(&manifest_path).unwrap();
    // a file of the test's own, with the same size and content on every machine
    let elsewhere = manifest_path.with_file_name("elsewhere");
    fs::write(&elsewhere, "somebody's").unwrap();
    symlink(&elsewhere, &manifest_path).unwrap();
    refused(&["link"]);
    fs::remove_file(&manifest_path).unwrap();
    // the snapshot
    fs::write(&manifest_path, good.to_string()).unwrap();
    fs::copy(machine.path("b.snapshot"), &object).unwrap();
    refused(&["digest is", &other]);
    fs::write(&object, &whole[..whole.len() - 1]).unwrap();
    refused(&["bytes"]);
    for at in (0..whole.len()).step_by(7) {
        let mut flipped = whole.clone();
        flipped[at] ^= 4;
        fs::write(&object, &flipped).unwrap();
        refused(&[&digest]);
    }
    fs::remove_file(&object).unwrap();
    symlink(machine.path("a.snapshot"), &object).unwrap();
    refused(&["link"]);
    fs::remove_file(&object).unwrap();
    // intact again
    fs::write(&object, &whole).unwrap();
    machine.good(&["cache", "pull", &url, &copy]);
    assert_eq!(calls(&machine.path("x.snapshot")).len(), 1);
}

/// As the error says.
#[test]
fn what_is_damaged_is_published_again_by_replacing_it() {
    let (machine, store) = (Machine::new(), in_memory());
    let (url, copy) = (url(store.path()), machine.text("x.snapshot"));
    let digest = snapshot(&machine.path("a.snapshot"), &[entry("a", 1, 10)]);
    let push =
        |words: &[&str]| machine.run(&[&["cache", "push"], words, &[&url, &machine.text("a.snapshot")]].concat());
    assert_eq!(push(&[]).code, 0);
    let (object, manifest_path) =
        (store.path().join(format!("snapshots/sha256-{digest}.snapshot")), store.path().join("manifest-v1.json"));
    let (whole, flipped) = (fs::read(&object).unwrap(), {
        let mut bytes = fs::read(&object).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        bytes
    });
    let pull = || {
        let _ = fs::remove_file(machine.path("x.snapshot"));
        machine.run(&["cache", "pull", &url, &copy])
    };
    for (path, bytes) in [
        (&manifest_path, &b"no manifest"[..]),
        (&manifest_path, b"{\"schema\":1,\"generation\":"),
        (&manifest_path, b""),
        (&object, &whole[..whole.len() / 2]),
        (&object, &flipped),
        (&object, b""),
    ] {
        fs::write(path, bytes).unwrap();
        let refused = pull();
        assert_eq!(refused.code, 6, "{}", refused.stderr);
        assert!(refused.fault().contains("cache push --replace"), "{}", refused.stderr);
        assert!(!refused.fault().contains(".tmp-"), "{}", refused.stderr);
        let replaced = push(&["--replace"]);
        assert_eq!(replaced.code, 0, "{}", replaced.stderr);
        let is_told = replaced.stderr.contains("is replaced, and its generation is lost");
        assert_eq!(is_told, path == &manifest_path, "{}", replaced.stderr);
        assert_eq!(pull().code, 0, "{}", pull().stderr);
    }
    // a later program's is not damaged
    fs::write(&manifest_path, "{\"schema\":2}").unwrap();
    let newer = push(&["--replace"]);
    assert!(newer.code == 6 && newer.fault().contains("newer autotune-lowered"), "{}", newer.stderr);
}

#[test]
fn nothing_leads_a_writer_out_of_the_folder() {
    let (machine, store, outside) = (Machine::new(), in_memory(), in_memory());
    let (url, victim) = (url(store.path()), outside.path().join("victim"));
    snapshot(&machine.path("a.snapshot"), &[entry("a", 1, 10)]);
    fs::write(&victim, "mine").unwrap();
    let push = || machine.run(&["cache", "push", &url, &machine.text("a.snapshot")]);
    symlink(outside.path(), store.path().join("snapshots")).unwrap();
    let run = push();
    assert_eq!(run.code, 6, "{}", run.stderr);
    assert!(run.fault().contains("is a link"), "{}", run.stderr);
    fs::remove_file(store.path().join("snapshots")).unwrap();
    symlink(&victim, store.path().join("lock")).unwrap();
    let run = push();
    assert_eq!(run.code, 6, "{}", run.stderr);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    fs::remove_file(store.path().join("lock")).unwrap();
    assert_eq!(push().code, 0);
    assert_eq!(outside.path().read_dir().unwrap().count(), 1);
}

#[test]
fn signatures_decide_whose_cache_is_loaded() {
    let (builder, reader, store) = (Machine::new(), Machine::new(), in_memory());
    let (url, copy) = (url(store.path()), reader.text("x.snapshot"));
    builder.good(&["cache", "keygen", &builder.text("key")]);
    builder.good(&["cache", "keygen", &builder.text("other")]);
    let (key, public, other) = (builder.text("key"), builder.text("key.pub"), builder.text("other.pub"));
    snapshot(&builder.path("a.snapshot"), &[entry("a", 1, 10)]);
    snapshot(&builder.path("b.snapshot"), &[entry("b", 1, 10)]);
    let (a, b) = (builder.text("a.snapshot"), builder.text("b.snapshot"));

    // unsigned: refused by readers that verify, by option or by environment, and not merged into signed data
    builder.good(&["cache", "push", &url, &a]);
    let checked = ["cache", "pull", &url, &copy, "--verify-key", &public];
    let run = reader.run(&checked);
    assert_eq!(run.code, 6, "{}", run.stderr);
    assert!(run.fault().contains("is not signed"), "{}", run.stderr);
    let mut strict = Machine::new();
    strict.environment.push(("AUTOTUNE_LOWERED_VERIFY_KEY".into(), public.clone()));
    for command in [&["cache", "pull", &url][..], &["cache", "ls", "--cache", &url]] {
        let run = strict.run(command);
        assert_eq!(run.code, 6, "{command:?} {}", run.stdout);
        assert!(run.fault().contains("is not signed"), "{}", run.stderr);
    }
    assert_eq!(builder.run(&["cache", "push", &url, &b, "--sign-key", &key]).code, 6);

    // signed
    builder.good(&["cache", "push", "--replace", &url, &a, "--sign-key", &key]);
    let run = reader.good(&[&checked[..], &["-v"]].concat());
    assert!(run.stderr.contains("signed by"), "{}", run.stderr);
    strict.good(&["cache", "ls", "--cache", &url]);
    builder.good(&["cache", "push", &url, &b, "--sign-key", &key]);
    reader.good(&checked);
    assert_eq!(calls(&reader.path("x.snapshot")).len(), 2);
    let unsigned = builder.run(&["cache", "push", &url, &a]);
    assert_eq!(unsigned.code, 0, "nothing new: {}", unsigned.stderr);
    snapshot(&builder.path("c.snapshot"), &[entry("c", 1, 10)]);
    let unsigned = builder.run(&["cache", "push", &url, &builder.text("c.snapshot")]);
    assert_eq!(unsigned.code, 6, "{}", unsigned.stderr);
    assert!(unsigned.fault().contains("--sign-key"), "{}", unsigned.stderr);

    // with another key, with another file's signature, with appended bytes, without a signature
    let run = reader.run(&["cache", "pull", &url, &copy, "--verify-key", &other]);
    assert_eq!(run.code, 6);
    assert!(run.fault().contains("not among the keys"), "{}", run.stderr);
    let digest = manifest(store.path())["digest"].as_str().unwrap().to_owned();
    let signature = store.path().join(format!("snapshots/sha256-{digest}.snapshot.sig"));
    let good = fs::read(&signature).unwrap();
    builder.good(&["cache", "sign", &a, "--key", &key]);
    for (bytes, word) in [
        (fs::read(builder.path("a.snapshot.sig")).unwrap(), "another snapshot"),
        ([&good[..], b"x"].concat(), "is not in this format"),
        (Vec::new(), "is not in this format"),
    ] {
        fs::write(&signature, bytes).unwrap();
        let run = reader.run(&checked);
        assert_eq!(run.code, 6, "{word}: {}", run.stderr);
        assert!(run.fault().contains(word), "{}", run.stderr);
    }
    fs::write(&signature, &good).unwrap();
    reader.good(&checked);

    // an existing copy is verified again
    let mut bytes = fs::read(reader.path("x.snapshot")).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(reader.path("x.snapshot"), &bytes).unwrap();
    let run = reader.good(&[&checked[..], &["-v"]].concat());
    assert!(run.stderr.contains("fetched"), "{}", run.stderr);
    assert_eq!(calls(&reader.path("x.snapshot")).len(), 2);

    let key_for_all = builder.path("key");
    fs::set_permissions(&key_for_all, fs::Permissions::from_mode(0o644)).unwrap();
    let run = builder.run(&["cache", "sign", &a, "--key", &key]);
    assert_eq!(run.code, 4, "{}", run.stderr);
    assert!(run.fault().contains("chmod 600"), "{}", run.stderr);
}

/// The bytes of the manifest, to be replayed later.
fn manifest_bytes(store: &Path) -> Vec<u8> {
    fs::read(store.join("manifest-v1.json")).unwrap()
}

fn show(store: &Path, manifest: impl AsRef<[u8]>) {
    fs::write(store.join("manifest-v1.json"), manifest).unwrap();
}

/// A store that serves an earlier generation, intact and signed, is detected by readers that saw a later one.
#[test]
fn an_older_generation_is_loaded_by_choice_alone() {
    let (builder, reader, store) = (Machine::new(), Machine::new(), in_memory());
    let (url, copy) = (url(store.path()), reader.text("x.snapshot"));
    builder.good(&["cache", "keygen", &builder.text("key")]);
    let (key, public) = (builder.text("key"), builder.text("key.pub"));
    let push = |name: &str| {
        snapshot(&builder.path(name), &[entry(name, 1, 10)]);
        builder.good(&["cache", "push", &url, &builder.text(name), "--sign-key", &key]);
        manifest_bytes(store.path())
    };
    let (first, second) = (push("a"), push("b"));
    let checked = ["cache", "pull", &url, &copy, "--verify-key", &public];
    let looked_up = ["cache", "ls", "--cache", &url, "--verify-key", &public];
    reader.good(&checked);
    reader.good(&looked_up);
    let loaded = fs::read(reader.path("x.snapshot")).unwrap();

    show(store.path(), &first);
    // with and without verification; also by a look-up
    let (unchecked, tuned) = (["cache", "pull", &url, &copy], [&module(), "--dry-run", "--cache", &url]);
    for command in [&checked[..], &unchecked, &looked_up, &tuned] {
        let run = reader.run(command);
        assert_eq!(run.code, 6, "{command:?}: {}", run.stderr);
        for word in ["generation 1,", "generation 2 was loaded", "--allow-rollback", "an older one"] {
            assert!(run.fault().contains(word), "{command:?}: {}", run.stderr);
        }
    }
    // also by publishers: the entries of the second generation would be lost
    let run = builder.run(&["cache", "push", &url, &builder.text("a"), "--sign-key", &key]);
    assert_eq!(run.code, 6, "{}", run.stderr);
    assert!(run.fault().contains("--allow-rollback"), "{}", run.stderr);
    assert_eq!(fs::read(reader.path("x.snapshot")).unwrap(), loaded, "it was replaced all the same");

    // a reader that never saw the second one cannot know
    Machine::new().good(&["cache", "pull", &url, "--verify-key", &public]);
    // by choice; from then on it counts as the last one loaded
    reader.good(&[&checked[..], &["--allow-rollback"]].concat());
    assert_eq!(calls(&reader.path("x.snapshot")).len(), 1);
    reader.good(&checked);
    show(store.path(), &second);
    reader.good(&checked);
    assert_eq!(calls(&reader.path("x.snapshot")).len(), 2);

    // the old snapshot with a later number, or a later time: that is not signed
    let claims = |name: &str, value: u64| {
        let mut changed: Value = serde_json::from_slice(&first).unwrap();
        changed["generation"] = json!(3);
        changed["published_at"] = serde_json::from_slice::<Value>(&second).unwrap()["published_at"].clone();
        changed[name] = json!(value);
        show(store.path(), changed.to_string());
        let run = reader.run(&checked);
        assert_eq!(run.code, 6, "{}", run.stderr);
        run.fault().to_owned()
    };
    let fault = claims("generation", 3);
    assert!(fault.contains("published as generation 3") && fault.contains("signed as generation 1"), "{fault}");
    assert!(claims("published_at", 4_000_000_000).contains("at 4000000000"));
    assert!(claims("generation", 0).contains("generation is 0"));

    // from an earlier life of the store: a later number, signed, at an earlier time; and another second generation
    let signer = PrivateKey::read(&builder.path("key")).unwrap();
    let second: Value = serde_json::from_slice(&second).unwrap();
    let at = second["published_at"].as_u64().unwrap();
    for (generation, time, word) in [(9, at - 1, "an earlier time"), (2, at, "another one of that number")] {
        let mut changed: Value = serde_json::from_slice(&first).unwrap();
        let digest: Digest = changed["digest"].as_str().unwrap().parse().unwrap();
        (changed["generation"], changed["published_at"]) = (json!(generation), json!(time));
        let signature = Signature::sign(Statement::new(digest, generation, time), &signer);
        let path = store.path().join(format!("snapshots/sha256-{digest}.snapshot"));
        Signatures::from(signature).write_beside(&path).unwrap();
        show(store.path(), changed.to_string());
        let run = reader.run(&checked);
        assert_eq!(run.code, 6, "{word}: {}", run.stderr);
        assert!(run.fault().contains(word), "{}", run.stderr);
        Machine::new().good(&["cache", "pull", &url, "--verify-key", &public]);
    }

    // if a publisher that saw the last generation starts the store anew, it continues counting from there
    fs::remove_dir_all(store.path()).unwrap();
    push("b");
    assert_eq!(manifest(store.path())["generation"], 3);
    reader.good(&checked);
}

#[test]
fn a_pin_holds_for_all_that_is_loaded() {
    let (builder, mut reader, store) = (Machine::new(), Machine::new(), in_memory());
    let url = url(store.path());
    let first = snapshot(&builder.path("a"), &[entry("a", 1, 10)]);
    let other = snapshot(&builder.path("b"), &[entry("b", 1, 10)]);
    builder.good(&["cache", "push", &url, &builder.text("a")]);
    let refused = |run: &Run| {
        assert_eq!(run.code, 6, "{}", run.stderr);
        let fault = run.fault();
        assert!([first.as_str(), &other, "pinned"].iter().all(|word| fault.contains(word)), "{fault}");
    };
    refused(&reader.run(&["cache", "pull", &url, &reader.text("x"), "--pin", &other]));
    assert!(!reader.path("x").exists());
    reader.good(&["cache", "pull", &url, &reader.text("x"), "--pin", &first]);
    for (pin, code) in [(&first, 0), (&other, 6), (&String::new(), 0), (&"no digest".to_owned(), 2)] {
        reader.environment = vec![("AUTOTUNE_LOWERED_PIN".into(), pin.clone())];
        for command in [&["cache", "pull", &url][..], &["cache", "ls", "--cache", &url]] {
            let run = reader.run(command);
            assert_eq!(run.code, code, "{pin} {command:?}: {}", run.stderr);
            if code == 6 {
                refused(&run);
            }
        }
    }
    // look-ups in a folder read its published snapshot
    let Some(plugin) = plugin() else { return };
    reader.environment.clear();
    let (folder, plugin) = (reader.text("cache"), plugin.display().to_string());
    fs::create_dir(reader.path("cache")).unwrap();
    let get_from = |cache: &str, pin: &str| {
        let call = ["cache", "get", "flash_attention@v2", "a", "--plugin", &plugin, "--match", "any"];
        reader.run(&[&call[..], &["--cache", cache, "--pin", pin]].concat())
    };
    let get = |pin: &str| get_from(&folder, pin);
    assert!(get(&first).fault().contains("there is none"));
    fs::copy(builder.path("a"), reader.path("cache/best-v1.snapshot")).unwrap();
    refused(&get(&other));
    // also for a single snapshot file
    refused(&get_from(&builder.text("a"), &other));
    for run in [get(&first), get_from(&builder.text("a"), &first)] {
        assert_eq!((run.code, run.stdout.trim_end()), (0, "{\"block\":1}"), "{}", run.stderr);
    }
}

/// A signer of an existing file adds a signature to the others', even if all sign at once.
#[test]
fn a_signature_takes_no_other_one_away() {
    let (one, store) = (Machine::new(), in_memory());
    let url = url(store.path());
    snapshot(&one.path("a"), &[entry("a", 1, 10)]);
    let names: Vec<String> = (0..6).map(|number| format!("key{number}")).collect();
    for name in &names {
        one.good(&["cache", "keygen", &one.text(name)]);
    }
    let all: String = names.iter().map(|name| fs::read_to_string(one.path(&format!("{name}.pub"))).unwrap()).collect();
    fs::write(one.path("all.pub"), all).unwrap();
    let (snapshot, all) = (one.text("a"), one.text("all.pub"));
    one.good(&["cache", "push", &url, &snapshot, "--sign-key", &one.text("key0")]);
    let machines: Vec<Machine> = names[1..].iter().map(|_| Machine::new()).collect();
    let children: Vec<_> = machines
        .iter()
        .zip(&names[1..])
        .map(|(machine, name)| {
            let push = ["cache", "push", &url, &snapshot, "--sign-key", &one.text(name), "--verify-key", &all];
            machine.command(&push).stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(manifest(store.path())["generation"], 1, "nothing changed");
    for name in &names {
        let reader = Machine::new();
        reader.good(&["cache", "pull", &url, "--verify-key", &one.text(&format!("{name}.pub"))]);
    }

    // the same with a file
    for name in &names {
        one.good(&["cache", "sign", &snapshot, "--key", &one.text(name)]);
    }
    one.good(&["cache", "sign", &snapshot, "--key", &one.text("key0")]);
    let text = fs::read_to_string(one.path("a.sig")).unwrap();
    assert_eq!(text.lines().count(), names.len());
    for name in &names {
        one.good(&["cache", "verify", &snapshot, "--key", &one.text(&format!("{name}.pub"))]);
    }
}

#[test]
fn a_key_service_signs_in_place_of_a_key_file() {
    let (machine, service, store) = (Machine::new(), in_memory(), in_memory());
    let url = url(store.path());
    // the service has the key, and this machine only its public part
    PrivateKey::generate(&service.path().join("key")).unwrap();
    let public = service.path().join("key.pub").display().to_string();
    let text = fs::read_to_string(service.path().join("key")).unwrap();
    let seed: Vec<u8> = (0..32).map(|at| u8::from_str_radix(&text[32 + 2 * at..34 + 2 * at], 16).unwrap()).collect();
    let key = SigningKey::from_bytes(seed.as_slice().try_into().unwrap());
    let (asked, answer) = (service.path().join("asked"), service.path().join("answer"));
    for pipe in [&asked, &answer] {
        rustix::fs::mkfifoat(rustix::fs::CWD, pipe, rustix::fs::Mode::RWXU).unwrap();
    }
    let command = format!("cat > '{}'; cat '{}'", asked.display(), answer.display());
    let digest = snapshot(&machine.path("a"), &[entry("a", 1, 10)]);
    let file = machine.text("a");
    let signing = ["--sign-command", &command, "--verify-key", &public];
    for arguments in [&["cache", "push", &url, &file][..], &["cache", "sign", &file]] {
        let served = thread::scope(|scope| {
            let served = scope.spawn(|| {
                let message = fs::read(&asked).unwrap();
                let hex: String = key.sign(&message).to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
                fs::write(&answer, format!("{hex}\n")).unwrap();
                message
            });
            machine.good(&[arguments, &signing[..]].concat());
            served.join().unwrap()
        });
        // the bytes that docs/trust.md describes are signed
        let (head, numbers) = served.split_at(served.len() - 16);
        let digest: Digest = digest.parse().unwrap();
        assert_eq!(head, [b"autotune-lowered snapshot v1\0".as_slice(), digest.as_bytes()].concat());
        let published = u64::from(arguments[1] == "push");
        assert_eq!(numbers[..8], published.to_be_bytes());
        if published == 1 {
            assert_eq!(numbers[8..], manifest(store.path())["published_at"].as_u64().unwrap().to_be_bytes());
        }
    }
    Machine::new().good(&["cache", "pull", &url, "--verify-key", &public]);
    machine.good(&["cache", "verify", &file, "--key", &public]);

    // a signature that is not by that key signs nothing
    snapshot(&machine.path("b"), &[entry("b", 1, 10)]);
    let before = manifest(store.path());
    let zeros = format!("echo {}", "0".repeat(128));
    for (command, word) in [
        ("printf '\\033[31mno token\\n' >&2; exit 3", "and said `\\u{1b}[31mno token`"),
        ("true", "64 bytes in base64"),
        ("cat", "64 bytes in base64"),
        (zeros.as_str(), "no key of"),
        ("exec yes", "more than 4096 bytes"),
        ("/nowhere/signs", "exit status: 127"),
    ] {
        let push = ["cache", "push", &url, &machine.text("b"), "--sign-command", command, "--verify-key", &public];
        let run = machine.run(&push);
        assert_eq!(run.code, 4, "{command}: {}", run.stderr);
        assert!(run.fault().contains(word) && run.fault().contains("--sign-command"), "{}", run.stderr);
        assert_eq!(manifest(store.path()), before, "{command}");
    }
    for wrong in [&["--sign-command", "true"][..], &[&signing[..], &["--sign-key", "x"]].concat()] {
        let run = machine.run(&[&["cache", "push", &url, &file], wrong].concat());
        assert_eq!(run.code, 2, "{wrong:?}: {}", run.stderr);
    }
}

/// A snapshot may have 4 GiB, and nobody looks for hidden files beside a copy.
#[test]
fn what_a_killed_pull_left_is_removed_by_the_next() {
    let (machine, store) = (Machine::new(), in_memory());
    let (url, copy) = (url(store.path()), machine.text("copies/x.snapshot"));
    let entries: Vec<_> = (0..20_000).map(|block| entry(&format!("call{block}"), block, 10)).collect();
    snapshot(&machine.path("a.snapshot"), &entries);
    machine.good(&["cache", "push", &url, &machine.text("a.snapshot")]);
    fs::create_dir(machine.path("copies")).unwrap();
    let left = || {
        let items = fs::read_dir(machine.path("copies")).unwrap();
        let names = items.map(|item| item.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(".tmp")).collect::<Vec<_>>()
    };
    // the moment between its first byte and its last is short
    for _ in 0..100 {
        let mut pull = machine.command(&["cache", "pull", &url, &copy]).stdout(Stdio::null()).spawn().unwrap();
        while left().is_empty() && pull.try_wait().unwrap().is_none() {
            thread::yield_now();
        }
        pull.kill().unwrap();
        pull.wait().unwrap();
        if !left().is_empty() {
            break;
        }
        let _ = fs::remove_file(&copy);
    }
    assert_eq!(left().len(), 1, "no pull was killed in time");
    fs::write(machine.path("copies/.tmp-mine"), "mine").unwrap();
    machine.good(&["cache", "pull", &url, &copy]);
    assert_eq!(left(), [".tmp-mine"]);
    assert_eq!(calls(Path::new(&copy)).len(), entries.len());
}
