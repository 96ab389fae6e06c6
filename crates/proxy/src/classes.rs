//! The rules of `[[classify]]` for drivers that are not the proxy but see the same requests.

use http::request::Parts;
use tidegate_sentry::ClassId;

use crate::config::Config;
use crate::message::Fields;
use crate::request::classify::{Asked, Classifier};

/// Decides the class of a request by the rules of a configuration. Certificates and tokens are
/// the proxy's own: rules that ask for them fit no request here.
#[derive(Debug)]
pub struct Classes {
    classifier: Classifier,
}

impl Classes {
    /// The rules of a configuration without [problems](Config::class_problems).
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let classifier = Classifier::new(config);
        Self { classifier }
    }

    /// The class of a request. Its headers can make it more important only if they are `trusted`.
    #[must_use]
    pub fn class(&self, request: &Parts, trusted: bool) -> ClassId {
        let headers = request.headers.iter();
        let headers: Fields = headers
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let host = request
            .uri
            .authority()
            .map_or("", |authority| authority.host());
        let asked = Asked::new(&request.method, host, request.uri.path(), &headers);
        self.classifier.class(&asked.from(trusted, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(trusted: bool, plan: &str) -> u16 {
        let config = Config::from_text(
            "test",
            "[[protect.classes]]\nname = \"gold\"\n[[protect.classes]]\nname = \"rest\"\n\
             [[classify]]\nclass = \"gold\"\nheaders = { x-plan = \"gold\" }\n",
        );
        let classes = Classes::new(&config.expect("the text is a configuration"));
        let request = http::Request::get("http://shop.example/").header("x-plan", plan);
        let request = request.body(()).expect("the parts are valid");
        classes.class(&request.into_parts().0, trusted).0
    }

    #[test]
    fn headers_promote_only_where_they_are_trusted() {
        assert_eq!(class(true, "gold"), 0);
        assert_eq!(class(true, "tin"), 1);
        assert_eq!(class(false, "gold"), 1);
    }
}
