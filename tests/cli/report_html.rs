//! The page of a run: its content, that text stays text, and that it agrees with the JSON.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::program::*;
use autotune_lowered::report::{Document, ExpectedGain, HtmlReport, write_html};
use autotune_lowered::samples::{LogRecord, SampleLog};
use autotune_lowered::tune::AutotuningResult;
use regex::Regex;
use serde_json::{Value, json};

/// A recording of the example in which the compiler refuses one candidate of each call.
fn recording(folder: &Path) -> String {
    let file = folder.join("replay.json");
    write_replay(&example().join("registry"), &file);
    let mut recording: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    for invocation in recording["invocations"].as_array_mut().unwrap() {
        invocation["candidates"][3]["failures"] =
            json!([{"in": "prepare", "kind": "compile", "message": "no room for <tile> & \"co\""}]);
    }
    fs::write(&file, recording.to_string()).unwrap();
    format!("replay:{}", file.display())
}

/// Parts of a page, according to its own structure.
pub(crate) struct Page(pub(crate) String);

impl Page {
    pub(crate) fn read(path: &Path) -> Self {
        Self(fs::read_to_string(path).unwrap())
    }

    pub(crate) fn between(&self, begin: &str, end: &str) -> Vec<&str> {
        self.0.split(begin).skip(1).map(|rest| rest.split(end).next().unwrap()).collect()
    }

    pub(crate) fn data(&self) -> Value {
        serde_json::from_str(self.between("id=\"data\">", "</script>")[0]).unwrap()
    }

    fn sections(&self) -> Vec<Self> {
        self.between("<section class=\"operation\"", "</section>")
            .into_iter()
            .map(|part| Self(part.to_owned()))
            .collect()
    }

    /// The rows of a table's body.
    pub(crate) fn rows(&self, table: &str) -> Vec<Self> {
        let Some(table) = self.between(&format!("<table class=\"{table}\""), "</table>").first().copied() else {
            return Vec::new();
        };
        let body = table.split("<tbody").nth(1).unwrap();
        body.split("<tr ").skip(1).map(|row| Self(row.to_owned())).collect()
    }

    /// The exact figure of a cell, if it has one.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        let cell = self.between(&format!("data-name=\"{name}\""), ">")[0];
        cell.split("data-value=\"").nth(1).map(|rest| rest.split('"').next().unwrap().parse().unwrap())
    }

    /// The dots of a strip, in any form.
    pub(crate) fn dots(&self) -> usize {
        ["dots", "aside", "beyond"]
            .iter()
            .flat_map(|class| self.between(&format!("<path class=\"{class}\" d=\""), "\""))
            .map(|path| path.matches("h0").count())
            .sum()
    }
}

fn operations(result: &Value) -> &[Value] {
    result["operations"].as_array().unwrap()
}

#[test]
fn a_page_says_what_the_json_says_and_shows_every_candidate() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, file) = (folder.path().join("cache"), folder.path().join("page.html"));
    let (module, timer, out) = (module(), recording(folder.path()), file.display().to_string());
    let run = run(&cache, &[&module, "--timer", &timer, "--format", "json", "--report", &out]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let (result, page) = (run.json(), Page::read(&file));
    assert_eq!(page.data()["results"], json!([result]), "the document inside is the one on stdout");
    assert_eq!(page.data()["subject"], module.as_str());
    assert_eq!(page.between("Replayed data.", "</p>").len(), 1, "what was replayed is called so");

    let overview = page.rows("overview");
    assert_eq!(overview.len(), operations(&result).len());
    let mut dots = 0;
    for ((operation, section), row) in operations(&result).iter().zip(page.sections()).zip(overview) {
        assert!(section.0.contains(&format!(
            "{}:{}",
            operation["op_id"].as_str().unwrap(),
            operation["call_key"].as_str().unwrap()
        )));
        // how often the model calls it, not how many instructions carry its label
        let (sites, stamps) = (operation["call_sites"].as_u64().unwrap(), operation["occurrences"].as_u64().unwrap());
        let sites_in_words = if sites == 1 { "1 call site ".to_owned() } else { format!("{sites} call sites ") };
        assert!(sites < stamps && section.0.contains(&format!("It has {sites_in_words}in the module")), "{operation}");
        assert_eq!(row.value("speed-up"), operation["speed_up"].as_f64());
        assert_eq!(row.value("baseline"), operation["baseline"]["median_ns"].as_f64());
        assert_eq!(row.value("best"), operation["best"]["median_ns"].as_f64());
        let rows = section.rows("candidates");
        let candidates = operation["candidates"].as_array().unwrap();
        assert_eq!(rows.len(), candidates.len(), "every candidate is there");
        let figures = |row: &Page| (row.value("time").map(f64::to_bits), row.value("ratio").map(f64::to_bits));
        let bits = |value: &Value| value.as_f64().map(f64::to_bits);
        let mut shown: Vec<_> = rows.iter().map(figures).collect();
        let mut told: Vec<_> = candidates.iter().map(|one| (bits(&one["median_ns"]), bits(&one["ratio"]))).collect();
        shown.sort();
        told.sort();
        assert_eq!(shown, told);
        let failed: Vec<&Page> = rows.iter().filter(|row| row.0.contains("class=\"failure\"")).collect();
        assert_eq!(failed.len(), 1);
        assert!(
            failed[0].0.contains("<strong>compile</strong> no room for &lt;tile&gt; &amp; &quot;co&quot;"),
            "{}",
            failed[0].0
        );
        // the winner's config as in the result, by parameter
        let best = rows.iter().find(|row| row.0.contains("use this")).unwrap();
        assert_eq!(best.value("time"), operation["best"]["median_ns"].as_f64());
        dots += rows.iter().map(Page::dots).sum::<usize>();
    }
    assert_eq!(dots, pairs_in(&cache), "a dot for each pair that the sample log holds");
    // ten ms against five for every call, so also for all of them together
    assert!(page.0.contains(">2.00×<"), "the expected gain");
}

/// Pairs of a candidate and the baseline in the rounds of a sample log, without failures.
fn pairs_in(cache: &Path) -> usize {
    let text = fs::read_to_string(cache.join("samples-v1.log")).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<LogRecord>(&line[line.find('{').unwrap()..]).unwrap());
    let mut pairs = 0;
    for record in records {
        if let LogRecord::Round(round) = record
            && !round.confirming
        {
            let mut candidates: Vec<usize> = round.samples.iter().map(|sample| sample.candidate).collect();
            candidates.sort_unstable();
            candidates.dedup();
            assert!(candidates.contains(&0));
            pairs += candidates.len();
        }
    }
    assert!(pairs > 40, "{pairs}");
    pairs
}

#[test]
fn the_same_results_make_the_same_bytes_and_a_stored_run_is_drawn_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let (module, timer) = (module(), recording(folder.path()));
    let page = |name: &str| {
        let file = folder.path().join(name);
        let run = run(&cache, &[&module, "--timer", &timer, "--format", "json", "--report", file.to_str().unwrap()]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        (Page::read(&file), run.stdout)
    };
    let (first, _) = page("first.html");
    let ((second, document), (third, _)) = (page("second.html"), page("third.html"));
    assert!(second.0 == third.0, "two runs that measured nothing");
    assert!(second.0.contains("nothing was measured"));

    // from the cache folder, without a timer
    let file = folder.path().join("stored.html");
    let stored = run(&cache, &["report", cache.to_str().unwrap(), "-o", file.to_str().unwrap()]);
    assert_eq!((stored.code, stored.stdout), (0, format!("{}\n", file.display())), "{}", stored.stderr);
    let stored = Page::read(&file);
    let by_name = |page: &Page| -> BTreeMap<String, (Vec<String>, Vec<usize>)> {
        let sections = page.sections().into_iter();
        let rows = |section: &Page| {
            let rows = section.rows("candidates");
            let figures = rows.iter().map(|row| row.between("<th ", "</small>")[0].to_owned()).collect();
            (figures, rows.iter().map(Page::dots).collect())
        };
        sections.map(|section| (section.between("class=\"op\">", "<")[0].to_owned(), rows(&section))).collect()
    };
    assert_eq!(by_name(&first).len(), 4);
    assert_eq!(by_name(&stored), by_name(&first), "configs, figures and dots");
    assert_eq!(by_name(&second), by_name(&first));

    // from the JSON: the same figures, and a note that there are no samples
    let (json, file) = (folder.path().join("run.json"), folder.path().join("json.html"));
    fs::write(&json, &document).unwrap();
    let drawn = run(&cache, &["report", json.to_str().unwrap(), "-o", file.to_str().unwrap()]);
    assert_eq!(drawn.code, 0, "{}", drawn.stderr);
    let drawn = Page::read(&file);
    assert_eq!(drawn.data()["results"], second.data()["results"]);
    assert_eq!(drawn.sections().iter().map(Page::dots).sum::<usize>(), 0);
    assert_eq!(drawn.0.matches("There are no samples: only").count(), 4);
    // a missing sample log costs only the samples
    assert!(SampleLog::read(&cache.join("samples-v1.log")).unwrap().entries.len() == 4);
}

/// All data that a file may name, with names that look like markup.
fn hostile(text: &str) -> AutotuningResult {
    let config = json!({text: text, "block": 64});
    let candidate = json!({"config": config, "status": "failed", "rounds": 0, "tied_with_best": false,
                           "failure": {"kind": "compile", "message": text}});
    let operation = json!({
        "op_id": text, "call_key": text, "direction": "forward", "evidence": "by-name", "occurrences": 2, "how": text,
        "flags": [text], "share": 0.25, "status": "tuned", "reason": text, "baseline": {"config": {"block": text}, "median_ns": 2e6},
        "best": {"config": config, "median_ns": 1e6}, "speed_up": 2.0,
        "speed_up_interval": {"low": 1.5, "high": 2.5, "confidence": 0.95}, "candidates": [candidate],
        "rounds_measured": 6, "rounds_kept": 0,
        "search": {"strategy": text, "seed": 0, "configs": 9, "sampled": false, "evaluations": 2, "reused": 0,
                   "failed": 1, "failures": {text: 1}, "ended": "budget"}
    });
    let document = json!({
        "schema": 1, "tool": text, "timer": text, "source": "replay", "metric": text, "interrupted": true,
        "device": {"identity": {"platform": text, "device_kind": text, "hardware": {text: text}},
                   "environment": {"platform_version": text, "driver": text, "plugin": text, "plugin_api": text,
                                   "xla_flags": [text], "xla_autotuning": text}},
        "operations": [operation], "notes": [text],
        "step": {"profile": text, "modules_ns": 4e6, "labelled": 0.5, "decided": 0.25, "expected_gain": 0.125,
                 "expected_gain_low": 0.1, "expected_gain_high": 0.15},
        "missed": [{"op_id": text, "call_key": text, "evidence": "exact", "reason": text}]
    });
    serde_json::from_value(document).unwrap()
}

fn drawn(subject: &str, results: &[AutotuningResult]) -> String {
    let mut page = Vec::new();
    write_html(&mut page, &HtmlReport::new(subject, results)).unwrap();
    String::from_utf8(page).unwrap()
}

#[test]
fn names_from_files_stay_text() {
    let harmless = drawn("plain", &[hostile("plain")]);
    // each tag with the names of its attributes, without the values, which are in double quotes
    let values = Regex::new("\"[^\"]*\"").unwrap();
    let tags = |page: &str| -> Vec<String> {
        let data = Page(page.to_owned()).between("id=\"data\">", "</script>")[0].to_owned();
        let bare = values.replace_all(&page.replace(&data, ""), "").into_owned();
        bare.split('<').skip(1).map(|rest| rest.split('>').next().unwrap().to_owned()).collect()
    };
    for text in [
        "</script><script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "' onmouseover='alert(1)",
        "</title></style></svg><!-- <script>",
        "&lt;script&gt; &#60;",
    ] {
        let page = drawn(text, &[hostile(text)]);
        assert_eq!(tags(&page), tags(&harmless), "{text} made or ended an element or an attribute");
        // in the data too: it ends at its end, with its full content
        let data = Page(page.clone()).data();
        assert_eq!(data["results"][0]["operations"][0]["op_id"], text);
        assert_eq!(data["results"], serde_json::to_value([hostile(text)]).unwrap());
    }
    // direction-changing characters are spelled out
    let page = drawn("\u{202e}txt", &[]);
    assert!(page.contains("<h1>\\u{202e}txt</h1>"));
    assert!(page.contains("0 of 0"));
}

/// A set of compiler options that won, beside rows of other races.
#[test]
fn the_page_tells_the_races_of_compiler_options_apart() {
    let row = |config: Value, rest: Value| {
        let mut row = json!({"config": config, "tied_with_best": false, "rounds": 21});
        row.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        row
    };
    let times = |stage: &str, baseline: f64, ratio: f64, confidence: f64| {
        let interval = json!({"low": ratio - 0.1, "high": ratio + 0.1, "confidence": confidence});
        json!({"status": "measured", "median_ns": ratio * baseline, "ratio": ratio, "interval": interval,
               "race": {"stage": stage, "baseline_ns": baseline}})
    };
    let same = |name: &str| {
        let interval = json!({"low": 0.9, "high": 1.1, "confidence": 0.9});
        let race = json!({"stage": "alone", "baseline_ns": 2e6});
        let rest =
            json!({"status": "same-program", "median_ns": 2e6, "ratio": 1.0, "interval": interval, "race": race});
        row(json!({name: 1}), rest)
    };
    let mut slow = row(json!({"xla_slow": 1}), times("alone", 2e6, 0.75, 0.99999));
    slow["dropped"] = "slower".into();
    let rows = [
        slow,
        row(json!({"xla_a": 1}), times("last", 1e6, 0.5, 0.998)),
        row(json!({}), times("last", 1e6, 1.0, 1.0)),
        same("xla_s"),
        same("xla_t"),
    ];
    let mut result = serde_json::to_value(hostile("plain")).unwrap();
    let operation = &mut result["operations"][0];
    operation["op_id"] = "compiler_options@v1".into();
    operation["call_key"] = "ab".repeat(32).into();
    operation["reason"] = "already known (`--force` measures again)".into();
    operation["baseline"]["config"] = json!({});
    operation["best"]["config"] = json!({"xla_a": 1});
    operation["candidates"] = json!(rows);
    let mut result: AutotuningResult = serde_json::from_value(result).unwrap();
    let page = Page(drawn("plain", std::slice::from_ref(&result)));
    let text = page.between("<header>", "<script type=\"application/json\"")[0];
    let order = [
        "The last race, which decides: the baseline took 1.00 ms in it",
        "<code>xla_a=1</code>",
        "0.400–0.600 at 99.8 %",
        "<code>XLA's defaults</code>",
        "Each value alone: the baseline took 2.00 ms in it",
        "<code>xla_slow=1</code>",
        "0.650–0.850 at 99.999 %",
        "significantly slower than the best",
        "<details><summary>2 configs: another candidate's program, so not measured</summary>",
        "<code>xla_s=1</code>: same program as the baseline",
        "<code>xla_t=1</code>",
    ];
    let rows = page.between("<table class=\"candidates", "</table>")[0];
    let places: Vec<Option<usize>> = order.iter().map(|part| rows.find(part)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {rows}");
    assert!(text.contains("Already known (<code>--force</code> measures again)."), "{text}");
    assert!(!text.contains("Its label") && !text.contains(&"ab".repeat(16)) && !text.contains('`'), "{text}");
    assert!(text.contains("The percentage beside an interval is its confidence"), "{text}");
    // where the default stays, a tie beside an interval without 1 has its reason, and the terminal names the default
    let operation = &mut result.operations[0];
    operation.best = Some(operation.baseline.clone());
    operation.resolution = Some(0.145);
    operation.candidates[1].tied_with_best = true;
    let page = drawn("plain", std::slice::from_ref(&result));
    assert!(page.contains("tied with the best: within the noise floor of 14.5 %"), "{page}");
    let mut table = Vec::new();
    (&result).write_table(&mut table).unwrap();
    let table = String::from_utf8(table).unwrap();
    assert!(table.contains("keep XLA's defaults") && table.contains(":abababababababab "), "{table}");
}

#[test]
fn a_page_asks_for_nothing_else() {
    let page = drawn("plain", &[hostile("plain")]);
    assert!(page.contains("Its label has 2 stamps in the module"), "no call sites are known of it");
    for sign in ["http:", "https:", "src=", "@import", "url(", " style=", " onclick", "<link", "<iframe"] {
        assert!(!page.contains(sign), "{sign}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn what_is_expected_of_a_profiled_step_is_said() {
    let page = Page(drawn("plain", &[hostile("plain")]));
    assert!(page.0.contains(">12.5 %</span>") && page.0.contains("10.0 % to 15.0 % by the intervals"));
    assert_eq!(page.rows("overview")[0].value("share"), Some(0.25));
    assert_eq!(page.rows("overview")[1].value("share"), None);
    // every row has a cell for each heading, with and without the shares
    let mut without = hostile("plain");
    without.step = None;
    for page in [page, Page(drawn("plain", &[without]))] {
        let headings = page.between("<table class=\"overview\"", "</thead>")[0].matches("columnheader").count();
        for row in page.rows("overview") {
            assert_eq!(row.0.matches("role=\"cell\"").count() + 1, headings);
        }
    }
}

/// Two operations of 30 and 10 ms; the first becomes twice as fast, between 1.5 and 3 times, the second stays the same.
#[test]
fn the_gain_is_that_of_one_call_each() {
    let mut result = hostile("plain");
    let mut operation = result.operations.remove(0);
    operation.baseline.median_ns = Some(30e6);
    operation.speed_up_interval.as_mut().unwrap().low = 1.5;
    operation.speed_up_interval.as_mut().unwrap().high = 3.0;
    let mut kept = operation.clone();
    kept.baseline.median_ns = Some(10e6);
    kept.best = Some(kept.baseline.clone());
    let mut unknown = operation.clone();
    unknown.baseline.median_ns = None;
    result.operations = vec![operation, kept, unknown];
    let gain = ExpectedGain::of([&result]);
    let expected =
        ExpectedGain { counted: 2, uncounted: 1, baseline_ns: 40e6, best_ns: 25e6, least_ns: 20e6, most_ns: 30e6 };
    assert_eq!(gain, expected);
    assert_eq!(gain.speed_up(), Some(1.6));
    assert_eq!(ExpectedGain::of([]).speed_up(), None);
}
