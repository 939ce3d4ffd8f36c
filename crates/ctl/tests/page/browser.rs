//! A headless Chromium, as far as a test needs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Debian's names for it, the smaller one first.
const PROGRAMS: [&str; 2] = ["chromium-headless-shell", "chromium"];

/// A browser has this long for one page; then it hangs.
const PATIENCE: &str = "120";

pub(crate) struct Browser {
    program: PathBuf,
}

/// What a browser made of a page.
pub(crate) struct Seen {
    pub(crate) dom: String,
    /// Everything it asked for apart from files.
    pub(crate) requests: Vec<String>,
}

/// A picture of a page.
pub(crate) struct Picture {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// How much there is to see: a picture of nothing is small.
    pub(crate) bytes: usize,
}

impl Browser {
    /// `None`, after a word to whoever counts, if there is no browser that works here.
    pub(crate) fn find(test: &str) -> Option<Browser> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let places = PROGRAMS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        let Some(program) = places.into_iter().find(|place| place.is_file()) else {
            testkit::skip(test, "there is no chromium");
            return None;
        };
        Some(Browser { program })
    }

    /// Loads a page and waits until it is done.
    pub(crate) fn open(&self, page: &Path, folder: &Path) -> Seen {
        let log = folder.join("net-log.json");
        let mut command = self.command(folder);
        command.arg(format!("--log-net-log={}", log.display())).arg("--dump-dom");
        let output = run(&mut command, page);
        Seen { dom: String::from_utf8_lossy(&output).into_owned(), requests: requests(&log) }
    }

    pub(crate) fn photograph(
        &self,
        page: &Path,
        folder: &Path,
        name: &str,
        width: u32,
        height: u32,
    ) -> Picture {
        let file = folder.join(format!("{name}.png"));
        let mut command = self.command(folder);
        command.arg(format!("--window-size={width},{height}")).arg("--hide-scrollbars");
        command.arg(format!("--screenshot={}", file.display()));
        run(&mut command, page);
        Picture::read(&file)
    }

    fn command(&self, folder: &Path) -> Command {
        // Programs that hang are ended by `timeout`, so that nothing outlives the test.
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", PATIENCE]).arg(&self.program);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ]);
        // A browser's own errands are not the page's.
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.args([
            "--disable-extensions",
            "--disable-default-apps",
            "--no-pings",
            "--disable-domain-reliability",
        ]);
        command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
        command.env("HOME", folder).stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }
}

fn run(command: &mut Command, page: &Path) -> Vec<u8> {
    let output = command.arg(format!("file://{}", page.display())).output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Addresses that the browser turned to, by its own log of the network.
fn requests(log: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(log).expect("the browser writes its log");
    let mut found: Vec<String> = Vec::new();
    for rest in text.split("\"url\":\"").skip(1) {
        let url = rest.split('"').next().unwrap_or_default();
        if !url.starts_with("file:") && !url.starts_with("data:") && !found.contains(&url.to_owned()) {
            found.push(url.to_owned());
        }
    }
    found
}

impl Picture {
    fn read(file: &Path) -> Picture {
        let bytes = std::fs::read(file).expect("the browser makes a picture");
        assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"), "it is a PNG");
        let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        Picture { width: number(16), height: number(20), bytes: bytes.len() }
    }
}
