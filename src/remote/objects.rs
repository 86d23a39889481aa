//! Buckets of S3, Google Cloud Storage and Azure, and files of a web server, through `object_store`.

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::io::{Read, Write};
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientConfigKey, ClientOptions, Error, HeaderMap, HeaderValue, ObjectStore, ObjectStoreExt as _,
    PutMode, PutPayload, RetryConfig, UpdateVersion, WriteMultipart,
};
use tokio::runtime::Runtime;

use super::address::{Address, BucketKind, StorePlace};
use super::bucket::{Bucket, BucketError, ObjectVersion, too_large};
use super::environment::settings;
use super::error::RemoteError;
use crate::clock::check_clock;
use crate::outside_file;
use crate::printable::printable;

/// Time limits for connecting, and for a silent server.
const CONNECT_TIMEOUT: &str = "5 seconds";
const READ_TIMEOUT: &str = "10 seconds";
/// Minimum time limit for an object of any size, and the slowest accepted rate for large ones.
const SMALL_OBJECT: Duration = Duration::from_secs(20);
const SLOWEST_BYTES_PER_SECOND: u64 = 64 << 10;
/// Larger objects are sent in parts of this size, each of which is retried separately.
const PART_BYTES: usize = 8 << 20;
const PARTS_AT_ONCE: usize = 4;
/// Maximum number of characters of a store's answer in an error.
const MAX_REASON_CHARS: usize = 300;
/// Where a machine in a cloud asks for credentials: AWS, Azure and, by its name, Google.
const METADATA_SERVICE: &str = "169.254.169.254";
/// An object that never has the requested version.
const PROBE: &str = "conditional-v1";

/// A store through `object_store`, with a runtime of its own; the rest of the program blocks on it.
pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
    runtime: Runtime,
    prefix: String,
    /// Whether some stores of this kind ignore conditions.
    asks_for_conditions: bool,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objects({})", self.prefix)
    }
}

impl Objects {
    pub(super) fn open(address: &Address) -> Result<Self, RemoteError> {
        let wrong = |what: String| RemoteError::Address { url: address.to_string(), what };
        // a TLS connection and a signed request panic without this
        check_clock().map_err(|reason| RemoteError::Clock { url: address.to_string(), reason })?;
        // an error means that another part of this program has already chosen one
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| wrong(format!("cannot start its runtime: {error}")))?;
        let (store, prefix, asks_for_conditions) = match &address.place {
            StorePlace::Folder(_) => return Err(wrong("it is a folder".to_owned())),
            StorePlace::Bucket { kind, bucket, prefix } => {
                let unusable = |what| RemoteError::Environment { url: address.to_string(), what };
                let store = open_bucket(*kind, bucket).map_err(unusable)?;
                (store, prefix.clone(), *kind == BucketKind::S3)
            }
            StorePlace::Web { url, user, encrypted } => {
                let store = open_web(url, user.as_ref(), *encrypted).map_err(wrong)?;
                (store, String::new(), false)
            }
        };
        Ok(Self { store, runtime, prefix, asks_for_conditions })
    }

    fn path(&self, name: &str) -> Path {
        Path::from(if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) })
    }

    fn wait<T>(&self, limit: Duration, work: impl Future<Output = Result<T, BucketError>>) -> Result<T, BucketError> {
        self.runtime.block_on(async {
            match tokio::time::timeout(limit, work).await {
                Ok(done) => done,
                Err(_) => Err(BucketError::Unavailable(format!("it took more than {} s", limit.as_secs()))),
            }
        })
    }

    async fn put_if(&self, name: &str, mode: PutMode, bytes: &[u8]) -> Result<bool, BucketError> {
        let payload = PutPayload::from(bytes.to_vec());
        match self.store.put_opts(&self.path(name), payload, mode.into()).await {
            Ok(_) => Ok(true),
            Err(Error::Precondition { .. } | Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(trouble(&error)),
        }
    }

    /// Rejects a store that ignores write conditions, because it would lose what others publish.
    async fn check_conditions(&self) -> Result<(), BucketError> {
        // no object has this version, so a store that checks it cannot write
        let nothing = UpdateVersion { e_tag: Some("\"00000000000000000000000000000000\"".to_owned()), version: None };
        let text = "Not written by a store that honours If-Match.\n";
        if self.put_if(PROBE, PutMode::Update(nothing), text.as_bytes()).await? {
            let what = "this store ignores conditions on writes (If-Match), and would lose what others publish: use \
                        one that honours them, or publish from one place by `cache push` to `file://` and copy the \
                        folder";
            return Err(BucketError::Refused(what.to_owned()));
        }
        Ok(())
    }
}

impl Bucket for Objects {
    fn get(&self, name: &str, limit: u64, out: &mut (dyn Write + Send)) -> Result<Option<ObjectVersion>, BucketError> {
        let time = SMALL_OBJECT + Duration::from_secs(limit / SLOWEST_BYTES_PER_SECOND);
        self.wait(time, async {
            let found = match self.store.get(&self.path(name)).await {
                Ok(found) => found,
                Err(Error::NotFound { source, .. }) if source.to_string().contains("NoSuchBucket") => {
                    return Err(no_bucket());
                }
                Err(Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(trouble(&error)),
            };
            if found.meta.size > limit {
                return Err(too_large(found.meta.size, limit));
            }
            let version = ObjectVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
            let mut stream = found.into_stream();
            let mut left = limit;
            while let Some(part) = stream.next().await {
                let part = part.map_err(|error| trouble(&error))?;
                // the announced size need not be the actual one
                left = left.checked_sub(part.len() as u64).ok_or_else(|| too_large(limit + 1, limit))?;
                out.write_all(&part).map_err(|error| BucketError::Unavailable(error.to_string()))?;
            }
            Ok(Some(version))
        })
    }

    fn put(&self, name: &str, file: &FilePath) -> Result<(), BucketError> {
        let here = |error: std::io::Error| BucketError::Damaged(format!("cannot read `{}`: {error}", file.display()));
        let mut source = outside_file::open(file, u64::MAX).map_err(here)?;
        let size = source.metadata().map_err(here)?.len();
        let time = SMALL_OBJECT + Duration::from_secs(size / SLOWEST_BYTES_PER_SECOND);
        let path = self.path(name);
        self.wait(time, async {
            if size <= PART_BYTES as u64 {
                let mut bytes = Vec::new();
                source.read_to_end(&mut bytes).map_err(here)?;
                return self.store.put(&path, bytes.into()).await.map(drop).map_err(|error| trouble(&error));
            }
            let upload = self.store.put_multipart(&path).await.map_err(|error| trouble(&error))?;
            let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
            loop {
                let mut part = Vec::new();
                (&mut source).take(PART_BYTES as u64).read_to_end(&mut part).map_err(here)?;
                if part.is_empty() {
                    break;
                }
                if let Err(error) = upload.wait_for_capacity(PARTS_AT_ONCE).await {
                    // what arrived of it would take space; `finish` does the same
                    let _ = upload.abort().await;
                    return Err(trouble(&error));
                }
                upload.put(part.into());
            }
            upload.finish().await.map(drop).map_err(|error| trouble(&error))
        })
    }

    fn has(&self, name: &str) -> Result<bool, BucketError> {
        self.wait(SMALL_OBJECT, async {
            match self.store.head(&self.path(name)).await {
                Ok(_) => Ok(true),
                Err(Error::NotFound { .. }) => Ok(false),
                Err(error) => Err(trouble(&error)),
            }
        })
    }

    fn remove(&self, name: &str) -> Result<(), BucketError> {
        self.wait(SMALL_OBJECT, async {
            match self.store.delete(&self.path(name)).await {
                Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(trouble(&error)),
            }
        })
    }

    fn swap(&self, name: &str, expected: Option<&ObjectVersion>, bytes: &[u8]) -> Result<bool, BucketError> {
        let mode = match expected {
            None => PutMode::Create,
            Some(ObjectVersion { e_tag, version }) => {
                PutMode::Update(UpdateVersion { e_tag: e_tag.clone(), version: version.clone() })
            }
        };
        self.wait(SMALL_OBJECT, async {
            if self.asks_for_conditions {
                self.check_conditions().await?;
            }
            self.put_if(name, mode, bytes).await
        })
    }
}

fn open_bucket(kind: BucketKind, name: &str) -> Result<Arc<dyn ObjectStore>, String> {
    // no limit on a whole request, because its time depends on its size
    let client = [
        (ClientConfigKey::ConnectTimeout, CONNECT_TIMEOUT),
        (ClientConfigKey::ReadTimeout, READ_TIMEOUT),
        (ClientConfigKey::Timeout, "1 day"),
        (ClientConfigKey::UserAgent, USER_AGENT),
    ];
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let store: Result<Arc<dyn ObjectStore>, Error> = match kind {
        BucketKind::S3 => {
            let own = client.map(|(key, value)| (AmazonS3ConfigKey::Client(key), value.to_owned()));
            let settings = settings("AWS_")?.into_iter().chain(own);
            let with = |builder: AmazonS3Builder, (key, value)| builder.with_config(key, value);
            let builder = settings.fold(AmazonS3Builder::new(), with).with_bucket_name(name).with_retry(retry());
            builder.build().map(|store| Arc::new(store) as _)
        }
        BucketKind::Google => {
            let own = client.map(|(key, value)| (GoogleConfigKey::Client(key), value.to_owned()));
            let account = variable("SERVICE_ACCOUNT").map(|file| (GoogleConfigKey::ServiceAccount, file));
            let settings = account.into_iter().chain(settings("GOOGLE_")?).chain(own);
            let with = |builder: GoogleCloudStorageBuilder, (key, value)| builder.with_config(key, value);
            let builder = settings.fold(GoogleCloudStorageBuilder::new(), with);
            builder.with_bucket_name(name).with_retry(retry()).build().map(|store| Arc::new(store) as _)
        }
        BucketKind::Azure => {
            let own = client.map(|(key, value)| (AzureConfigKey::Client(key), value.to_owned()));
            let endpoint = variable("IDENTITY_ENDPOINT").map(|url| (AzureConfigKey::MsiEndpoint, url));
            let settings = settings("AZURE_")?.into_iter().chain(endpoint).chain(own);
            let with = |builder: MicrosoftAzureBuilder, (key, value)| builder.with_config(key, value);
            let builder = settings.fold(MicrosoftAzureBuilder::new(), with);
            builder.with_container_name(name).with_retry(retry()).build().map(|store| Arc::new(store) as _)
        }
    };
    store.map_err(|error| reason_of(&error))
}

const USER_AGENT: &str = concat!("autotune-lowered/", env!("CARGO_PKG_VERSION"));

fn open_web(url: &str, user: Option<&(String, String)>, encrypted: bool) -> Result<Arc<dyn ObjectStore>, String> {
    let mut options = ClientOptions::new()
        .with_allow_http(!encrypted)
        .with_timeout_disabled()
        .with_config(ClientConfigKey::ConnectTimeout, CONNECT_TIMEOUT)
        .with_config(ClientConfigKey::ReadTimeout, READ_TIMEOUT)
        .with_config(ClientConfigKey::UserAgent, USER_AGENT);
    if let Some((user, password)) = user {
        // the header that a client makes from user and password; no request is made here
        let request = reqwest::Client::new().get("http://localhost/").basic_auth(user, Some(password)).build();
        let header = request.ok().and_then(|request| request.headers().get("authorization").cloned());
        let mut value: HeaderValue = header.ok_or("its user and password cannot be sent")?;
        value.set_sensitive(true);
        let mut headers = HeaderMap::new();
        headers.insert("authorization", value);
        options = options.with_default_headers(headers);
    }
    let store = HttpBuilder::new().with_url(url).with_client_options(options).with_retry(retry()).build();
    Ok(Arc::new(store.map_err(|error| reason_of(&error))?))
}

/// An unreachable store must be detected soon; a busy one gets some more attempts.
fn retry() -> RetryConfig {
    RetryConfig {
        max_retries: 3,
        retry_timeout: Duration::from_secs(15),
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
    }
}

fn trouble(error: &Error) -> BucketError {
    let refused = |what: &str| BucketError::Refused(what.to_owned());
    let credentials = "give credentials in the environment (docs/remote.md)";
    match error {
        Error::PermissionDenied { .. } => refused(&format!("permission denied (403); {credentials}")),
        Error::Unauthenticated { .. } => refused(&format!("not authenticated (401); {credentials}")),
        Error::NotFound { .. } => no_bucket(),
        Error::NotImplemented { .. } => {
            refused("it cannot write on a condition; publish to another store (docs/remote.md)")
        }
        _ => match reason_of(error) {
            reason if reason.contains("URL scheme is not allowed") => {
                refused("its endpoint is `http://`; AWS_ALLOW_HTTP=true permits that, or name one with `https://`")
            }
            // where nothing else is given, the store's library asks the machine's cloud
            reason if error.to_string().contains(METADATA_SERVICE) => BucketError::Unavailable(format!(
                "the environment has no credentials, and this machine's cloud gives none ({reason}); set them \
                 (docs/remote.md)"
            )),
            reason => BucketError::Unavailable(reason),
        },
    }
}

fn no_bucket() -> BucketError {
    BucketError::Refused("there is no such bucket (404); make it, or check its name".to_owned())
}

/// The innermost cause, which is the most informative and has no URL; anything like a URL is removed anyway.
fn reason_of(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = next.to_string();
        cause = next.source();
    }
    let words = text.split_whitespace().map(|word| match word.contains("://") {
        true => crate::cache::shown_url(word),
        false => word.split('?').next().unwrap_or_default().to_owned(),
    });
    let line = printable(&words.collect::<Vec<_>>().join(" "));
    line.chars().take(MAX_REASON_CHARS).collect()
}
