//! The text of a file of shipped configs: every accepted entry can be looked up.

#![no_main]

use autotune_lowered::cache::{CacheKey, ConfigStore, JsonForm, ShippedConfigs};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut store = ShippedConfigs::default();
    let added = store.add(JsonForm::Lines, text);
    let entries = store.entries().expect("a store in memory");
    assert!(added.is_ok() || entries.is_empty(), "a file that is refused gives nothing");
    for (key, entry) in &entries {
        assert_eq!(store.get(key.parts()).expect("a store in memory").as_ref(), Some(entry));
        assert_eq!(CacheKey::from_text(&key.to_text()).as_ref(), Some(key), "a key's text gives the key");
        let _ = entry.speed_up();
        let text = entry.to_text();
        let again = serde_json::from_str(&text).expect("an entry's text is an entry");
        assert_eq!(entry.as_ref(), &again, "an entry's text gives the entry");
    }
});
