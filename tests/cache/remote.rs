//! Shared caches over a network: a server with S3's protocol, and misbehaving servers.

#![cfg(feature = "remote")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::support::folder::in_memory;
use crate::support::prerequisite::python_with;
use crate::support::program::*;
use crate::support::shared::*;

/// An S3 server that ends with this value.
struct S3 {
    python: PathBuf,
    process: Child,
    endpoint: String,
}

impl S3 {
    /// `None`, with the reason printed, if moto is not installed.
    fn start() -> Option<Self> {
        let python = python_with("moto.server, boto3")?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/remote/s3_server.py");
        let mut server = Command::new(&python);
        server.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = server.spawn().unwrap();
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Some(Self { python, process, endpoint: format!("http://127.0.0.1:{}", port.trim()) })
    }

    fn machine(&self) -> Machine {
        s3_machine(&self.endpoint)
    }

    /// An object of the bucket `fleet`, as boto3 reads it.
    fn object(&self, name: &str) -> Vec<u8> {
        let script = "import boto3, sys; url, name = sys.argv[1:]; \
                      client = boto3.client('s3', endpoint_url=url, region_name='us-east-1', \
                      aws_access_key_id='a', aws_secret_access_key='b'); \
                      sys.stdout.buffer.write(client.get_object(Bucket='fleet', Key=name)['Body'].read())";
        let output = Command::new(&self.python).args(["-c", script, &self.endpoint, name]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const SECRET: &str = "wJalrXUtnFEMIK7MDENGbPxRfiCYSECRET";

fn s3_machine(endpoint: &str) -> Machine {
    let mut machine = Machine::new();
    let variables = [
        ("AWS_ENDPOINT", endpoint),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_REGION", "us-east-1"),
        ("NO_PROXY", "127.0.0.1"),
    ];
    machine.environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    machine
}

#[test]
fn a_bucket_is_published_to_loaded_from_and_outlived() {
    let Some(s3) = S3::start() else { return };
    let (one, other, url) = (s3.machine(), s3.machine(), "s3://fleet/team/a");
    let nothing = other.run(&["cache", "pull", url]);
    assert_eq!(nothing.code, 3, "{}", nothing.stderr);
    let digest = snapshot(&one.path("a.snapshot"), &[entry("a", 1, 10), entry("b", 1, 10)]);
    let pushed = one.good(&["cache", "push", url, &one.text("a.snapshot"), "-vvv"]);
    assert_eq!(pushed.stdout, format!("{digest}  {url}\n"));
    other.good(&["cache", "pull", url, &other.text("x.snapshot")]);
    assert_eq!(fs::read(other.path("x.snapshot")).unwrap(), fs::read(one.path("a.snapshot")).unwrap());
    snapshot(&other.path("b.snapshot"), &[entry("b", 2, 20), entry("c", 2, 20)]);
    other.good(&["cache", "push", url, &other.text("b.snapshot")]);
    let again = one.good(&["cache", "pull", url, "-v"]);
    assert!(again.stderr.contains("generation 2, 3 entries, fetched"), "{}", again.stderr);
    // secrets appear nowhere, not even in the most verbose log
    assert!(!pushed.stderr.contains(SECRET) && !pushed.stderr.contains("AWS4-HMAC"), "{}", pushed.stderr);

    // another prefix is another cache
    assert_eq!(one.run(&["cache", "pull", "s3://fleet/team/b"]).code, 3);
    // signatures are copied with it
    one.good(&["cache", "keygen", &one.text("key")]);
    one.good(&["cache", "push", "--replace", url, &one.text("a.snapshot"), "--sign-key", &one.text("key")]);
    other.good(&["cache", "pull", url, "--verify-key", &one.text("key.pub")]);

    // offline: the last loaded copy is used, with a message; without a copy, the error says what is wrong
    other.good(&["cache", "pull", url, &other.text("x.snapshot")]);
    drop(s3);
    let stale = other.good(&["cache", "pull", url, &other.text("x.snapshot")]);
    assert!(stale.stderr.contains("cannot reach") && stale.stderr.contains("ago is used"), "{}", stale.stderr);
    assert_eq!(stale.stdout, format!("{digest}  {}\n", other.text("x.snapshot")));
    let listed = other.good(&["cache", "ls", "--cache", url, "--format", "json"]);
    assert_eq!(listed.json()["entries"].as_array().unwrap().len(), 2);
    let signed = other.good(&["cache", "pull", url, "--verify-key", &one.text("key.pub")]);
    assert!(signed.stderr.contains("ago is used"), "{}", signed.stderr);
    let fresh = s3_machine("http://127.0.0.1:9").run(&["cache", "pull", url]);
    assert_eq!(fresh.code, 6, "{}", fresh.stderr);
    assert!(fresh.fault().contains("cannot reach `manifest-v1.json` of `s3://fleet/team/a`"), "{}", fresh.stderr);
    assert_eq!(other.run(&["cache", "push", url, &other.text("b.snapshot")]).code, 6);
}

#[test]
fn configs_are_exported_to_a_bucket() {
    let Some(s3) = S3::start() else { return };
    let machine = s3.machine();
    let entries: Vec<_> = (0..20_000).map(|call| entry(&format!("{call:06}"), call, 1)).collect();
    snapshot(&machine.path("small.snapshot"), &entries[..2]);
    snapshot(&machine.path("large.snapshot"), &entries);
    let export = |name: &str, to: &str| {
        machine.run(&["cache", "export", "--format", "json", to, "--cache", &machine.text(&format!("{name}.snapshot"))])
    };
    let secret = format!("{SECRET}\n");
    let url = |name: &str| format!("s3://fleet/configs/{name}.json");
    // the larger one goes in parts
    for name in ["small", "large"] {
        let exported = export(name, &url(name));
        assert_eq!((exported.code, exported.stdout), (0, format!("{}\n", url(name))), "{}", exported.stderr);
        assert_eq!(export(name, &machine.text("here.json")).code, 0);
        assert!(s3.object(&format!("configs/{name}.json")) == fs::read(machine.path("here.json")).unwrap(), "{name}");
    }
    assert!(fs::metadata(machine.path("here.json")).unwrap().len() > 9 << 20);
    let imported = machine.run(&["cache", "import", "--format", "json", &url("small")]);
    assert!(imported.code == 4 && imported.fault().contains("is a URL"), "{}", imported.stderr);
    let nowhere = export("small", "s3://nowhere/configs.json");
    assert!(nowhere.code == 6 && nowhere.fault().contains("no such bucket"), "{}", nowhere.stderr);
    // the library of stores panics at these
    for (name, value) in [
        ("AWS_ENDPOINT", "127.0.0.1:9"),
        ("AWS_ENDPOINT_URL_S3", "nonsense"),
        ("AWS_REGION", "no region"),
        ("AWS_SECRET_ACCESS_KEY", &secret),
        ("AWS_SESSION_TOKEN", "token\n"),
    ] {
        let mut wrong = s3.machine();
        wrong.environment.push((name.to_owned(), value.to_owned()));
        let run = wrong.run(&["cache", "pull", "s3://fleet/x"]);
        assert_eq!(run.code, 6, "{name}: {}", run.stderr);
        assert!(run.fault().contains(&format!("`{name}`")) && !run.stderr.contains(SECRET), "{}", run.stderr);
    }
    // a server that is gone, and one that hangs up
    let hangs_up = Server::start(|_, _| Vec::new());
    for endpoint in ["http://127.0.0.1:9", &hangs_up.url] {
        let words = ["cache", "export", "--format", "json", &url("x"), "--cache", &machine.text("large.snapshot")];
        let run = s3_machine(endpoint).run(&words);
        assert!(run.code == 6 && run.fault().contains("cannot reach `x.json`"), "{endpoint}: {}", run.stderr);
    }
}

#[test]
fn eight_processes_publish_to_a_bucket_at_once() {
    let Some(s3) = S3::start() else { return };
    let machines: Vec<Machine> = (0..8).map(|_| s3.machine()).collect();
    let mut children = Vec::new();
    for (number, machine) in machines.iter().enumerate() {
        let entries: Vec<_> = (0..3).map(|call| entry(&format!("{number}-{call}"), 1, 1)).collect();
        snapshot(&machine.path("a.snapshot"), &entries);
        children.push(
            machine
                .command(&["cache", "push", "s3://fleet/x", &machine.text("a.snapshot")])
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        );
    }
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let reader = s3.machine();
    let pulled = reader.good(&["cache", "pull", "s3://fleet/x", &reader.text("x.snapshot"), "-v"]);
    assert_eq!(calls(&reader.path("x.snapshot")).len(), 24);
    assert!(pulled.stderr.contains("generation 8, 24 entries"), "{}", pulled.stderr);
}

#[test]
fn large_snapshots_go_in_parts() {
    let Some(s3) = S3::start() else { return };
    let machine = s3.machine();
    let entries: Vec<_> = (0..40_000).map(|call| entry(&format!("{call:06}"), call, 1)).collect();
    let digest = snapshot(&machine.path("a.snapshot"), &entries);
    assert!(fs::metadata(machine.path("a.snapshot")).unwrap().len() > 9 << 20);
    machine.good(&["cache", "push", "s3://fleet/large", &machine.text("a.snapshot")]);
    let pulled = s3.machine().good(&["cache", "pull", "s3://fleet/large", &machine.text("x.snapshot")]);
    assert!(pulled.stdout.starts_with(&digest));
    assert_eq!(fs::read(machine.path("x.snapshot")).unwrap(), fs::read(machine.path("a.snapshot")).unwrap());
}

#[test]
fn tuning_machines_share_a_bucket() {
    let Some(s3) = S3::start() else { return };
    let (one, other) = (s3.machine(), s3.machine());
    write_replay(&example().join("registry"), &one.path("replay.json"));
    let (module, timer) = (module(), measured_as_in(&one.path("replay.json")));
    let tune = [module.as_str(), "--timer", &timer, "--cache", "s3://fleet/t"];
    assert!(one.good(&tune).stderr.contains("published at `s3://fleet/t`: generation 1"));
    assert!(other.good(&tune).stderr.contains("nothing measured"));
    // without the bucket, decisions stay local, and the exit code says that they were not published
    drop(s3);
    let alone = one.run(&[&tune[..], &["--force"]].concat());
    assert_eq!(alone.code, 6, "{}", alone.stderr);
    assert!(alone.fault().contains("not published") && alone.fault().contains("is kept here"), "{}", alone.stderr);
    let own = one.good(&["cache", "path", "--cache", "s3://fleet/t"]).stdout.trim_end().to_owned();
    assert!(!one.good(&["cache", "ls", "--cache", &own]).stdout.contains("the cache is empty"));
}

/// A server with one response to each request, by method and path.
struct Server {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(answer: impl Fn(&str, &str) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = serve(stream.unwrap(), &answer, &seen);
            }
        });
        Self { url, requests }
    }
}

fn serve(
    mut stream: TcpStream,
    answer: &impl Fn(&str, &str) -> Vec<u8>,
    seen: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut words = head.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    seen.lock().unwrap().push(head);
    stream.write_all(&answer(&method, &path))?;
    stream.flush()
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\netag: \"1\"\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

#[test]
fn a_web_server_is_loaded_from_and_not_published_to() {
    let (machine, store) = (Machine::new(), in_memory());
    let digest = snapshot(&machine.path("a.snapshot"), &[entry("a", 1, 10)]);
    machine.good(&["cache", "push", &format!("file://{}", store.path().display()), &machine.text("a.snapshot")]);
    let root = store.path().to_owned();
    let server = Server::start(move |_, path| {
        let path = path.split('?').next().unwrap().strip_prefix("/pre fix".replace(' ', "%20").as_str());
        match path.and_then(|path| fs::read(root.join(path.trim_start_matches('/'))).ok()) {
            Some(bytes) => answer("200 OK", "", &bytes),
            None => answer("404 Not Found", "", b""),
        }
    });
    let with_secrets = format!("{}/pre%20fix?token=qu3rys3cret", server.url.replace("//", "//ann:p4ssw0rd@"));
    let pulled = machine.good(&["cache", "pull", &with_secrets, &machine.text("x.snapshot"), "-vvv"]);
    assert!(pulled.stdout.starts_with(&digest), "{}", pulled.stdout);
    // printf 'ann:p4ssw0rd' | base64
    let authorized = "authorization: Basic YW5uOnA0c3N3MHJk";
    let requests = server.requests.lock().unwrap().clone();
    assert!(!requests.is_empty() && requests.iter().all(|head| head.contains(authorized)), "{requests:?}");
    assert!(requests.iter().all(|head| head.lines().next().unwrap().contains("?token=qu3rys3cret")), "{requests:?}");
    let listed = machine.good(&["cache", "ls", "--cache", &with_secrets, "-vvv"]);
    let push = machine.run(&["cache", "push", &with_secrets, &machine.text("a.snapshot"), "-vvv"]);
    assert_eq!(push.code, 2, "{}", push.stderr);
    assert!(push.fault().contains("can only be read"), "{}", push.stderr);
    let file = format!("{}/pre%20fix/configs.json", server.url);
    let export = machine.run(&["cache", "export", "--format", "json", &file]);
    assert!(export.code == 2 && export.fault().contains("can only be read"), "{}", export.stderr);
    let away = machine.run(&["cache", "pull", "http://ann:p4ssw0rd@127.0.0.1:9/x?token=qu3rys3cret", "-vvv"]);
    assert_eq!(away.code, 6, "{}", away.stderr);
    for run in [&pulled, &listed, &push, &away] {
        for secret in ["p4ssw0rd", "YW5uOnA0c3N3MHJk", "qu3rys3cret"] {
            assert!(!run.stdout.contains(secret) && !run.stderr.contains(secret), "{} {}", run.stdout, run.stderr);
        }
    }
}

/// What a user of S3 meets first: each error says what to do about it.
#[test]
fn a_bucket_that_is_not_set_up_is_an_error_that_says_how() {
    let missing = Server::start(|_, _| {
        answer("404 Not Found", "content-type: application/xml\r\n", b"<Error><Code>NoSuchBucket</Code></Error>")
    });
    let machine = s3_machine(&missing.url);
    snapshot(&machine.path("a.snapshot"), &[entry("a", 1, 10)]);
    let push = ["cache", "push", "s3://nowhere/x", &machine.text("a.snapshot")];
    for words in [&["cache", "pull", "s3://nowhere/x"][..], &push] {
        let run = machine.run(words);
        assert_eq!(run.code, 6, "{}", run.stderr);
        let fault = run.fault();
        assert!(fault.contains("there is no such bucket (404); make it, or check its name"), "{fault}");
        assert!(!fault.contains("credentials"), "{fault}");
    }
    let mut plain = s3_machine(&missing.url);
    plain.environment.retain(|(name, _)| name != "AWS_ALLOW_HTTP");
    let run = plain.run(&["cache", "pull", "s3://nowhere/x"]);
    assert!(run.code == 6 && run.fault().contains("AWS_ALLOW_HTTP=true permits that"), "{}", run.stderr);
}

#[test]
fn a_server_that_says_no_or_nonsense_is_an_error_in_one_line() {
    let pull = |server: &Server| {
        let machine = Machine::new();
        let run = machine.run(&["cache", "pull", &format!("{}/c", server.url), &machine.text("x.snapshot")]);
        assert!(!machine.path("x.snapshot").exists());
        (run.code, run.fault().to_owned())
    };
    for (status, code, words) in [
        ("404 Not Found", 3, "nothing is published"),
        ("403 Forbidden", 6, "permission denied (403); give credentials"),
        ("401 Unauthorized", 6, "not authenticated (401)"),
        ("500 Internal Server Error", 6, "500 Internal Server Error"),
        ("503 Service Unavailable", 6, "503"),
        ("400 Bad Request", 6, "400"),
    ] {
        let server = Server::start(move |_, _| answer(status, "", b"<Error>\x1b[31m</Error>"));
        let (found, fault) = pull(&server);
        assert_eq!(found, code, "{status}: {fault}");
        assert!(fault.contains(words) && !fault.contains('\x1b'), "{status}: {fault}");
    }
    // an endless redirection
    let server = Server::start(|_, path| answer("302 Found", &format!("location: {path}\r\n"), b""));
    let (code, fault) = pull(&server);
    assert_eq!(code, 6, "{fault}");
    assert!(fault.contains("redirect"), "{fault}");
    assert!(server.requests.lock().unwrap().len() < 100);
    // a gigabyte with a declared length, and one without
    let server = Server::start(|_, _| b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n{".to_vec());
    assert!(pull(&server).1.contains("1073741824 bytes, at most 65536"));
    let server = Server::start(|_, _| {
        let mut bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        bytes.extend(b"10000\r\n".iter().chain(&[b' '; 0x10000]).chain(b"\r\n").cycle().take(1 << 22));
        bytes
    });
    let (code, fault) = pull(&server);
    assert!(code == 6 && !fault.contains("panicked"), "{fault}");
    // another protocol
    let server = Server::start(|_, _| b"220 ready\r\n".to_vec());
    assert_eq!(pull(&server).0, 6);
}

#[test]
fn a_download_that_breaks_off_is_not_believed() {
    let (machine, store) = (Machine::new(), in_memory());
    snapshot(&machine.path("a.snapshot"), &[entry("a", 1, 10)]);
    machine.good(&["cache", "push", &format!("file://{}", store.path().display()), &machine.text("a.snapshot")]);
    let root = store.path().to_owned();
    let server = Server::start(move |_, path| {
        let bytes = fs::read(root.join(path.trim_start_matches("/c/"))).unwrap_or_default();
        let mut whole = answer("200 OK", "", &bytes);
        if path.ends_with(".snapshot") {
            whole.truncate(whole.len() - 40);
        }
        whole
    });
    let run = machine.run(&["cache", "pull", &format!("{}/c", server.url), &machine.text("x.snapshot")]);
    assert_eq!(run.code, 6, "{}", run.stderr);
    assert!(run.fault().contains(".snapshot") && !machine.path("x.snapshot").exists(), "{}", run.stderr);
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let machine = Machine::new();
    let run = machine.run(&["cache", "pull", &format!("http://{}/c", listener.local_addr().unwrap())]);
    assert_eq!(run.code, 6, "{}", run.stderr);
    assert!(run.fault().contains("cannot reach"), "{}", run.stderr);
}

/// Such a store would silently lose what others publish.
#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let server = Server::start(|method, _| match method {
        "PUT" => answer("200 OK", "", b""),
        _ => answer("404 Not Found", "", b""),
    });
    let machine = s3_machine(&server.url);
    snapshot(&machine.path("a.snapshot"), &[entry("a", 1, 10)]);
    let run = machine.run(&["cache", "push", "s3://fleet/x", &machine.text("a.snapshot")]);
    assert_eq!(run.code, 6, "{}", run.stderr);
    assert!(run.fault().contains("ignores conditions"), "{}", run.stderr);
    let requests = server.requests.lock().unwrap();
    assert!(!requests.iter().any(|head| head.starts_with("PUT") && head.contains("manifest-v1.json")), "{requests:?}");
}
