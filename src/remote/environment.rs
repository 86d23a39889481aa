//! What the environment says about a bucket, checked before the library of stores reads it: that panics at an address
//! without `http`, and at a secret that was copied with its line break.

use std::ffi::OsString;
use std::str::FromStr;

/// The settings that the library knows, of the variables with a prefix. An empty one counts as unset, as it does for the
/// vendors' own tools.
pub(super) fn settings<K: FromStr>(prefix: &str) -> Result<Vec<(K, String)>, String> {
    // what is no text is none of them
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    checked(prefix, std::env::vars_os().filter_map(text))
}

fn checked<K: FromStr>(
    prefix: &str,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Vec<(K, String)>, String> {
    let mut settings = Vec::new();
    for (name, value) in variables.filter(|(name, value)| name.starts_with(prefix) && !value.is_empty()) {
        let Ok(key) = name.to_ascii_lowercase().parse() else { continue };
        check(&name, &value)?;
        settings.push((key, value));
    }
    Ok(settings)
}

/// Says what is wrong with a variable, never its value: it may be a secret.
fn check(name: &str, value: &str) -> Result<(), String> {
    if value.chars().any(char::is_control) {
        return Err(format!("`{name}` holds a line break or another control character"));
    }
    if !name.starts_with("AWS_") {
        return Ok(());
    }
    if name.contains("ENDPOINT") && !is_address(value) {
        return Err(format!("`{name}` is no address: it is to begin with `https://`, or with `http://`"));
    }
    if name.ends_with("REGION") && !value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Err(format!("`{name}` is not the name of a region"));
    }
    Ok(())
}

fn is_address(value: &str) -> bool {
    let is_plain = value.chars().all(|c| c.is_ascii_graphic() && !"<>\"\\^`{|}".contains(c));
    let has_host = |url: reqwest::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    is_plain && reqwest::Url::parse(value).is_ok_and(has_host)
}

#[cfg(test)]
mod tests {
    use object_store::aws::AmazonS3ConfigKey;

    use super::*;

    fn of(name: &str, value: &str) -> Result<usize, String> {
        let variables = [(name.to_owned(), value.to_owned())].into_iter();
        checked::<AmazonS3ConfigKey>("AWS_", variables).map(|settings| settings.len())
    }

    #[test]
    fn what_the_library_panics_at_is_told_by_its_name() {
        for address in ["http://127.0.0.1:9000", "https://minio.example.org/", "http://[::1]:9"] {
            assert_eq!(of("AWS_ENDPOINT", address), Ok(1), "{address}");
        }
        let wrong =
            ["nonsense", "localhost", "127.0.0.1:9000", "localhost:9000", "ftp://host", "http://", "http://a b"];
        for address in wrong.into_iter().chain(["http://127.0.0.1:99999", "http://host/<x>"]) {
            for name in ["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"] {
                let said = of(name, address).unwrap_err();
                assert!(said.contains(name) && said.contains("no address"), "{said}");
            }
        }
        for (name, value) in [("AWS_ACCESS_KEY_ID", "AKIA\n"), ("AWS_SESSION_TOKEN", "s3cret\r")] {
            let said = of(name, value).unwrap_err();
            assert!(said.contains(name) && said.contains("line break") && !said.contains(value.trim()), "{said}");
        }
        assert_eq!(of("AWS_REGION", "eu-central-1"), Ok(1));
        assert!(of("AWS_DEFAULT_REGION", "a b").is_err());
    }

    #[test]
    fn what_is_empty_or_of_others_is_left_out() {
        for (name, value) in [("AWS_ENDPOINT", ""), ("AWS_ENDPOINT_URL_SQS", "nonsense"), ("GOOGLE_BUCKET", "x")] {
            assert_eq!(of(name, value), Ok(0), "{name}");
        }
    }
}
