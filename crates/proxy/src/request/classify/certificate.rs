//! Conditions on the client's certificate.

use crate::client::identity::Identity;
use crate::config::CertificateRule;

/// What a verified certificate has to say.
#[derive(Debug)]
pub(super) struct CertificateCondition {
    fingerprint: Option<[u8; 32]>,
    common_name: Option<String>,
    name: Option<String>,
}

impl CertificateCondition {
    pub(super) fn new(rule: &CertificateRule) -> Self {
        Self {
            fingerprint: rule.fingerprint.map(|fingerprint| fingerprint.0),
            common_name: rule.common_name.clone(),
            name: rule.name.clone(),
        }
    }

    pub(super) fn fits(&self, found: &Identity) -> bool {
        let named = |wanted: &String| found.names.iter().any(|name| is_named(name, wanted));
        self.fingerprint
            .is_none_or(|wanted| found.fingerprint == wanted)
            && (self.common_name.is_none() || self.common_name == found.common_name)
            && self.name.as_ref().is_none_or(named)
    }
}

/// Whether a certificate's name is the one wanted; `*.partner.example` is every DNS name below.
fn is_named(name: &str, wanted: &str) -> bool {
    match wanted.strip_prefix('*') {
        Some(parent) => {
            let end = name.len().checked_sub(parent.len());
            let end = end.filter(|end| *end > 0).and_then(|end| name.get(end..));
            end.is_some_and(|end| end.eq_ignore_ascii_case(parent)) && !name.contains(['@', '/'])
        }
        None => name.eq_ignore_ascii_case(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_asked_for_has_to_be_there() {
        let identity = Identity {
            fingerprint: [7; 32],
            common_name: Some("Partner A".to_owned()),
            names: vec!["a.partner.example".to_owned(), "spiffe://x/a".to_owned()],
        };
        let fits = |text: &str| {
            let rule: CertificateRule = toml::from_str(text).unwrap();
            CertificateCondition::new(&rule).fits(&identity)
        };
        assert!(fits(""), "any verified certificate");
        assert!(fits(
            "common_name = 'Partner A'\nname = '*.partner.example'"
        ));
        assert!(fits("name = 'spiffe://x/a'"));
        assert!(fits(&format!("fingerprint = '{}'", "07".repeat(32))));
        assert!(!fits("name = '*.other.example'") && !fits("name = 'partner.example'"));
        assert!(!fits(
            "common_name = 'Partner B'\nname = '*.partner.example'"
        ));
        assert!(!fits(&format!("fingerprint = '{}'", "08".repeat(32))));
    }

    #[test]
    fn a_wildcard_is_about_dns_names_only() {
        assert!(!is_named("evil@x.partner.example", "*.partner.example"));
        assert!(!is_named(
            "https://evil/.partner.example",
            "*.partner.example"
        ));
        assert!(!is_named(".partner.example", "*.partner.example"));
    }
}
