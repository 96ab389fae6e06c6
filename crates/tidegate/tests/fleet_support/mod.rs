//! Proxies of a fleet, as people start them.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_testing::blocking;

pub(crate) const TOKEN: &str = "0123456789abcdef";

/// Longer than any of it takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A `tidegate run` with a section `[fleet]`; killed with the test.
pub(crate) struct Proxy {
    process: Child,
    admin: u16,
}

impl Proxy {
    pub(crate) fn start(folder: &Path, name: &str, admin: u16, fleet: &str) -> Self {
        let text = format!(
            "listen = '127.0.0.1:0'\nupstream = 'http://127.0.0.1:9'\n\
             protect = {{ target = '500ms', classes = [{{ name = 'gold', guarantee = '10/s' }}] }}\n\
             admin = {{ addr = '127.0.0.1:{admin}', token = '{TOKEN}' }}\n\
             fleet = {{ proxy = '{name}', {fleet} }}\n"
        );
        let file = folder.join(format!("{name}.toml"));
        fs::write(&file, text).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["run", "-c"])
            .arg(&file)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, admin }
    }

    /// What the admin listener answers; `None` while there is none.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        let port = self.admin;
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {TOKEN}\r\n\
             connection: close\r\n\r\n"
        );
        let answer = blocking::try_ask(("127.0.0.1", port), request).ok()?;
        serde_json::from_slice(&answer.body).ok()
    }

    /// Asks until the fleet is as it should be.
    pub(crate) fn await_fleet(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        let mut last = None;
        while begun.elapsed() < PATIENCE {
            last = self.get("/api/fleet");
            if let Some(fleet) = last.as_ref().filter(|fleet| is_so(fleet)) {
                return fleet.clone();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{what}: {last:?}");
    }

    /// What `tidegate ctl` prints about it.
    pub(crate) fn command(&self, args: &[&str]) -> String {
        let admin = format!("http://127.0.0.1:{}", self.admin);
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["ctl", "--admin", &admin, "--token", TOKEN])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How many other proxies it knows.
pub(crate) fn peers(fleet: &Value) -> usize {
    fleet["peers"].as_array().map_or(0, Vec::len)
}

/// Its share of the windows.
pub(crate) fn share(fleet: &Value) -> f64 {
    fleet["applications"]["default"]["share"]
        .as_f64()
        .unwrap_or(0.0)
}

/// Waits until two proxies, of which the first one has the smaller name, share windows and
/// guarantee.
pub(crate) fn await_half_each(one: &Proxy, two: &Proxy) {
    let half = |fleet: &Value| peers(fleet) == 1 && (share(fleet) - 0.5).abs() < 0.01;
    let leader = one.await_fleet("half each", half)["proxy"].clone();
    let fleet = two.await_fleet("half each", |fleet| {
        half(fleet) && fleet["applications"]["default"]["leader"] == leader
    });
    let guarantee = &fleet["applications"]["default"]["guarantees"]["gold"];
    assert!((guarantee.as_f64().unwrap() - 0.5).abs() < 0.01, "{fleet}");
}
