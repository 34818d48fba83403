//! All that one run of the bench found, and under which circumstances.

use std::env;
use std::path::{Path, PathBuf};
use std::thread;

use grifo_tests::ServerBinary;

use crate::bytes::{self, Bytes};
use crate::contender::Times;
use crate::first_use::FirstUse;
use crate::series::Series;
use crate::targets::{self, Verdict};

const LOCK: &str = include_str!("../../Cargo.lock");
const MEASURED: [&str; 4] = ["grifo", "redis", "governor", "trypema"];

#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) cores: usize,
    pub(crate) server: String,
    /// Crates and their versions.
    pub(crate) versions: Vec<(&'static str, String)>,
    pub(crate) runs: u32,
    pub(crate) times: Times,
    pub(crate) series: Vec<Series>,
    pub(crate) bytes: Vec<Bytes>,
    pub(crate) first_uses: Vec<FirstUse>,
}

impl Findings {
    pub(crate) fn new(binary: &ServerBinary, runs: u32, times: Times) -> Self {
        let name = if binary.is_valkey { "Valkey" } else { "Redis" };
        Self {
            cores: thread::available_parallelism().map_or(0, usize::from),
            server: format!("{name} {}.{}", binary.version.0, binary.version.1),
            versions: MEASURED.iter().map(|name| (*name, version(name))).collect(),
            runs,
            times,
            series: Vec::new(),
            bytes: Vec::new(),
            first_uses: Vec::new(),
        }
    }

    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        let mut verdicts = targets::judge(&self.series);
        verdicts.extend(bytes::judge(&self.bytes));
        verdicts
    }
}

/// As locked.
fn version(package: &str) -> String {
    let wanted = format!("name = \"{package}\"");
    let after = LOCK.lines().skip_while(|line| *line != wanted).nth(1).unwrap_or_default();
    after.trim_start_matches("version = ").trim_matches('"').to_owned()
}

pub(crate) fn target_folder() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap_or(root).join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}
