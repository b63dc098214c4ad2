//! An installed Chromium, controlled over a pipe by the DevTools protocol: no port, no network, and it ends with the test.

use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// An answer that takes longer never comes.
const TIMEOUT: Duration = Duration::from_secs(60);
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A running browser.
pub(crate) struct Chromium {
    child: Child,
    stdin: RefCell<ChildStdin>,
    messages: Receiver<Value>,
    next: Cell<u64>,
    /// Messages that are not answers: `method`, `params`.
    events: RefCell<Vec<Value>>,
    _home: tempfile::TempDir,
}

impl Chromium {
    /// Starts it; if none is installed, reports that the test is skipped.
    pub(crate) fn start() -> Option<Chromium> {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&paths)
            .flat_map(|folder| NAMES.map(|name| folder.join(name)))
            .find(|path| path.is_file());
        let Some(program) = found else {
            println!(
                "skipped: browser tests of the report: no Chromium is installed (Debian: apt-get install chromium)"
            );
            return None;
        };
        let home = tempfile::tempdir().unwrap();
        // The protocol is spoken on the descriptors 3 and 4; a shell can put them there.
        let mut child = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#])
            .arg(program)
            .args(["--headless=new", "--remote-debugging-pipe"])
            // It only opens files that the test wrote; as root there is no sandbox to be had.
            .args(["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--hide-scrollbars", "--force-color-profile=srgb", "about:blank"])
            .arg(format!("--user-data-dir={}", home.path().display()))
            .env("HOME", home.path())
            // It leaves a socket there when it is killed.
            .env("TMPDIR", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let stdin = child.stdin.take().unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, messages) = channel();
        std::thread::spawn(move || read_messages(stdout, |message| sender.send(message).is_ok()));
        let browser = Chromium {
            child,
            stdin: RefCell::new(stdin),
            messages,
            next: Cell::new(1),
            events: RefCell::default(),
            _home: home,
        };
        browser.call(None, "Browser.getVersion", json!({}));
        Some(browser)
    }

    fn call(&self, session: Option<&str>, method: &str, params: Value) -> Value {
        let id = self.next.replace(self.next.get() + 1);
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let mut stdin = self.stdin.borrow_mut();
        write!(stdin, "{message}\0").and_then(|()| stdin.flush()).expect("the browser listens");
        loop {
            let answer =
                self.messages.recv_timeout(TIMEOUT).unwrap_or_else(|error| panic!("{method}: {error}"));
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.events.borrow_mut().push(answer);
        }
    }

    /// Opens a file in a window of so many pixels.
    pub(crate) fn open(&self, file: &Path, [width, height]: [u32; 2], scheme: &str) -> Page<'_> {
        let target =
            self.call(None, "Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attach = json!({ "targetId": target, "flatten": true });
        let session =
            self.call(None, "Target.attachToTarget", attach)["sessionId"].as_str().unwrap().to_owned();
        let page = Page { browser: self, session };
        for domain in ["Page.enable", "Runtime.enable", "Log.enable", "Network.enable"] {
            page.call(domain, json!({}));
        }
        let phone = width < 500;
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone });
        page.call("Emulation.setDeviceMetricsOverride", metrics);
        page.media("screen", scheme);
        page.call("Page.navigate", json!({ "url": format!("file://{}", file.display()) }));
        page.wait_for("document.readyState === 'complete'");
        page
    }
}

fn read_messages(stdout: impl Read, mut take: impl FnMut(Value) -> bool) {
    let mut reader = BufReader::new(stdout);
    let mut bytes = Vec::new();
    while reader.read_until(0, &mut bytes).is_ok_and(|read| read > 0) {
        bytes.pop();
        if !serde_json::from_slice(&bytes).is_ok_and(&mut take) {
            return;
        }
        bytes.clear();
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // It may be gone already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A page in it.
pub(crate) struct Page<'b> {
    browser: &'b Chromium,
    session: String,
}

impl Page<'_> {
    fn call(&self, method: &str, params: Value) -> Value {
        self.browser.call(Some(&self.session), method, params)
    }

    /// The value of an expression; a promise is waited for.
    pub(crate) fn evaluate(&self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_for(&self, expression: &str) {
        for _ in 0..400 {
            if self.evaluate(expression) == true {
                return;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("never true: {expression}");
    }

    /// Pretends to be paper (`print`) or a screen, and that the user wants light or dark.
    pub(crate) fn media(&self, media: &str, scheme: &str) {
        let scheme = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "media": media, "features": scheme }));
    }

    /// Moves the mouse.
    pub(crate) fn hover(&self, x: f64, y: f64) {
        self.call("Input.dispatchMouseEvent", json!({ "type": "mouseMoved", "x": x, "y": y }));
    }

    /// Clicks in the middle of the element that an expression gives.
    pub(crate) fn click(&self, element: &str) {
        let [x, y] = self.middle(element);
        self.hover(x, y);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// The middle of an element, after scrolling to it.
    pub(crate) fn middle(&self, element: &str) -> [f64; 2] {
        let script = format!(
            "(() => {{ const it = {element}; it.scrollIntoView({{block: 'center', behavior: 'instant'}}); \
             const box = it.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        );
        let middle = self.evaluate(&script);
        [middle[0].as_f64().expect("an element"), middle[1].as_f64().unwrap()]
    }

    /// Returns errors, and addresses that were fetched besides the file itself.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.evaluate("new Promise((done) => setTimeout(done, 50))");
        let events = self.browser.events.borrow();
        let told =
            events.iter().filter(|event| event["sessionId"] == self.session.as_str()).filter_map(|event| {
                let params = &event["params"];
                let url = params["request"]["url"].as_str().unwrap_or_default();
                let bad = match event["method"].as_str()? {
                    "Runtime.exceptionThrown" | "Inspector.targetCrashed" => true,
                    "Runtime.consoleAPICalled" => {
                        matches!(params["type"].as_str(), Some("error" | "warning" | "assert"))
                    }
                    "Log.entryAdded" => {
                        params["entry"]["level"] != "verbose" && params["entry"]["level"] != "info"
                    }
                    "Network.requestWillBeSent" => {
                        !["file:", "data:", "blob:"].iter().any(|it| url.starts_with(it))
                    }
                    _ => false,
                };
                bad.then(|| event.to_string())
            });
        told.collect()
    }

    /// Saves a screenshot of the whole page if `BULKMEM_SCREENSHOTS` names a folder.
    pub(crate) fn screenshot(&self, name: &str) {
        let Some(folder) = std::env::var_os("BULKMEM_SCREENSHOTS") else { return };
        let params = json!({ "format": "png", "captureBeyondViewport": true });
        let data = self.call("Page.captureScreenshot", params)["data"].as_str().unwrap().to_owned();
        // The page decodes it, so that the tests need no library for that.
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(Path::new(&folder).join(format!("{name}.png.base64")), data).unwrap();
    }
}
