//! A background load: processes that keep a core busy until the benchmark ends.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

const FLAG: &str = "--burn-a-core";

/// Whether this process is one of them.
pub(crate) fn is_load() -> bool {
    std::env::args().nth(1).as_deref() == Some(FLAG)
}

/// Computes until standard input ends, which happens when the benchmark ends, however that happens.
pub(crate) fn burn() {
    static DONE: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        DONE.store(true, Ordering::Relaxed);
    });
    let mut value = 1.0_f64;
    while !DONE.load(Ordering::Relaxed) {
        for _ in 0..10_000 {
            value = std::hint::black_box(value.sqrt() + 1.0);
        }
    }
}

/// Busy processes, which end when this is dropped.
pub(crate) struct Load(Vec<Child>);

impl Load {
    pub(crate) fn start(processes: usize) -> Self {
        let this = std::env::current_exe().unwrap();
        let start = || Command::new(&this).arg(FLAG).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        Self((0..processes).map(|_| start()).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
