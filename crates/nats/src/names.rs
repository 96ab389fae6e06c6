//! Names that NATS takes, and addresses of its servers.

/// The bucket of a fleet.
#[must_use]
pub fn bucket_name(fleet: &str) -> String {
    format!("tidegate-fleet-{}", escaped(fleet))
}

/// The key of a proxy.
#[must_use]
pub fn key_name(proxy: &str) -> String {
    escaped(proxy)
}

/// Letters, digits and `-` as they are, every other byte as `_` and two hexadecimal digits, so that
/// two names never become the same one.
fn escaped(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => char::from(byte).to_string(),
        other => format!("_{other:02X}"),
    };
    name.bytes().map(byte).collect()
}

/// Whether an address of a server can be used.
///
/// # Errors
/// Cause and remedy.
pub fn check_url(url: &str) -> Result<(), String> {
    let schemes = ["nats://", "tls://"];
    let Some(rest) = schemes.iter().find_map(|scheme| url.strip_prefix(scheme)) else {
        return Err(format!(
            "`{url}` is not the address of a NATS server; write \"nats://host:4222\", or \"tls://\" \
             to demand TLS"
        ));
    };
    if rest.contains('@') {
        return Err(
            "a password in an address ends up in logs; give `user` and `password_file`, or \
             `credentials_file`"
                .to_owned(),
        );
    }
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse::<u16>().ok()),
        _ => (rest, Some(4222)),
    };
    let host_is_plain = !host.is_empty() && !host.contains(['/', '?', '#', ',', ' ']);
    match port {
        Some(port) if port != 0 && host_is_plain => Ok(()),
        _ => Err(format!(
            "`{url}` is not a host and a port; write \"nats://host:4222\""
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ones_that_nats_takes_and_stay_different() {
        assert_eq!(bucket_name("main"), "tidegate-fleet-main");
        assert_eq!(key_name("edge-1:9190"), "edge-1_3A9190");
        let odd = ["a b", "a_b", "a.b", "a*b", "ä", "a>", ".", "a_20b"];
        let keys: Vec<String> = odd.iter().map(|name| key_name(name)).collect();
        for (index, key) in keys.iter().enumerate() {
            let plain = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
            assert!(key.chars().all(plain), "{key}");
            assert!(!keys[..index].contains(key), "{key}");
        }
    }

    #[test]
    fn addresses_that_cannot_be_used_are_refused_with_a_remedy() {
        for good in [
            "nats://10.0.0.5:4222",
            "tls://nats.internal",
            "nats://[::1]:4222",
            "nats://[::1]",
        ] {
            assert_eq!(check_url(good), Ok(()), "{good}");
        }
        for (bad, remedy) in [
            ("10.0.0.5:4222", "nats://host:4222"),
            ("http://10.0.0.5:4222", "nats://host:4222"),
            ("nats://me:secret@h:4222", "password_file"),
            ("nats://", "host and a port"),
            ("nats://h:0", "host and a port"),
            ("nats://h:4222/x", "host and a port"),
            ("nats://a:4222,b:4222", "host and a port"),
        ] {
            let error = check_url(bad).unwrap_err();
            assert!(error.contains(remedy), "{bad}: {error}");
        }
    }
}
