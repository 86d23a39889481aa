//! What lies in a folder decides what an opening makes of it.

use super::folder::{SET_ASIDE, STATE_FILE};
use super::*;

fn open(root: &Path) -> (SledStore, SledCondition) {
    SledStore::open(root, false).unwrap()
}

/// `tests/data/cache/README.md` says how it was made.
#[test]
fn pages_in_a_circle_end_with_an_error_and_are_gone_at_the_next_open() {
    // in a process of its own: sled goes on in its thread
    const OWN: &str = "AUTOTUNE_LOWERED_TEST_CIRCLE";
    if std::env::var_os(OWN).is_none() {
        let mut process = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "sled_store::tests::pages_in_a_circle_end_with_an_error_and_are_gone_at_the_next_open";
        let output = process.args(["--exact", name]).env(OWN, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cache/endless-sled");
    let folder = root.path().join(FOLDER);
    fs::create_dir_all(folder.join("blobs")).unwrap();
    for name in ["conf", "db"] {
        fs::copy(data.join(name), folder.join(name)).unwrap();
    }
    write_state(root.path(), &format!("clean {}\n", digest_of_folder(&folder, None).unwrap())).unwrap();
    assert!(matches!(check_state(root.path(), &folder), NotedState::Clean(None)));
    // however long the limit is, it is exceeded
    let error = SledStore::open_within(root.path(), Duration::from_secs(1)).unwrap_err().to_string();
    assert!(error.contains("sled does not come to an end with it; run again"), "{error}");
    let (store, condition) = open(root.path());
    assert_eq!((condition, store.texts().unwrap().len()), (SledCondition::Unclean, 0));
}

#[test]
fn a_clean_close_is_a_clean_open_every_time() {
    let root = tempfile::tempdir().unwrap();
    let (store, condition) = open(root.path());
    assert_eq!(condition, SledCondition::New);
    drop(store);
    for round in 0..20 {
        let (store, condition) = open(root.path());
        assert_eq!(condition, SledCondition::Clean, "round {round}");
        assert_eq!(store.content().count, round);
        store.put_texts([(format!("k{round}").as_str(), "v")]).unwrap();
        let content = store.content();
        drop(store);
        let (store, _) = open(root.path());
        assert_eq!(store.content(), content);
    }
}

#[test]
fn an_unclean_close_is_noticed() {
    let root = tempfile::tempdir().unwrap();
    let (store, _) = open(root.path());
    store.put_texts([("k", "v")]).unwrap();
    drop(store);
    write_state(root.path(), "open\n").unwrap();
    let (store, condition) = open(root.path());
    assert_eq!(condition, SledCondition::Unclean);
    assert_eq!(store.content(), SetDigest::default());
}

#[test]
fn a_foreign_folder_is_set_aside_whole() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join(FOLDER)).unwrap();
    fs::write(root.path().join(FOLDER).join("db"), "somebody's work").unwrap();
    let (_store, condition) = open(root.path());
    let SledCondition::SetAside { moved_to, .. } = condition else { panic!("{condition:?}") };
    assert_eq!(fs::read_to_string(moved_to.join("db")).unwrap(), "somebody's work");
}

#[test]
fn of_those_set_aside_the_last_one_is_kept() {
    let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // a user's files, a link, and names that are not ours
    let foreign = root.path().join(format!("{SET_ASIDE}1700000000-0"));
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("db"), "x").unwrap();
    fs::write(foreign.join("thesis.tex"), "somebody's work").unwrap();
    fs::write(elsewhere.path().join("db"), "x").unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), root.path().join(format!("{SET_ASIDE}1700000000-1"))).unwrap();
    fs::create_dir(root.path().join(format!("{SET_ASIDE}mine"))).unwrap();
    let others = names(root.path());
    let mut last = None;
    for value in ["a", "b", "c"] {
        let (store, _) = open(root.path());
        store.put_texts([("k", value)]).unwrap();
        drop(store);
        let (store, _) = open(root.path());
        assert_eq!(store.texts().unwrap(), [("k".to_owned(), value.to_owned())]);
        let (_store, condition) = store.replace("it is tried").unwrap();
        let SledCondition::SetAside { moved_to, .. } = condition else { panic!("{condition:?}") };
        last = Some(moved_to);
    }
    let mut expected = others;
    expected.extend([FOLDER.into(), STATE_FILE.into()]);
    expected.push(last.unwrap().file_name().unwrap().to_owned());
    expected.sort();
    assert_eq!(names(root.path()), expected);
    assert!(elsewhere.path().join("db").is_file() && foreign.join("thesis.tex").is_file());
}

fn names(folder: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|item| item.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn a_wrong_value_in_a_folder_that_was_closed_is_set_aside() {
    let root = tempfile::tempdir().unwrap();
    let (store, _) = open(root.path());
    store.parts().unwrap().1.insert("k", "value without a checksum").unwrap();
    drop(store);
    let (store, condition) = open(root.path());
    assert!(matches!(condition, SledCondition::SetAside { .. }), "{condition:?}");
    assert_eq!(store.content(), SetDigest::default());
}

#[test]
fn content_that_sled_panics_on_is_set_aside() {
    let root = tempfile::tempdir().unwrap();
    let (store, _) = open(root.path());
    store.put_texts([("k", "v")]).unwrap();
    drop(store);
    // sled's own snapshot: its content, which ends within a number here, the content's length and checksum
    let folder = root.path().join(FOLDER);
    let content = [0, 0, 0, 0, 0, 0, 0, 0, 250_u8];
    let bytes = [&content[..], &9_u64.to_le_bytes(), &crc32fast::hash(&content).to_le_bytes()].concat();
    fs::write(folder.join("snap.0000000000000001"), bytes).unwrap();
    let digest = digest_of_folder(&folder, None).unwrap();
    write_state(root.path(), &format!("clean {digest}\n")).unwrap();
    let (store, condition) = open(root.path());
    let SledCondition::SetAside { reason, .. } = condition else { panic!("{condition:?}") };
    assert!(reason.contains("sled panicked"), "{reason}");
    store.put_texts([("k", "v")]).unwrap();
}

#[test]
fn a_value_under_another_key_is_damage() {
    let bytes = encode(b"k1", b"value");
    assert_eq!(decode(Path::new("x"), b"k1", &bytes).unwrap(), b"value");
    assert!(decode(Path::new("x"), b"k2", &bytes).is_err());
    assert!(decode(Path::new("x"), b"k1", &bytes[..3]).is_err());
}
