//! The scanner compared with `rg -oN` and Python's `re` on one generated file of HLO text.
//!
//! `cargo bench --bench scan -- [MEGABYTES [LINE_BYTES]]` writes the file to the temporary folder, runs each program
//! three times with the file in the page cache, prints a table with the best wall time and the scanner's peak memory,
//! measured in a separate process, and removes the file. `PYTHON` names the interpreter; programs that are not
//! installed are left out. `-- --child FILE` scans any file, dump folder or compressed module and prints only that
//! peak.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::panic)]

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use autotune_lowered::hlo::{ScanOptions, scan_path};

const LABELS: [&str; 4] = [
    "ejkernel_ops#flash_attention@v2:39205d2e7dfcef1b",
    "ejkernel_ops#rms_norm@v1:020151af84a38253",
    "ejkernel_ops#rms_norm_vjp@v1:020151af84a38253",
    "ejkernel_ops#demo_matmul@v3:7c69059b379c0cde",
];
const PATTERN: &str = "ejkernel_ops#[A-Za-z0-9_.@-]+:[0-9a-f]{16}";
// ejkernel's own expression: ejkernel/ops/utils/meta.py, LABEL_RE
const PYTHON: &str = r#"
import re, sys
label = re.compile(r"ejkernel_ops#(?P<op>[^:]+@v[0-9A-Za-z_.-]+):(?P<key>[0-9a-f]{16})")
print(sum(1 for _ in label.finditer(open(sys.argv[1]).read())))
"#;

/// Writes lines of about `line_bytes` with one label in every 800 bytes; returns the number of labels.
fn generate(file: &std::fs::File, bytes: u64, line_bytes: usize) -> u64 {
    let mut out = std::io::BufWriter::with_capacity(1 << 20, file);
    out.write_all(
        b"HloModule jit_step, entry_computation_layout={(f32[2,128]{1,0})->f32[2,128]{1,0}}\n\nENTRY %main {\n",
    )
    .unwrap();
    let (mut written, mut labels, mut in_line) = (0_u64, 0_u64, 0);
    let filler = "  %multiply.1234 = f32[2,128,384]{2,1,0} multiply(%broadcast_in_dim.99, %get-tuple-element.61), metadata={op_name=\"jit(step)/jvp(mlp)/mul\" stack_frame_id=89}";
    while written < bytes {
        let label = LABELS[(labels % 4) as usize];
        let mut text = format!(
            "  %add.{labels} = f32[2,128]{{1,0}} add(%p.1, %p.2), metadata={{op_name=\"jit(step)/jvp({label})/add\" stack_frame_id=7}}"
        );
        labels += 1;
        while text.len() < 800 {
            let room = 800 - text.len();
            text.push_str(&filler[..room.min(filler.len())]);
            in_line += filler.len();
            if in_line >= line_bytes && text.len() < 800 {
                text.push('\n');
                in_line = 0;
            }
        }
        out.write_all(text.as_bytes()).unwrap();
        written += text.len() as u64;
    }
    out.write_all(b"\n}\n").unwrap();
    out.flush().unwrap();
    labels
}

fn best(mut run: impl FnMut() -> Option<u64>) -> Option<(f64, u64)> {
    let mut best: Option<(f64, u64)> = None;
    for _ in 0..3 {
        let start = Instant::now();
        let found = run()?;
        let seconds = start.elapsed().as_secs_f64();
        best = Some(best.map_or((seconds, found), |(other, _)| (seconds.min(other), found)));
    }
    best
}

/// Runs a program and counts its output lines; a single line with a number counts as that number.
fn count_output(program: &str, arguments: &[&str]) -> Option<u64> {
    let mut child = Command::new(program).args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut block = vec![0; 1 << 20];
    let (mut lines, mut start) = (0, Vec::new());
    let mut output = child.stdout.take()?;
    loop {
        let read = output.read(&mut block).ok()?;
        if read == 0 {
            break;
        }
        lines += block[..read].iter().filter(|&&byte| byte == b'\n').count() as u64;
        start.extend_from_slice(&block[..read.min(32_usize.saturating_sub(start.len()))]);
    }
    child.wait().ok()?.success().then_some(())?;
    let number = (lines == 1).then(|| String::from_utf8_lossy(&start).trim().parse().ok()).flatten();
    Some(number.unwrap_or(lines))
}

/// Scans a file in this process; prints peak memory in KiB and the seconds.
fn child(path: &str) {
    let start = Instant::now();
    let scan = scan_path(path, &ScanOptions::default()).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("{} {seconds:.2} s, {} labels", peak.trim(), scan.labels.len());
}

fn main() {
    let mut words = std::env::args().skip_while(|word| word != "--child").skip(1);
    if let Some(path) = words.next() {
        return child(&path);
    }
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    // `cargo bench` passes `--bench`; `cargo test --all-targets` also runs this, only to check that it works
    let megabytes = if std::env::args().any(|argument| argument == "--bench") { 1000 } else { 1 };
    let bytes = numbers.first().copied().unwrap_or(megabytes) * 1_000_000;
    let line_bytes = numbers.get(1).copied().unwrap_or(200) as usize;
    let file = tempfile::Builder::new().suffix(".hlo.txt").tempfile().unwrap();
    let labels = generate(file.as_file(), bytes, line_bytes);
    let path = file.path().to_str().unwrap();
    let length = file.as_file().metadata().unwrap().len();
    std::io::copy(&mut std::fs::File::open(path).unwrap(), &mut std::io::sink()).unwrap();

    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut rows = vec![(
        "autotune-lowered scan",
        best(|| {
            Some(scan_path(path, &ScanOptions::default()).unwrap().labels.iter().map(|label| label.occurrences).sum())
        }),
    )];
    rows.push(("rg -oN", best(|| count_output("rg", &["-oN", PATTERN, path]))));
    rows.push(("rg -c", best(|| count_output("rg", &["-c", PATTERN, path]))));
    if length <= 2_000_000_000 {
        rows.push(("ejkernel's expression, Python re", best(|| count_output(&python, &["-c", PYTHON, path]))));
    }
    println!("{length} bytes, {labels} labels, lines of about {line_bytes} bytes\n");
    println!("| program | best of 3, s | GB/s | found |");
    println!("| --- | --- | --- | --- |");
    for (name, result) in rows {
        match result {
            Some((seconds, found)) => {
                println!("| {name} | {seconds:.3} | {:.2} | {found} |", length as f64 / seconds / 1e9);
            }
            None => println!("| {name} | not run | | |"),
        }
    }
    let exe = std::env::current_exe().unwrap();
    let peak = Command::new(exe).args(["--child", path]).output().unwrap();
    println!("\nautotune-lowered scan, peak memory: {}", String::from_utf8_lossy(&peak.stdout).trim());
    assert_eq!(
        scan_path(path, &ScanOptions::default()).unwrap().labels.iter().map(|label| label.occurrences).sum::<u64>(),
        labels
    );
}
