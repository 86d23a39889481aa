//! A change of the compiler: its page and its table agree with its JSON, and the JSON with its schema.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use crate::report_html::Page;
use crate::support::prerequisite::python_with;
use crate::support::program::*;
use crate::support::schemas;
use autotune_lowered::report::{Document, UpgradeReport, write_upgrade_html};
use autotune_lowered::upgrade::UpgradeResult;
use serde_json::{Value, json};

/// A result with every verdict.
fn document() -> Value {
    serde_json::from_str(&fs::read_to_string("tests/data/cli/upgrade.json").unwrap()).unwrap()
}

fn page_of(document: &Value) -> Page {
    let result: UpgradeResult = serde_json::from_value(document.clone()).unwrap();
    let mut page = Vec::new();
    write_upgrade_html(&mut page, &UpgradeReport { subject: "a registry", result: &result }).unwrap();
    Page(String::from_utf8(page).unwrap())
}

fn table_of(document: &Value) -> String {
    let result: UpgradeResult = serde_json::from_value(document.clone()).unwrap();
    let mut table = Vec::new();
    (&result).write_table(&mut table).unwrap();
    String::from_utf8(table).unwrap()
}

#[test]
fn a_stored_result_is_drawn_as_its_json_says() {
    let place = Place::new();
    let out = place.text("page.html");
    let run = place.run(&["report", "tests/data/cli/upgrade.json", "-o", &out]);
    assert_eq!((run.code, run.stdout), (0, format!("{out}\n")), "{}", run.stderr);
    let (document, page) = (document(), Page::read(out.as_ref()));
    assert_eq!(page.data(), json!({"subject": "tests/data/cli/upgrade.json", "upgrade": document}));
    assert_eq!(schemas::wrong("upgrade", &document), None);

    let verdicts = ["breaks", "compiler regressed", "retune", "undecided", "undecided", "improved", "holds"];
    let rows = page.rows("overview upgrade");
    let shown: Vec<&str> = rows.iter().map(|row| row.between("data-status=\"", "\"")[0]).collect();
    assert_eq!(shown, [&verdicts[..], &["not recorded"]].concat(), "the worst first");
    for row in &rows[..7] {
        let told = document["calls"].as_array().unwrap().iter();
        let call = told.into_iter().find(|call| row.0.contains(call["call_key"].as_str().unwrap())).unwrap();
        let (best, change) = (&call["best"]["to_old"], &call["change"]);
        assert_eq!(row.value("old"), call["old_ns"].as_f64());
        assert_eq!(row.value("new"), call["new_ns"].as_f64());
        assert_eq!(row.value("new/old"), change["ratio"].as_f64());
        assert_eq!(row.value("best/old"), best["ratio"].as_f64());
        let pairs = |of: &Value| of["processes"].as_array().map_or(0, Vec::len);
        assert_eq!(row.dots(), pairs(change) + pairs(best), "a point for each pair of processes: {}", row.0);
        let drawn = usize::from(!change.is_null()) + usize::from(!best.is_null());
        for part in ["class=\"interval\"", "class=\"median\"", "class=\"band\""] {
            assert_eq!(row.0.matches(part).count(), drawn, "{part} in {}", row.0);
        }
    }
    let retune = &rows[2].0;
    assert_eq!(retune.matches("class=\"aside\"").count(), 1, "one pair was contended");
    assert!(retune.contains("strip base") && retune.contains("strip best"), "two colours: {retune}");
    assert!(retune.contains("<code>block=64 stages=2</code>") && retune.contains("<code>block=128</code>"), "{retune}");
    // the worst, what is open and what holds look different
    for (row, badge) in [(0, "failed"), (1, "failed"), (2, "failed"), (3, "open"), (5, "tuned"), (6, "kept")] {
        assert!(rows[row].0.contains(&format!("class=\"badge {badge}\"")), "{}", rows[row].0);
    }
    assert!(page.0.contains("3 of 7 calls") && page.0.contains("jaxlib 0.10.2") && page.0.contains("Ended early."));
}

/// The same compiler on both sides, because an environment with two of them is rare.
#[test]
fn the_page_of_a_run_holds_what_stdout_has() {
    let Some(python) = python_with("jax") else { return };
    let (place, python) = (Place::new(), python.display().to_string());
    fs::create_dir(place.path("cache")).unwrap();
    let (registry, only) = ("tests/data/small/registry", "split_matmul@v1:07be62dbb34de029");
    let out = place.text("page.html");
    let upgrade = |report: &str| {
        let run = ["upgrade", registry, "--only", only, "--old", &python, "--new", &python, "--report", report];
        place.run(&[&run[..], &["--processes", "3", "--budget", "1", "--no-persist", "--format", "json"]].concat())
    };
    let refused = upgrade(&place.text("nowhere/page.html"));
    assert!(refused.code == 4 && refused.stderr.contains("nowhere` does not exist"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("split_matmul"), "nothing was measured before: {}", refused.stderr);

    let run = upgrade(&out);
    // two runs of one program may differ on a machine that others share, which may also be too slow for the budget
    assert!([0, 1, 7].contains(&run.code), "{}", run.stderr);
    let (result, page) = (run.json(), Page::read(out.as_ref()));
    assert_eq!(page.data(), json!({"subject": registry, "upgrade": result}));
    assert_eq!(page.rows("overview upgrade").len(), 1);
    assert_eq!(page.rows("overview upgrade")[0].value("new"), result["calls"][0]["new_ns"].as_f64());
    assert_eq!(result["old"]["device"], result["new"]["device"]);
}

/// The axis is logarithmic and common: what is as far from one is drawn as far from it, in every row.
#[test]
fn equal_ratios_are_at_equal_places_in_all_rows() {
    let mut document = document();
    let calls = document["calls"].as_array_mut().unwrap();
    calls.retain(|call| call["verdict"] == "improved" || call["verdict"] == "holds");
    for (call, ratio) in calls.iter_mut().zip([0.8, 1.25]) {
        call["change"]["ratio"] = json!(ratio);
        call["change"]["processes"] = json!([{"epoch": 1, "ratio": ratio, "error": 0.01, "rounds": 9}]);
    }
    let page = page_of(&document);
    let number = |text: &str| text.split(' ').next().unwrap().parse::<f64>().unwrap();
    let at = |class: &str| -> Vec<f64> {
        page.between(&format!("<path class=\"{class}\" d=\"M"), "\"").into_iter().map(number).collect()
    };
    let (ones, dots) = (at("one"), at("dots"));
    assert!((ones[0] - ones[1]).abs() < 1e-9, "{ones:?}");
    assert!((dots[0] + dots[1] - 2.0 * ones[0]).abs() < 0.2 && dots[1] < dots[0], "{dots:?} about {ones:?}");
    // the band from 0.95 to 1.05 begins and ends where such ratios are
    let part = |ratio: f64| ones[0] + (dots[0] - ones[0]) * ratio.ln() / 1.25_f64.ln();
    let bands = page.between("<rect class=\"band\" x=\"", "\"");
    let widths = page.between("y=\"0\" width=\"", "\"");
    assert!((number(bands[0]) - part(0.95)).abs() < 0.3, "{bands:?}");
    assert!((number(widths[0]) - part(1.05) + part(0.95)).abs() < 0.3, "{widths:?}");
}

#[test]
fn names_from_a_result_stay_text_and_no_number_is_too_odd() {
    let mut document = document();
    let page = page_of(&document);
    // its own script, and its data
    assert_eq!(page.0.matches("<script").count(), 2);
    assert!(!page.0.contains("<img") && page.0.contains("layout=&lt;/script&gt;"));
    for (ratio, least) in [(-1.0, 0.05), (0.0, 1.0), (1e308, 1e308), (5e-324, -7.0)] {
        document["min_difference"] = json!(least);
        for call in document["calls"].as_array_mut().unwrap().iter_mut().filter(|call| !call["change"].is_null()) {
            call["change"]["ratio"] = json!(ratio);
            call["change"]["interval"] = json!({"low": ratio, "high": -ratio, "confidence": ratio});
            call["change"]["processes"][0]["ratio"] = json!(ratio);
        }
        let drawn = page_of(&document).0;
        let pictures = Page(drawn).between("<svg", "</svg>").concat();
        assert!(!pictures.contains("NaN") && !pictures.contains("inf"), "{ratio}");
    }
}

#[test]
fn the_table_is_narrow_and_names_configs_where_something_is_to_be_done() {
    let mut document = document();
    let calls = document["calls"].as_array_mut().unwrap();
    calls[2]["op_id"] = json!("matmul@v1");
    calls[2]["in_force"]["config"] = json!({"layout": "rows ".repeat(50), "block": 64});
    let table = table_of(&document);
    let (rows, lines): (Vec<&str>, Vec<&str>) = table.lines().partition(|line| !line.starts_with("    "));
    let row = |verdict: &str| -> Vec<&str> {
        let row = rows.iter().find(|row| row.starts_with(verdict)).unwrap();
        row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
    };
    assert_eq!(
        row("retune"),
        ["retune", "matmul@v1:0000000000000004 (forward-vjp)", "4.00 ms", "5.00 ms", "1.300", "1.200–1.400", "0.975"]
    );
    assert_eq!(row("breaks")[2..], ["—"; 5]);
    assert!(rows.iter().all(|row| row.chars().count() <= 120), "{table}");
    let configs: Vec<&str> = lines.iter().filter(|line| !line.contains("with the new compiler, ")).copied().collect();
    let own = format!("    in force: block=64 layout={}", "rows ".repeat(50));
    for line in [
        own.trim_end(),
        "    in force: block=64",
        "    best with the new compiler: block=128",
        "    in force: block=256",
    ] {
        assert!(configs.contains(&line), "{line:?} in {table}");
    }
    assert!(!table.contains("block=32") && !table.contains("block=16"), "nothing is to be done there: {table}");
}
