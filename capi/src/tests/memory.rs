//! A hit takes no memory. A counting allocator sees it.

use super::counting_allocator::allocations;
use super::*;

#[test]
fn a_hit_allocates_nothing() {
    assert_eq!(allocations(|| vec![0_u8; 100]).0, 1, "the allocator counts");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("best.snapshot");
    publish(&path, &["a", "b"], 1);
    let (cache, device) = (Open::at(&path, 0).unwrap(), Named::new());
    let mut buffer: [c_char; 256] = [0; 256];
    let mut look = |key: &str| {
        let (query, mut hit) = (device.query(key), ptr::null());
        let (mut block, mut ratio, mut on, mut name) = (0, 0.0, 0, NONE);
        let mut info = HitInfo {
            struct_size: size_of::<HitInfo>(),
            flags: 7,
            tier: 7,
            direction: 7,
            reserved: 7,
            config: NONE,
            entry: NONE,
            device: NONE,
            notes: NONE,
        };
        let (at, size) = (buffer.as_mut_ptr(), buffer.len());
        let (count, statuses) = allocations(|| unsafe {
            [
                atl_cache_lookup(cache.0, &query, &mut hit, at, size),
                atl_hit_int64(hit, text("block"), &mut block, at, size),
                atl_hit_double(hit, text("ratio"), &mut ratio, at, size),
                atl_hit_bool(hit, text("nested.on"), &mut on, at, size),
                atl_hit_string(hit, text("name"), &mut name, at, size),
                atl_hit_describe(hit, &mut info, at, size),
            ]
        });
        let (released, ()) = allocations(|| unsafe { atl_hit_release(atl_hit_retain(hit)) });
        assert_eq!((statuses, released, block, ratio, on), ([0; 6], 0, 1, 0.5, 1));
        assert_eq!((info.flags, info.tier, info.direction, info.reserved), (0, 1, 1, 0));
        let read = |text: Text| unsafe { CStr::from_ptr(text.data) }.to_str().unwrap().to_owned();
        assert_eq!((read(name), name.size), (key.to_owned(), key.len()));
        assert_eq!(read(info.config), format!(r#"{{"block":1,"name":"{key}","nested":{{"on":true}},"ratio":0.5}}"#));
        assert!(read(info.entry).contains(r#""rounds":20"#) && read(info.notes).is_empty());
        assert_eq!(read(info.device), r#"{"platform":"cpu","device_kind":"cpu","hardware":{"cores":"2"}}"#);
        unsafe { atl_hit_release(hit) };
        count
    };
    for key in ["a", "b"] {
        // the first one parses the entry, and the cache keeps it
        assert!(look(key) > 0);
        assert_eq!([look(key), look(key)], [0, 0]);
    }
    // nor does an operation that nobody has
    let (query, mut hit) = (Query { operation: text("other@v1"), ..device.query("a") }, ptr::null());
    assert_eq!(unsafe { atl_cache_lookup(cache.0, &query, &mut hit, ptr::null_mut(), 0) }, Status::Miss as i32);
}
