//! Caches that are no caches, snapshots that are not what was written, and what is published while a cache is open.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use autotune_lowered_lookup::cache::COMPILER_OPTIONS;

use super::*;

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn what_is_no_cache_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fifo(&at("pipe"));
    symlink("/dev/zero", at("endless")).unwrap();
    symlink("nowhere", at("dangling.snapshot")).unwrap();
    fs::write(at("text"), "no snapshot").unwrap();
    for inner in ["with-pipe", "with-endless"] {
        fs::create_dir(at(inner)).unwrap();
    }
    fifo(&at("with-pipe/best-v1.snapshot"));
    symlink("/dev/zero", at("with-endless/best-v1.snapshot")).unwrap();
    for flags in [0, OPEN_READ] {
        for (name, status, part) in [
            ("pipe", Status::Io, "not a regular file"),
            ("endless", Status::Io, "not a regular file"),
            ("with-pipe", Status::Io, "not a regular file"),
            ("with-endless", Status::Io, "not a regular file"),
            ("dangling.snapshot", Status::Io, "no such file"),
            ("missing.snapshot", Status::Io, "no such file"),
            ("text/below", Status::Io, "Not a directory"),
            ("text", Status::Damaged, "it is not a snapshot"),
        ] {
            let (found, line) = Open::at(&at(name), flags).map(drop).unwrap_err();
            assert!(found == status as i32 && line.contains(part), "{name}: {found}: {line}");
        }
    }
    let (status, line) = Open::at(Path::new("s3://user:secret@bucket/team"), 0).map(drop).unwrap_err();
    assert!(status == Status::BadArgument as i32 && line.contains("cache pull") && !line.contains("secret"), "{line}");
    let (_, line) = Open::at(&at("a\u{1b}[31m\n.snapshot"), 0).map(drop).unwrap_err();
    assert!(line.contains("\\u{1b}") && !line.contains('\n') && !line.contains('\u{1b}'), "{line}");
}

/// Whatever is done to a snapshot, a look-up gives the config that was published, or an error.
#[test]
fn a_flipped_or_cut_snapshot_gives_an_error_or_the_truth() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("best.snapshot");
    publish(&path, &["a"], 1);
    let bytes = fs::read(&path).unwrap();
    let device = Named::new();
    let (mut right, mut refused) = (0, 0);
    let mut outcome = |bytes: &[u8], what: String| {
        fs::write(&path, bytes).unwrap();
        match Open::at(&path, OPEN_READ).and_then(|cache| cache.block(&device, "a")) {
            Ok(block) => {
                assert_eq!(block, 1, "{what}");
                right += 1;
            }
            Err((status, line)) => {
                let expected = [Status::Damaged, Status::OtherVersion].map(|status| status as i32);
                assert!(expected.contains(&status) && !line.is_empty(), "{what}: {status}: {line}");
                refused += 1;
            }
        }
    };
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        outcome(&flipped, format!("byte {at}"));
    }
    for length in (0..bytes.len()).step_by(61) {
        outcome(&bytes[..length], format!("{length} bytes"));
    }
    assert!(refused > bytes.len() / 2 && right > 0, "{refused} refused, {right} right");
}

#[test]
fn what_is_published_is_seen_after_a_refresh() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Open::at(folder.path(), 0).unwrap();
    let device = Named::new();
    let explained =
        |key: &str| status_line(|at, size| unsafe { atl_cache_explain(cache.0, &device.query(key), at, size) });
    assert_eq!(cache.block(&device, "a"), Err((Status::Miss as i32, "".into())));
    let (status, line) = explained("a");
    assert!(status == Status::Miss as i32 && line.contains("nothing was published"), "{line}");
    assert_eq!(cache.refresh(), (0, 0, "".into()));

    let path = folder.path().join("best-v1.snapshot");
    publish(&path, &["a"], 1);
    assert_eq!(cache.block(&device, "a").unwrap_err().0, Status::Miss as i32, "nothing refreshes by itself");
    assert_eq!(cache.refresh(), (0, 1, "".into()));
    assert_eq!((cache.block(&device, "a"), cache.block(&device, "b").is_err()), (Ok(1), true));
    assert!(explained("b").1.contains("is cached for another call key, not for `b`"), "{:?}", explained("b"));
    let (status, line) = explained("a");
    assert!(status == 0 && line.contains("has {\"block\":1,"), "{line}");

    // a hit outlives what it was found in
    let (query, mut hit) = (device.query("a"), ptr::null());
    assert_eq!(unsafe { atl_cache_lookup(cache.0, &query, &mut hit, ptr::null_mut(), 0) }, 0);
    publish(&path, &["a", "b"], 2);
    assert_eq!((cache.refresh(), cache.refresh()), ((0, 1, "".into()), (0, 0, "".into())));
    assert_eq!((cache.block(&device, "a"), cache.block(&device, "b")), (Ok(2), Ok(2)));

    // what cannot be used changes nothing
    let aside = folder.path().join("aside");
    fs::rename(&path, &aside).unwrap();
    fs::write(&path, "torn").unwrap();
    let (status, changed, line) = cache.refresh();
    assert!(status == Status::Damaged as i32 && changed == 0 && line.contains("not a snapshot"), "{line}");
    fs::remove_file(&path).unwrap();
    fifo(&path);
    let (status, changed, line) = cache.refresh();
    assert!(status == Status::Io as i32 && changed == 0 && line.contains("not a regular file"), "{line}");
    assert_eq!(cache.block(&device, "a"), Ok(2));
    drop(cache);
    let mut block = 0;
    assert_eq!(unsafe { atl_hit_int64(hit, text("block"), &mut block, ptr::null_mut(), 0) }, 0);
    assert_eq!(block, 1);
    unsafe { atl_hit_release(hit) };
}

#[test]
fn a_pinned_cache_takes_no_other_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("best-v1.snapshot");
    publish(&path, &["a"], 1);
    let open = Open::at(folder.path(), 0).unwrap();
    let mut info =
        CacheInfo { struct_size: size_of::<CacheInfo>(), entries: 7, published: 7, mapped: 7, digest: [7; 72] };
    assert_eq!(unsafe { atl_cache_describe(open.0, &mut info, ptr::null_mut(), 0) }, 0);
    let digest = CStr::from_bytes_until_nul(&info.digest).unwrap().to_str().unwrap();
    let stated =
        autotune_lowered_lookup::cache::Snapshot::open(&path, autotune_lowered_lookup::cache::Mapping::Never).unwrap();
    assert_eq!((info.entries, info.published, digest), (1, 1, &*stated.digest().to_string()));

    let pinned = |pin: &str| {
        let options = OpenOptions {
            struct_size: size_of::<OpenOptions>(),
            path: text(folder.path().to_str().unwrap()),
            shipped: NONE,
            pin: text(pin),
            flags: 0,
            reserved: 0,
        };
        let mut cache = ptr::null_mut();
        let opened = status_line(|at, size| unsafe { atl_cache_open(&options, &mut cache, at, size) });
        if cache.is_null() { Err(opened) } else { Ok(Open(cache)) }
    };
    let cache = pinned(digest).unwrap();
    assert_eq!(pinned("seven").map(drop).unwrap_err().0, Status::BadArgument as i32);
    let (status, line) = pinned(&"0".repeat(64)).map(drop).unwrap_err();
    assert!(status == Status::NotPinned as i32 && line.contains(digest), "{line}");
    publish(&path, &["a"], 2);
    let (status, changed, line) = cache.refresh();
    assert!(status == Status::NotPinned as i32 && changed == 0 && line.contains(digest), "{line}");
    assert_eq!(cache.block(&Named::new(), "a"), Ok(1));
}

#[test]
fn a_cache_for_runs_with_cold_caches_flags_what_was_measured_warm() {
    let folder = tempfile::tempdir().unwrap();
    let (path, device) = (folder.path().join("best.snapshot"), Named::new());
    publish(&path, &["a"], 1);
    for (flags, expected) in [(0, 0), (OPEN_FOR_COLD_CACHES, 1), (OPEN_FOR_COLD_CACHES | OPEN_READ, 1)] {
        let cache = Open::at(&path, flags).unwrap();
        assert_eq!(cache.flags(&device, "a"), expected);
        publish(&path, &["a"], 2);
        assert_eq!(cache.refresh().0, 0);
        assert_eq!(cache.flags(&device, "a"), expected, "after a refresh");
    }
}

/// Shipped configs are asked below the snapshot; what of them cannot be read is noted.
#[test]
fn shipped_configs_answer_where_nothing_was_published() {
    let folder = tempfile::tempdir().unwrap();
    let shipped = folder.path().join("shipped");
    fs::create_dir(&shipped).unwrap();
    let line = serde_json::json!({"device": identity(), "op_id": OP, "call_key": "a",
        "config": {"block": 9, "name": "a"}});
    fs::write(shipped.join("one.jsonl"), line.to_string()).unwrap();
    fs::write(shipped.join("torn.jsonl"), "{").unwrap();
    let options = OpenOptions {
        struct_size: size_of::<OpenOptions>(),
        path: text(folder.path().to_str().unwrap()),
        shipped: text(shipped.to_str().unwrap()),
        pin: NONE,
        flags: 0,
        reserved: 0,
    };
    let mut cache = ptr::null_mut();
    let (status, note) = status_line(|at, size| unsafe { atl_cache_open(&options, &mut cache, at, size) });
    assert!(status == 0 && note.contains("torn.jsonl` is left out"), "{note}");
    let (cache, device) = (Open(cache), Named::new());
    assert_eq!(cache.block(&device, "a"), Ok(9));
    publish(&folder.path().join("best-v1.snapshot"), &["b"], 1);
    assert_eq!(cache.refresh().1, 1);
    assert_eq!((cache.block(&device, "a"), cache.block(&device, "b")), (Ok(9), Ok(1)));
    publish(&folder.path().join("best-v1.snapshot"), &["a"], 3);
    assert_eq!(cache.refresh().1, 1);
    assert_eq!(cache.block(&device, "a"), Ok(3), "what was measured here goes before what is shipped");
}

/// Names that are long, and pairs of names that are one text.
#[test]
fn calls_are_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("best.snapshot");
    let long: Vec<String> = (28..34).chain([500]).map(|bytes| "k".repeat(bytes)).collect();
    let keys: Vec<&str> = long.iter().map(String::as_str).collect();
    publish(&path, &keys, 1);
    let (cache, device) = (Open::at(&path, 0).unwrap(), Named::new());
    for _ in 0..2 {
        for key in &keys {
            assert_eq!(cache.block(&device, key), Ok(1));
            // the same text with another border between operation and key
            let operation = format!("{OP}k");
            let query = Query { operation: text(&operation), ..device.query(&key[1..]) };
            let mut hit = ptr::null();
            let status = unsafe { atl_cache_lookup(cache.0, &query, &mut hit, ptr::null_mut(), 0) };
            assert_eq!((status, hit.is_null()), (Status::Miss as i32, true));
        }
    }
}

/// A cache may come from anyone: options with which a compilation writes files are no answer.
#[test]
fn compiler_options_on_no_list_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("best.snapshot");
    let entry = |key: &str, config: &str| {
        let call = Call::new(COMPILER_OPTIONS, key);
        let key = CacheKey { call, direction: Direction::Forward, device: identity() };
        (key, Arc::new(Entry::new(serde_json::from_str(config).unwrap())))
    };
    let entries = [entry("a", r#"{"xla_dump_to":"/x"}"#), entry("b", r#"{"xla_cpu_prefer_vector_width":512}"#)];
    write_snapshot(&path, &entries).unwrap();
    let (cache, device) = (Open::at(&path, 0).unwrap(), Named::new());
    let look_up = |key: &str| {
        let query = Query { operation: text(COMPILER_OPTIONS), ..device.query(key) };
        let mut hit: *const Hit = ptr::dangling();
        let found = status_line(|at, size| unsafe { atl_cache_lookup(cache.0, &query, &mut hit, at, size) });
        assert_eq!(hit.is_null(), found.0 != 0);
        unsafe { atl_hit_release(hit) };
        found
    };
    let (status, line) = look_up("a");
    assert_eq!(status, Status::Damaged as i32);
    assert!(
        line.starts_with("the entry of `compiler_options@v1:a` sets `xla_dump_to` to `/x`, which is on no list"),
        "{line}"
    );
    assert_eq!(look_up("b"), (0, String::new()));
}
