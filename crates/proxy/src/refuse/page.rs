//! The texts that people and programs read.

use std::fmt::Write;
use std::path::Path;

use bytes::Bytes;
use http::StatusCode;

use super::Format;
use super::people::PeoplePages;
use crate::config::RefusalTexts;
use crate::settings::SettingsError;

const BUSY: &str = "The service is busy right now and cannot take your request. Please wait a moment, then \
     try again once.";

const TEMPORARY_REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const ABNORMAL_USAGE_DETECTED: &str =
    "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";

/// The operator's own texts, where there are any.
#[derive(Debug)]
pub(super) struct Custom {
    texts: RefusalTexts,
    html: Option<Bytes>,
    json: Option<Bytes>,
    text: Option<Bytes>,
    pages: PeoplePages,
}

/// Equal texts make equal pages.
impl PartialEq for Custom {
    fn eq(&self, other: &Self) -> bool {
        let key = |it: &Self| {
            (
                it.texts.clone(),
                it.html.clone(),
                it.json.clone(),
                it.text.clone(),
            )
        };
        key(self) == key(other)
    }
}

impl Custom {
    pub(super) fn read(texts: &RefusalTexts) -> Result<Self, SettingsError> {
        let read = |path: &Option<_>| path.as_deref().map(read).transpose();
        Ok(Self {
            html: read(&texts.html)?,
            json: read(&texts.json)?,
            text: read(&texts.text)?,
            pages: PeoplePages::new(texts),
            texts: texts.clone(),
        })
    }

    /// What a client reads when it is refused because of overload.
    pub(super) fn overload(&self, format: Format, status: StatusCode, reason: &str) -> Bytes {
        let own = match format {
            Format::Html | Format::Form if self.html.is_some() => &self.html,
            Format::Html => return self.pages.counting(1, 0),
            Format::Form => return self.pages.form(),
            Format::Json => &self.json,
            Format::Text => &self.text,
            Format::Problem => &None,
            Format::Grpc => return Bytes::new(),
        };
        let message = self.texts.message.as_deref().unwrap_or(BUSY);
        own.clone()
            .unwrap_or_else(|| page(format, status, Some(reason), message))
    }

    /// The page for people that differs by the time to come back; none where it does not.
    pub(super) fn counting(
        &self,
        format: Format,
        retry_after_s: usize,
        salt: u64,
    ) -> Option<Bytes> {
        let ours = format == Format::Html && self.html.is_none();
        ours.then(|| self.pages.counting(retry_after_s, salt))
    }
}

fn read(path: &Path) -> Result<Bytes, SettingsError> {
    std::fs::read(path)
        .map(Bytes::from)
        .map_err(|cause| SettingsError::File {
            path: path.to_owned(),
            cause,
        })
}

/// A page about anything else.
pub(super) fn render(format: Format, status: StatusCode, message: &str) -> Bytes {
    page(format, status, None, message)
}

fn page(format: Format, status: StatusCode, reason: Option<&str>, message: &str) -> Bytes {
    let title = status.canonical_reason().unwrap_or("Error");
    match format {
        Format::Html | Format::Form => html(status, title, message),
        Format::Json => json(status, title, reason, message),
        Format::Problem => problem(status, title, reason, message),
        // Its headers say all.
        Format::Grpc => String::new(),
        Format::Text => format!("{} {title}\n{message}\n", status.as_u16()),
    }
    .into()
}

fn json(status: StatusCode, title: &str, reason: Option<&str>, message: &str) -> String {
    let mut document = serde_json::json!({
        "status": status.as_u16(),
        "error": title,
        "message": message,
    });
    if let Some(reason) = reason {
        document["reason"] = reason.into();
    }
    format!("{document}\n")
}

/// Problem details (RFC 9457), with the types of draft-ietf-httpapi-ratelimit-headers-10
/// section 8: overload is ours to name, a limit of one client is too.
fn problem(status: StatusCode, title: &str, reason: Option<&str>, message: &str) -> String {
    let kind = match status {
        StatusCode::SERVICE_UNAVAILABLE => TEMPORARY_REDUCED_CAPACITY,
        StatusCode::TOO_MANY_REQUESTS => ABNORMAL_USAGE_DETECTED,
        _ => "about:blank",
    };
    let mut document = serde_json::json!({
        "type": kind,
        "title": title,
        "status": status.as_u16(),
        "detail": message,
    });
    if let Some(reason) = reason {
        document["reason"] = reason.into();
    }
    format!("{document}\n")
}

/// Problem details of a client that has used up a quota.
pub(super) fn quota_exceeded(quota: &str, message: &str) -> Bytes {
    let document = serde_json::json!({
        "type": QUOTA_EXCEEDED,
        "title": "Too Many Requests",
        "status": 429,
        "detail": message,
        "violated-policies": [quota],
    });
    format!("{document}\n").into()
}

fn html(status: StatusCode, title: &str, message: &str) -> String {
    let (title, message) = (escape(title), escape(message));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>body{{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:18vh auto;\
         padding:0 1rem;color:#222;background:#fff}}h1{{font-size:1.4rem}}p{{margin:.5rem 0}}\
         small{{color:#666}}@media(prefers-color-scheme:dark){{body{{color:#ddd;background:#181818}}}}\
         </style></head><body><h1>{title}</h1><p>{message}</p><small>{}</small></body></html>\n",
        status.as_u16()
    )
}

pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' | '\'' => {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "&#{};", c as u32);
            }
            c => escaped.push(c),
        }
    }
    escaped
}
